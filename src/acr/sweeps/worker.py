"""One run in a process of its own: :func:`main`, with the config file as its argument.

The process that started it holds the other end of its standard input. When that end closes, because the parent ended
or was killed, the run stops as if it had received a signal: after the current step, with a checkpoint. So no sweep
leaves orphans behind.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from acr.config import RunConfig
from acr.errors import AcrError, complain, in_the_way
from acr.launch import run_config
from acr.runs.resolve import make_config, read_config_file


def execute_config(config: RunConfig) -> tuple[int, str]:
    """Run or resume a config; returns the exit code and, if it failed, the reason."""
    try:
        run_config(config, resume="auto")
    except AcrError as error:
        return error.exit_code, str(error)
    except KeyboardInterrupt:
        return 130, "Interrupted before the first checkpoint."
    except Exception as error:  # whatever it is, the rest of the sweep continues
        known = in_the_way(error)
        if known is not None:
            return known.exit_code, str(known)
        return 1, f"Unexpected {type(error).__name__}: {error}"
    return 0, ""


def follow_parent() -> None:
    """Send SIGTERM to this process when the parent is gone."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Read the config file named on the command line and run it."""
    follow_parent()
    code, reason = execute_config(make_config(read_config_file(Path(sys.argv[1]))))
    if code:
        complain(reason, code)
