"""Errors that a person can act on: what was wrong, where, and what to do next."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NoReturn


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
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return InputError(f"There is no {what} {name!r}.{hint} Known: {', '.join(names)}.")


def complain(message: str, code: int) -> NoReturn:
    """Print a message on standard error and exit with this code."""
    print(f"acr: {message}", file=sys.stderr)
    raise SystemExit(code)
