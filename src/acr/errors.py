"""Errors that a person can act on: what was wrong, where, and what to do next."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, NoReturn

LONGEST = 100
"""Characters of a value that a message quotes."""


class AcrError(Exception):
    """A run that failed for a reason we can name. The command line prints it and exits with 1."""

    exit_code = 1


class InputError(AcrError, ValueError):
    """Something the user gave is wrong. The command line prints it and exits with 2."""

    exit_code = 2


def unknown(what: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that does not exist; it suggests the nearest one that does.

    ``what`` is the kind of thing that was named, ``known`` are the names that exist.

    >>> str(unknown("method", "gme", ["gem", "er"]))
    "There is no method 'gme'. Did you mean 'gem'? Known: er, gem."
    """
    names = sorted(known)
    near = get_close_matches(name[:LONGEST], names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return InputError(f"There is no {what} {shown(name)}.{hint} Known: {', '.join(names)}.")


def shown(value: Any, longest: int = LONGEST) -> str:
    r"""A value that somebody gave, as it is quoted in a message: cut if it is long, control characters escaped.

    >>> print(shown(1.5), shown("x" * 500, 12), shown("a\x1b[31m"))
    1.5 'xxxxxxxxxx… 'a\x1b[31m'
    """
    if isinstance(value, (str, bytes)):
        value = value[: longest + 1]  # before it is copied
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # numbers of thousands of digits have no text
        return "a value that is too large to show"
    return printable(text if len(text) <= longest else text[: longest - 1] + "…")


def printable(text: str) -> str:
    r"""Text without characters that a terminal would act on, or cannot show: each is escaped, as in Python.

    Names of files, classes and runs come from outside. Lines and tabs are left as they are.

    >>> print(printable("a\x1b]0;title\x07 – \udcff"))
    a\x1b]0;title\x07 – \udcff
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def command(*words: object) -> str:
    """A command to copy into a shell: every word is quoted if it needs to be.

    >>> command("acr", "resume", "my runs/one")
    "acr resume 'my runs/one'"
    """
    return shlex.join(map(str, words))


OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory",
                 "defaultcpuallocator", "storage size calculation overflowed", "invalid buffer size")  # fmt: skip
"""What PyTorch and its back ends say, in lower case, when memory cannot be had; they raise a plain RuntimeError."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the machine, or a device, has not enough memory."""
    said = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in said for words in OUT_OF_MEMORY)
    )


def in_the_way(error: Exception) -> AcrError | None:
    """An error of the machine rather than of this program, as one for people; None if it is neither.

    Full disks, folders that cannot be written, memory that cannot be had: whatever code they surface in, they are not
    a fault of it.
    """
    if is_out_of_memory(error):
        return AcrError("Out of memory. Try a smaller --width, --batch-size or --buffer-size.")
    if isinstance(error, OSError) and error.strerror:
        where = f" {error.filename}" if error.filename else ""
        return AcrError(
            f"The system refused to read or write{where}: {error.strerror}. If this is about the cache or temporary "
            "files, choose other folders with --data-cache (or ACR_CACHE) and TMPDIR."
        )
    return None


def complain(message: str, code: int) -> NoReturn:
    """Print a message on standard error and exit with this code."""
    print(f"acr: {printable(message)}", file=sys.stderr)
    raise SystemExit(code)
