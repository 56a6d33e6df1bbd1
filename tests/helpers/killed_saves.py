"""The command line in a process that kills itself at a chosen moment of saving."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from warm_processes import FORKSERVER, carry_out

MOMENTS = ("before the tensors", "in the tensors", "before the model", "in the model", "after the model")


def run_and_die(words: list[str], log: Path, moment: str) -> int:
    """Run ``acr`` with these words; it gets SIGKILL at the moment. Returns the exit code."""
    process = FORKSERVER.Process(target=die_at, args=(moment, words, str(log), dict(os.environ)))
    process.start()
    process.join(300)
    assert process.exitcode is not None
    return process.exitcode


def die_at(moment: str, words: list[str], log: str, environment: dict[str, str]) -> None:
    from acr.learner import saving
    from acr.storage import files

    write, sync = files.write_bytes, os.fsync
    when, _, what = moment.partition(" the ")

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def write_bytes(path: Path, content: bytes) -> None:
        if path.name.startswith(what):
            if when == "before":
                die()
            os.fsync = die if when == "in" else sync  # the temporary file is written, but has not got its name
        write(path, content)
        if path.name.startswith(what) and when == "after":
            die()

    saving.files.write_bytes = write_bytes  # type: ignore[attr-defined]
    carry_out(words, log, environment)
