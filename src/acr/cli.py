"""The command line. A command is imported only when it is called, so that ``acr --help`` answers at once."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from acr._version import __version__
from acr.errors import AcrError, complain
from acr.storage.workers import wait_passively

COMMANDS = {
    "demo": (
        "acr.commands.demo:demo",
        "Try it out: fine-tuning, ER and ACR on handwritten digits, with a report page.",
    ),
    "run": ("acr.commands.run:run", "Train a method on a data set, task by task, and evaluate it after each task."),
    "resume": ("acr.commands.run:resume", "Finish an interrupted run."),
    "sweep": ("acr.commands.sweep:sweep", "Run a grid of configs; finished runs are not repeated."),
    "reproduce": (
        "acr.commands.reproduce:reproduce",
        "Reproduce a table or figure of the paper, with its values beside ours.",
    ),
    "compare": ("acr.commands.compare:compare", "Show what differs between two runs, in config and results."),
    "report": ("acr.commands.report:report", "Show runs on one page: who wins, what is forgotten, and the cost."),
    "dashboard": ("acr.commands.report:dashboard", "Watch runs in progress, in a browser on this machine."),
    "methods": ("acr.commands.info:methods", "List the methods and their options."),
    "doctor": ("acr.commands.info:doctor", "Show versions, devices, threads and disk space, and what is missing."),
}

app = App(
    name="acr",
    version=__version__,
    help="Adaptive Contrastive Replay: learn new classes without forgetting the old ones, measured under shift.",
    help_format="plaintext",
)
for _name, (_path, _help) in COMMANDS.items():
    app.command(_path, name=_name, help=_help)

GROUPS = {
    "data": (
        "List, download, check and view data sets.",
        {
            "list": ("acr.commands.data:list_datasets", "List the data sets, their locations and defaults."),
            "fetch": ("acr.commands.data:fetch", "Download a data set from its publisher, or explain how to get it."),
            "check": ("acr.commands.data:check", "Check classes, sizes, statistics, duplicates and files."),
            "show": ("acr.commands.data:show", "Draw a sheet of images from a data set."),
        },
    ),
    "shift": (
        "List corruptions; build and view the test sets shifted by them.",
        {
            "list": ("acr.commands.shift:list_corruptions", "List the corruptions and their constants."),
            "build": ("acr.commands.shift:build", "Build the shifted copies of a test set in advance."),
            "show": ("acr.commands.shift:show", "Draw a sheet: one row per corruption, one column per severity."),
        },
    ),
}
for _name, (_help, _commands) in GROUPS.items():
    _group = App(name=_name, help=_help, help_format="plaintext")
    for _command, (_path, _text) in _commands.items():
        _group.command(_path, name=_command, help=_text)
    app.command(_group)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. Exit codes: 0 done, 1 failed, 2 bad input, 130/143 interrupted."""
    wait_passively()
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    format_before = warnings.formatwarning
    if not debug:
        warnings.formatwarning = plain_warning
    try:
        app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        if debug:
            raise
        complain(str(error), 2)
    except AcrError as error:
        if debug:
            raise
        complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        complain("Interrupted.", 130)
    except BrokenPipeError:  # whatever read our output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except MemoryError:
        complain("Out of memory. Try a smaller --width, --batch-size or --buffer-size.", 1)
    except Exception as error:
        if debug:
            raise
        complain(f"Unexpected {type(error).__name__}: {error}\nThis is a bug in acr; add --debug to see where.", 1)
    finally:
        warnings.formatwarning = format_before


def plain_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning as one sentence, without its location in the source code."""
    return f"acr: warning: {message}\n"


if __name__ == "__main__":
    main()
