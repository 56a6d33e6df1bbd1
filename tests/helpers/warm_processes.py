"""The command line in processes that need not import PyTorch first.

A new interpreter spends seconds on its imports. These processes are forked from a server that has imported everything
once; apart from that they are like any other: they have a process id, signals, files and an exit code of their own.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path

FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(["acr.commands.run", "acr.commands.sweep", "acr.commands.learn", "torch._dynamo"])


class WarmProcess:
    """``acr`` with these words, in a process of its own; what it prints is stored in ``log``.

    ``talkative``: it prints a line of progress at every step, not every ten seconds.
    """

    def __init__(self, words: Sequence[str], log: Path, *, talkative: bool = False) -> None:
        self.log = log
        arguments = (list(words), str(log), dict(os.environ), talkative)
        self.process = FORKSERVER.Process(target=carry_out, args=arguments)
        self.process.start()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number if a signal ended it."""
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        """As ``kill`` does; nothing happens if the process has ended."""
        assert self.process.pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def wait(self, timeout: float) -> int:
        """The exit code, as soon as there is one."""
        self.process.join(timeout)
        assert self.exit_code is not None, f"still running after {timeout} seconds: {self.output()}"
        return self.exit_code

    def end(self) -> None:
        """Leave nothing behind, however the test ended."""
        self.process.kill()
        self.process.join()

    def output(self) -> str:
        """What it has printed so far, results and errors."""
        return self.log.read_text() if self.log.exists() else ""


def carry_out(words: list[str], log: str, environment: dict[str, str], talkative: bool = False) -> None:
    """What such a process does."""
    from acr.cli import main
    from acr.training import progress

    progress.PLAIN_LINE_SECONDS = 0.0 if talkative else progress.PLAIN_LINE_SECONDS
    os.environ.clear()
    os.environ.update(environment)
    with open(log, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["acr", *words]
    main(words)
