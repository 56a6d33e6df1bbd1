"""The data sets by name: where each comes from, how it is split into tasks, and its measured defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from acr.data.images import DataSet
from acr.errors import InputError, unknown


@dataclass(frozen=True)
class Request:
    """How a source is asked for its images."""

    name: str
    path: Path | None = None
    """The PATH of ``folder:PATH`` and ``npz:PATH``."""
    data_root: Path | None = None
    """Where the user says the files lie; the environment variable ``ACR_DATA`` and the cache come after it."""
    data_cache: Path | None = None
    """Where decoded images are kept; the user's cache folder if not given."""
    image_size: int | None = None
    """Side of the square images wanted; the data set's own if not given."""
    skip_broken: bool = False
    """Leave unreadable files out instead of stopping at them."""
    quiet: bool = False
    """No progress bar."""


@dataclass(frozen=True)
class DataSpec:
    """One entry of the catalog. The training defaults are chosen by measurement; ``docs/data.md`` says how."""

    name: str
    title: str
    source: str
    """``module:function``; the function maps a :class:`Request` to a :class:`DataSet`. Imported only when used."""
    tasks: int | None = None
    """Tasks of equal size by default; None: as many as make two classes a task."""
    image_size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    """Constants of normalisation; None: computed from the training images and recorded."""
    epochs: int = 50
    width: int = 64
    learning_rate: float = 0.1
    buffer_size: int = 500
    flip: bool = True
    """Whether views may mirror an image (not digits: a mirrored 2 is no 2)."""
    ood_corruptions: tuple[str, ...] | None = None
    """None: the paper's eleven."""
    ood_severities: tuple[int, ...] = (1,)
    ood_constants: str = "imagenet-c"

    def run_defaults(self) -> dict[str, Any]:
        """The fields of a run's config that a data set decides."""
        fields = ("tasks", "epochs", "width", "learning_rate", "buffer_size")
        shift = ("ood_corruptions", "ood_severities", "ood_constants")
        return {name: getattr(self, name) for name in (*fields, *shift)}

    def load(self, request: Request) -> DataSet:
        """Read the images."""
        module, function = self.source.split(":")
        load: Callable[[Request], DataSet] = getattr(import_module(module), function)
        return load(request)


CATALOG: dict[str, DataSpec] = {
    spec.name: spec
    for spec in (
        DataSpec(
            name="split-digits",
            title="scikit-learn's 8x8 handwritten digits, embedded: 5 tasks of 2 classes",
            source="acr.data.sources.digits:load",
            tasks=5,
            image_size=8,
            epochs=10,
            width=8,
            learning_rate=0.1,
            buffer_size=50,
            flip=False,
            ood_constants="cifar-c",
        ),
    )
}


def find(name: str) -> tuple[DataSpec, Path | None]:
    """The entry for a name, and the path where the name carries one (``folder:PATH``)."""
    kind, colon, path = name.partition(":")
    if colon and f"{kind}:PATH" in CATALOG:
        if not path:
            raise InputError(f"{name!r} lacks its path: write {kind}:PATH.")
        return CATALOG[f"{kind}:PATH"], Path(path).expanduser()
    if name not in CATALOG or name.endswith(":PATH"):
        raise unknown("data set", name, CATALOG)
    return CATALOG[name], None
