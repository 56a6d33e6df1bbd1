"""From a name to a data set that is ready for a run: found, decoded, reduced as requested, with a record of it all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from acr.config import DataConfig, validated
from acr.data.catalog import Request, find, locate
from acr.data.images import DataSet, ImageSet
from acr.data.readers.fetch import Download, disk_error, download_and_unpack
from acr.data.splits import at_most, hold_out
from acr.errors import AcrError, InputError
from acr.storage.location import search_folders
from acr.storage.locks import exclusive


def load_dataset(name: str, options: DataConfig | None = None, **fields: Any) -> DataSet:
    """The data set of a name such as ``split-cifar100`` or ``folder:pictures``.

    Args:
        name: as on the command line.
        options: which images, and where to find them; its ``fields`` can be given by name instead.

    ``validation_fraction`` of each class's training images are held out of training and take the place of the test
    set: for tuning, so that the test images stay unseen. ``samples_per_class`` and ``test_samples_per_class`` then keep
    at most that many images per class. All choices depend on ``data_seed`` alone and are recorded in the data set's
    notes. Parts that are not reduced stay memory-mapped.
    """
    options = options or validated(DataConfig, fields)
    fraction, seed = options.validation_fraction, options.data_seed
    spec, path = find(name)
    request = Request(name, path, options)
    loaded = spec.load(request)
    train, test = loaded.train, loaded.test
    notes: dict[str, Any] = dict(loaded.notes)
    if fraction:
        train, test = _validation(train, fraction, seed, name)
        notes["validation"] = {"fraction": fraction, "seed": seed, "count": len(test)}
    for split, limit in (("train", options.samples_per_class), ("test", options.test_samples_per_class)):
        if limit is not None:
            part = train if split == "train" else test
            part = part.select(at_most(part.labels, limit, seed, f"samples-{split}"))
            train, test = (part, test) if split == "train" else (train, part)
            notes[f"{split}_samples_per_class"] = {"at_most": limit, "seed": seed}
    notes["images"] = {"train": len(train), "test": len(test)}
    notes["image_shape"] = list(train.image_shape)
    return replace(loaded, train=train, test=test, notes=notes, source=loaded.fingerprint)


def _validation(train: ImageSet, fraction: float, seed: int, name: str) -> tuple[ImageSet, ImageSet]:
    if alone := [train.class_names[label] for label, count in train.counts().items() if count < 2]:
        raise InputError(
            f"{name}: a validation split needs two training images per class; these have one: {', '.join(alone)}."
        )
    kept, out = hold_out(train.labels, fraction, seed, "validation")
    return train.select(kept), train.select(out)


def fetch(
    name: str,
    root: str | Path | None = None,
    *,
    data_cache: str | Path | None = None,
    download: Download | None = None,
    **how: Any,
) -> Path:
    """Download a data set and unpack it below ``root``; returns its location. One that is already there is left alone.

    ``root`` is by default the folder that is searched first: ``ACR_DATA``, else the cache. ``download`` names
    another address of the same files (a mirror). ``how`` is passed on to
    :func:`acr.data.readers.fetch.download_and_unpack`.
    """
    spec, path = find(name)
    if path is not None:
        raise InputError(f"{name} is your own data: there is nothing to fetch.")
    source = download or spec.download
    if source is None:
        raise InputError(spec.how_to_get or f"{name} comes with the program: there is nothing to fetch.")
    folder = search_folders(*(Path(place) if place is not None else None for place in (root, data_cache)))[0]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder / f".{spec.name}.lock"):
            if (found := locate(spec, folder)) is not None and found.parent == folder:
                return found
            download_and_unpack(source, folder, **how)
    except OSError as error:
        raise disk_error(error, folder) from error
    found = locate(spec, folder)
    if found is None:
        raise AcrError(f"{source.url} was unpacked in {folder}, but holds none of {', '.join(spec.places)}.")
    return found
