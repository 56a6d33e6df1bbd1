"""Flags that several commands take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from acr.values import whole_number


def whole(kind: Any, tokens: Sequence[Any]) -> int:
    """The value of a flag that takes a whole number; 1.5 is an error, not 2."""
    try:
        return int(whole_number(tokens[0].value))
    except ValueError as error:
        raise ValueError(f"expected {error}") from None


def whole_numbers(kind: Any, tokens: Sequence[Any]) -> list[int]:
    """The values of a flag that takes several whole numbers."""
    return [whole(int, [token]) for token in tokens]


Dataset = Annotated[str, Parameter(help="Name of the data set; `acr data list` lists all of them.")]
DataRoot = Annotated[
    Path | None, Parameter(help="Folder that holds data sets; searched before ACR_DATA and the cache.")
]
DataCache = Annotated[Path | None, Parameter(help="Folder for decoded images.")]
Quiet = Annotated[bool, Parameter(help="Show no progress.", negative=())]
Sheet = Annotated[Path, Parameter(name=["--output", "-o"], help="Image file to write.")]
EngineName = Annotated[Literal["local", "ray"], Parameter(help="local: processes on this machine; ray: many machines.")]
Jobs = Annotated[
    int | None, Parameter(converter=whole, help="Runs at a time; by default one per GPU, or one per core.")
]
Retries = Annotated[int, Parameter(converter=whole, help="How often to retry a failed run, from its last checkpoint.")]
Address = Annotated[str | None, Parameter(help="Address of a Ray cluster, for --engine ray.")]
DryRun = Annotated[
    bool, Parameter(help="Run nothing; only estimate the number of runs, time and disk space.", negative=())
]
Model = Annotated[Path, Parameter(help="Folder of a classifier that acr learn has made, or of a finished run.")]
SkipBroken = Annotated[bool, Parameter(help="Leave out files that cannot be read.", negative=(), show_default=False)]
