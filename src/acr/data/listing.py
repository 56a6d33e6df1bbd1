"""The list of data sets: where each was found, and its defaults. Reads no images and does not import PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from acr.data.catalog import CATALOG, DataSpec, find, locate


@dataclass(frozen=True)
class Row:
    """One data set."""

    name: str
    title: str
    classes: int | None
    tasks: int | None
    present: bool | None
    """None for the user's own data, which is given by its path."""
    where: Path | None
    """None for a data set that is embedded in the program."""
    epochs: int
    width: int
    learning_rate: float
    buffer_size: int
    shift: str
    """Corruptions, severities and constants of the shifted test sets."""
    next_step: str
    """What to do if it is missing."""


def list_datasets(data_root: str | Path | None = None, data_cache: str | Path | None = None) -> list[Row]:
    """All data sets of the catalog, with where each was found."""
    root = Path(data_root) if data_root is not None else None
    cache = Path(data_cache) if data_cache is not None else None
    return [_row(spec, root, cache) for spec in CATALOG.values()]


def describe(name: str, data_root: str | Path | None = None, data_cache: str | Path | None = None) -> Row:
    """One data set of the catalog."""
    spec = CATALOG[name] if name in CATALOG else find(name)[0]
    return next(row for row in list_datasets(data_root, data_cache) if row.name == spec.name)


def _row(spec: DataSpec, root: Path | None, cache: Path | None) -> Row:
    own = spec.name.endswith(":PATH")
    named = {"data_root": root, "data_cache": cache}
    # A data root that is not a folder is the archive of one data set; it says nothing about the others.
    where = locate(spec, **named) if spec.places and (root is None or root.is_dir()) else None
    present = None if own else bool(where) or not spec.places
    step = ""
    if present is False:
        step = f"acr data fetch {spec.name}" if spec.download else spec.how_to_get
    count = len(spec.ood_corruptions) if spec.ood_corruptions is not None else 11
    severities = ", ".join(map(str, spec.ood_severities))
    return Row(
        name=spec.name,
        title=spec.title,
        classes=spec.classes,
        tasks=spec.tasks,
        present=present,
        where=where,
        epochs=spec.epochs,
        width=spec.width,
        learning_rate=spec.learning_rate,
        buffer_size=spec.buffer_size,
        shift=f"{count} corruptions, severity {severities}, {spec.ood_constants}",
        next_step=step,
    )
