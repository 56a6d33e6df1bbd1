"""The command line. Commands are imported when they are called, so that ``acr --help`` answers at once."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from acr._version import __version__
from acr.errors import AcrError

COMMANDS = {
    "demo": ("acr.commands.demo:demo", "See it work: fine-tuning, ER and ACR on handwritten digits, with a page."),
    "run": ("acr.commands.run:run", "Learn a data set task by task with a method, and evaluate after each task."),
    "resume": ("acr.commands.run:resume", "Finish a run that was interrupted."),
    "methods": ("acr.commands.info:methods", "List the methods."),
    "doctor": ("acr.commands.info:doctor", "Show versions, devices, threads and disk, and what is missing."),
}

app = App(
    name="acr",
    version=__version__,
    help="Adaptive Contrastive Replay: learn new classes without forgetting the old ones, measured under shift.",
    help_format="plaintext",
)
for _name, (_path, _help) in COMMANDS.items():
    app.command(_path, name=_name, help=_help)

data = App(name="data", help="Look at, check and fetch data sets.", help_format="plaintext")
data.command("acr.commands.data:list_datasets", name="list", help="List the data sets and where they were found.")
app.command(data)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. Exit codes: 0 done, 1 failed, 2 bad input, 130/143 interrupted."""
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
    except BrokenPipeError:  # the reader of our output left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except MemoryError:
        complain("Out of memory. Try a smaller --width, --batch-size or --buffer-size.", 1)
    except Exception as error:
        if debug:
            raise
        complain(f"Unexpected {type(error).__name__}: {error}\nThis is a fault of acr; --debug shows where.", 1)
    finally:
        warnings.formatwarning = format_before


def plain_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning as a sentence, without the place in the program that it came from."""
    return f"acr: warning: {message}\n"


def complain(message: str, code: int) -> None:
    """Say what was wrong and leave."""
    print(f"acr: {message}", file=sys.stderr)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
