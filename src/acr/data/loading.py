"""From a name to a data set ready for a run: found, decoded, cut down as asked, and all of that written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from acr.data.catalog import Request, find
from acr.data.images import DataSet, ImageSet
from acr.errors import InputError


def load_dataset(
    name: str,
    *,
    data_root: str | Path | None = None,
    data_cache: str | Path | None = None,
    image_size: int | None = None,
    samples_per_class: int | None = None,
    test_samples_per_class: int | None = None,
    validation_fraction: float = 0.0,
    seed: int = 0,
    skip_broken: bool = False,
    quiet: bool = False,
    classes: Sequence[int | str] | None = None,
) -> DataSet:
    """The data set of a name such as ``split-cifar100`` or ``folder:pictures``.

    ``classes`` keeps these only, by label or name. ``validation_fraction`` of each class's training images are held
    out of training and take the place of the test set: for tuning, so that the test images stay unseen.
    ``samples_per_class`` and ``test_samples_per_class`` then keep at most so many images of each class. All choices
    are functions of ``seed`` and are recorded in the data set's notes. What is not cut down stays memory-mapped.
    """
    _check_numbers(image_size, samples_per_class, test_samples_per_class, validation_fraction)
    spec, path = find(name)
    request = Request(
        name=name,
        path=path,
        data_root=Path(data_root) if data_root is not None else None,
        data_cache=Path(data_cache) if data_cache is not None else None,
        image_size=image_size,
        skip_broken=skip_broken,
        quiet=quiet,
        seed=seed,
    )
    loaded = spec.load(request)
    train, test = loaded.train, loaded.test
    notes: dict[str, Any] = dict(loaded.notes)
    if classes is not None:
        labels = chosen_classes(train, classes, name)
        train, test = (part.select(part.of_classes(labels)) for part in (train, test))
        notes["classes"] = [train.class_names[label] for label in labels]
    if validation_fraction:
        train, test = _validation(train, validation_fraction, seed, name)
        notes["validation"] = {"fraction": validation_fraction, "seed": seed, "count": len(test)}
    for split, limit in (("train", samples_per_class), ("test", test_samples_per_class)):
        if limit is not None:
            from acr.data.splits import at_most

            part = train if split == "train" else test
            part = part.select(at_most(part.labels, limit, seed, f"samples-{split}"))
            train, test = (part, test) if split == "train" else (train, part)
            notes[f"{split}_samples_per_class"] = {"at_most": limit, "seed": seed}
    notes["images"] = {"train": len(train), "test": len(test)}
    notes["image_shape"] = list(train.image_shape)
    return replace(loaded, train=train, test=test, notes=notes)


def chosen_classes(images: ImageSet, classes: Sequence[int | str], name: str) -> list[int]:
    """The labels for labels or class names, in the order given."""
    by_name = {text: label for label, text in images.class_names.items()}
    labels = []
    for wanted in classes:
        label = wanted if isinstance(wanted, int) else by_name.get(wanted, int(wanted) if wanted.isdigit() else None)
        if label is None or label not in images.class_names:
            known = ", ".join(list(by_name)[:10]) + (", ..." if len(by_name) > 10 else "")
            raise InputError(f"{name} has no class {wanted!r}. It has {len(by_name)}: {known}.")
        labels.append(label)
    if len(set(labels)) < len(labels):
        raise InputError(f"{name}: a class is named twice in {list(classes)}.")
    return labels


def _validation(train: ImageSet, fraction: float, seed: int, name: str) -> tuple[ImageSet, ImageSet]:
    from acr.data.splits import hold_out

    if alone := [train.class_names[label] for label, count in train.counts().items() if count < 2]:
        raise InputError(f"{name}: a validation split needs two training images a class; one only: {', '.join(alone)}.")
    kept, out = hold_out(train.labels, fraction, seed, "validation")
    return train.select(kept), train.select(out)


def _check_numbers(size: int | None, samples: int | None, test_samples: int | None, fraction: float) -> None:
    if size is not None and not 4 <= size <= 1024:
        raise InputError(f"An image size of {size} makes no sense: 4 to 1024 pixels.")
    for flag, value in (("--samples-per-class", samples), ("--test-samples-per-class", test_samples)):
        if value is not None and value < 1:
            raise InputError(f"{flag} is {value}; at least 1 image of each class is needed.")
    if not 0 <= fraction < 1:
        raise InputError(f"--validation-fraction is {fraction}; it is a share of the training images, 0 to below 1.")
