"""What is printed: one console and one ``say``, so that names from outside cannot give orders to the terminal.

A run folder, a recipe or a class may be called anything, including what a terminal takes for a command (clear the
screen, change the title, write to the clipboard). Everything that commands print goes through here and is escaped.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable
from typing import Any

import rich.console
from rich.segment import Segment

from acr.errors import printable

PLAIN = {"–": "-", "−": "-", "…": "...", "±": "+-", "×": "x", "·": "-", "→": "->", "’": "'", "“": '"', "”": '"'}
"""What stands for our own characters where the terminal has ASCII only."""


class Console(rich.console.Console):
    """A console of rich whose text is printable, whatever it is made of. Its own colours and bars are as usual."""

    def render(self, renderable: Any, options: rich.console.ConsoleOptions | None = None) -> Iterable[Segment]:
        """The pieces of what is shown; those that are text are escaped."""
        for piece in super().render(renderable, options):
            yield piece if piece.control or piece.text == "\n" else piece._replace(text=printable(piece.text))


def say(text: str = "", *, error: bool = False) -> None:
    """Print text at once, on standard output or standard error."""
    print(printable(text), file=sys.stderr if error else sys.stdout, flush=True)


def replace_unknown(problem: UnicodeError) -> tuple[str, int]:
    """An error handler for output: characters that the terminal does not have become plain ones, or are escaped."""
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    found = problem.object[problem.start : problem.end]
    return "".join(PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in found), problem.end


def accept_any_terminal() -> None:
    """Let standard output and error print any text, also where the terminal or the pipe has ASCII only."""
    codecs.register_error("acr", replace_unknown)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # a test or a notebook may have put something else there
        if reconfigure is not None:
            reconfigure(errors="acr")
