"""The command that makes a run again, from its config alone."""

from __future__ import annotations

import shlex
from functools import cache
from pathlib import Path
from typing import Any

from acr.config import NOT_PART_OF_IDENTITY
from acr.runs.resolve import make_config
from acr.runs.run import Run

ALWAYS = ("method", "dataset", "seed", "buffer_size")
"""Said even where it is the default: what the run is."""


def command(run: Run, out: Path | None = None) -> str:
    """``acr run`` with the flags that give the same identity; where that cannot be told, with the run's own file."""
    where = ["--out", str(out)] if out is not None else []
    words = flags(run)
    if words is None:
        words = ["--config", str(run.folder / "config.yaml")]
    return shlex.join(["acr", "run", *words, *where])


@cache
def installed(method: str) -> bool:
    """Whether a method is known here; looking for one that is not takes a while, so it is done once."""
    from acr.methods.method import method_class

    try:
        method_class(method)
    except ValueError:
        return False
    return True


def flags(run: Run) -> list[str] | None:
    """Flags of a run; None if the method is not installed here or flags cannot say it."""
    if not installed(str(run.values.get("method", "acr"))):
        return None
    try:
        wanted = run.config
        values = wanted.flat()
        given = {name: values[name] for name in ALWAYS}
        if not wanted.buffer_size:
            given.pop("buffer_size")
        default = make_config(given).flat()
        for name in values:
            if name not in NOT_PART_OF_IDENTITY and default.get(name) != values[name]:
                given[name] = values[name]
                default = make_config(given).flat()  # one field may set others
        if make_config(given).identity() != wanted.identity():
            return None
    except ValueError:
        return None
    words: list[str] = []
    for name, value in given.items():
        words += flag(name, value)
    return words


def flag(name: str, value: Any) -> list[str]:
    """One field as it is said on the command line.

    >>> flag("quirk", ["a", "b"]), flag("lr_milestones", [35, 45]), flag("skip_broken", True)
    (['--quirk', 'a', '--quirk', 'b'], ['--lr-milestones', '35,45'], ['--skip-broken'])
    """
    word = "--" + name.replace("_", "-")
    if name in ("quirk", "no_quirk"):
        return [part for item in value for part in (word, str(item))]
    if isinstance(value, bool):
        return [word] if value else []
    if isinstance(value, list | tuple):
        return [word, ",".join(map(str, value))]
    return [] if value is None else [word, str(value)]
