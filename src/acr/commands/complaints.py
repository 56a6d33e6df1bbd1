"""What was wrong with a command line, in sentences instead of the parser's own words."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args, get_origin

from cyclopts import CoercionError, CycloptsError, MissingArgumentError
from cyclopts.exceptions import UnusedCliTokensError

from acr.errors import shown

QUOTED_FLAG = re.compile(r'"(--?[\w-]+)"')
"""A flag as earlier versions of the parser write it, in quotes."""
EXPECTED: dict[Any, str] = {int: "a whole number", float: "a number", bool: "yes or no"}


def in_words(error: CycloptsError) -> str:
    """The error as one sentence that names the command, the word that was typed, and where to look."""
    command = " ".join(["acr", *(error.command_chain or ())])
    if isinstance(error, UnusedCliTokensError):
        words = " ".join(error.unused_tokens or ())
        return f"{command} does not know what to do with {words!r}. See: {command} --help"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.keyword or error.argument.name
        flag = f"{command} {name} needs a value" if name.startswith("-") else f"{command} needs a {name}"
        meaning = (error.argument.parameter.help or "").partition(" [default: ")[0].rstrip(".")
        return f"{flag}{f': {meaning[:1].lower()}{meaning[1:]}' if meaning else ''}."
    if isinstance(error, CoercionError) and error.token is not None:
        said = str(error.msg or "")
        # What a flag's own converter says is more exact than what its type tells.
        wanted = said.removeprefix("expected ") if said.startswith("expected ") else expected(error.target_type)
        if wanted:
            return f"{error.token.keyword or command} {shown(error.token.value)}: expected {wanted}."
    return QUOTED_FLAG.sub(r"\1", str(error))


def expected(kind: Any) -> str:
    """What a flag of this type takes, in words; empty if there are none."""
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    return EXPECTED.get(kind, "")
