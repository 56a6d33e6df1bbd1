"""The command line. A command is imported only when it is called, so that ``acr --help`` answers at once."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from cyclopts import App, CycloptsError

from acr._version import __version__
from acr.commands.complaints import in_words
from acr.console import accept_any_terminal
from acr.errors import AcrError, complain, in_the_way, printable
from acr.storage.signals import end_on_sigterm
from acr.storage.workers import set_up_libraries

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
    "learn": ("acr.commands.learn:learn", "Make a classifier of your own images, or teach it what is new."),
    "predict": ("acr.commands.predict:predict", "Name what is in images, with a classifier or a finished run."),
    "memory": ("acr.commands.memory:memory", "List, draw or delete the images that a classifier has stored."),
    "gate": ("acr.commands.gate:gate", "Compare a new classifier with the one in use: may it replace it?"),
    "export": ("acr.commands.predict:export", "Write a classifier to an ONNX or torch.export file."),
    "methods": ("acr.commands.info:methods", "List the methods and their options."),
    "doctor": ("acr.commands.info:doctor", "Show versions, devices, threads and disk space, and what is missing."),
}

EXAMPLES = {
    "acr": ("acr demo", "acr run --method er", "acr run --help"),
    "demo": ("acr demo", "acr demo --seed 1"),
    "run": (
        "acr run --method er --seed 1",
        "acr run --dataset folder:my-photos --width 16 --epochs 10",
        "acr run --config runs/NAME/config.yaml --seed 2",
    ),
    "resume": ("acr resume runs/NAME",),
    "sweep": ("acr sweep recipe.yaml --dry-run", "acr sweep recipe.yaml --jobs 4"),
    "reproduce": ("acr reproduce acc --dry-run", "acr reproduce acc --scale reduced"),
    "compare": ("acr compare runs/NAME runs/OTHER",),
    "report": ("acr report runs -o report.html", "acr report runs --csv tables"),
    "dashboard": ("acr dashboard runs",),
    "learn": (
        "acr learn pets photos --width 16 --epochs 10",
        "acr learn pets new-photos",
        "acr learn pets labels.csv --validation-fraction 0.1",
    ),
    "predict": ("acr predict pets cat.jpg", "acr predict pets holiday-photos --top 3 --json"),
    "memory": ("acr memory pets list", "acr memory pets sheet -o memory.png", "acr memory pets drop --label cat"),
    "gate": ("acr gate pets pets-new test-photos", "acr gate old new test.csv --min-shifted-accuracy 0.6"),
    "export": ("acr export pets pets.onnx", "acr export pets pets.pt2 --overwrite"),
    "data list": ("acr data list", "acr data list split-mini-imagenet"),
    "data show": ("acr data show folder:my-photos -o photos.png",),
    "shift show": ("acr shift show split-digits", "acr shift show split-digits --ood-corruptions fog,snow"),
}
"""What one may type, by command; shown at the end of its help."""
DEBUG = "Every command takes --debug, which shows where in the source code an error came from."


def epilogue(command: str) -> str:
    """The end of the help of a command: examples, and the flag that all commands have."""
    examples = EXAMPLES.get(command, ())
    return "\n".join([*(["Examples:"] if examples else []), *(f"  {line}" for line in examples), DEBUG])


app = App(
    name="acr",
    version=__version__,
    help="Adaptive Contrastive Replay: learn new classes without forgetting the old ones, measured under shift.",
    help_format="plaintext",
    help_epilogue=epilogue("acr"),
)
for _name, (_path, _help) in COMMANDS.items():
    app.command(_path, name=_name, help=_help, help_epilogue=epilogue(_name))
app.register_install_completion_command(help="Let the shell complete commands and flags (bash, zsh, fish).")

GROUPS = {
    "data": (
        "List, download, check and view data sets.",
        {
            "list": ("acr.commands.data:list_datasets", "List the data sets, or describe one of them."),
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
    _group = App(name=_name, help=_help, help_format="plaintext", help_epilogue=epilogue(_name))
    for _command, (_path, _text) in _commands.items():
        _group.command(_path, name=_command, help=_text, help_epilogue=epilogue(f"{_name} {_command}"))
    app.command(_group)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. Exit codes: 0 done, 1 failed, 2 bad input, 130/143 interrupted."""
    set_up_libraries()
    accept_any_terminal()
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    with warnings.catch_warnings(), end_on_sigterm():
        if not debug:
            warnings.formatwarning = plain_warning
            warnings_are_words()
        try:
            app(words, exit_on_error=False, print_error=False, result_action="return_value")
        except KeyboardInterrupt:
            complain("Interrupted.", 130)
        except BrokenPipeError:  # whatever read our output has closed it, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(0) from None
        except Exception as error:
            if debug:
                raise
            complain(*explanation(error))
        finally:
            warnings.formatwarning = FORMAT_WARNING


def explanation(error: Exception) -> tuple[str, int]:
    """What to say of an error, and the exit code."""
    if isinstance(error, CycloptsError):
        return shortened_words(in_words(error)), 2
    known = error if isinstance(error, AcrError) else in_the_way(error)
    if known is not None:
        return str(known), known.exit_code
    return f"Unexpected {type(error).__name__}: {error}\nThis is a bug in acr; add --debug to see where.", 1


def shortened_words(text: str) -> str:
    """A message with words of at most a hundred characters: a mistyped value may be a whole file."""
    return re.sub(r"\S{101,}", lambda match: match[0][:99] + "…", text)


def warnings_are_words() -> None:
    """Let no warning end a command, also with ``PYTHONWARNINGS=error``; --debug leaves the user's filters in place."""
    filters: Any = warnings.filters
    filters[:] = [one for one in filters if one[0] != "error"]
    os.environ.pop("PYTHONWARNINGS", None)  # for the processes that this one starts


def plain_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning as one sentence, without its location in the source code."""
    return f"acr: warning: {printable(str(message))}\n"


FORMAT_WARNING = warnings.formatwarning
"""Python's own way to show a warning."""


if __name__ == "__main__":
    main()
