"""Reading images from Python: from a folder, or from a data set object of another library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from acr.data.readers.decoding import (
    Images,
    decode_files,
    fit,
    image_files,
    left_out,
    list_broken,
    resize,
    to_array,
    to_images,
    to_rgb,
)
from acr.data.readers.file_tree import by_class, natural, open_tree
from acr.errors import InputError
from acr.storage.cache import Writer
from acr.storage.progress import progress

Labelled = tuple[Images, Any, dict[int, str]]
"""Images, their labels, and the names of the classes."""

IMAGE_KEYS = ("image", "img")
LABEL_KEYS = ("label", "labels", "fine_label")


def read_folder(folder: Path, size: int, *, skip_broken: bool, quiet: bool) -> Labelled:
    """The images of ``folder/<class>/*``, ``size`` pixels wide and high, for :meth:`acr.ImageSet.from_folder`.

    Unreadable files are left out if ``skip_broken``; otherwise they are an error that lists them.
    """
    tree = open_tree(folder.expanduser())
    try:
        rows = by_class(image_files(tree.names), "")
        if not rows:
            raise InputError(f"{folder} holds no images in class folders ({folder}/<class>/*).")
        if (unread := left_out(tree, "")) and not skip_broken:
            listed = list_broken(unread)
            raise InputError(f"{folder}: something would be left out:{listed}\nLeave it out with skip_broken=True.")
        classes = sorted({label for label, _ in rows}, key=natural)
        number = {label: i for i, label in enumerate(classes)}
        labels = np.array([number[label] for label, _ in rows], dtype=np.int64)
        with TemporaryDirectory() as scratch:
            writer = Writer(Path(scratch))
            writer.create("images", (len(rows), 3, size, size), np.uint8)
            broken = decode_files(tree, [name for _, name in rows], writer.path("images"), size, quiet=quiet)
            images = np.load(writer.path("images"), allow_pickle=False)
    finally:
        tree.close()
    if broken and not skip_broken:
        listed = list_broken([(rows[row][1], reason) for row, reason in sorted(broken.items())])
        raise InputError(f"{folder}: {len(broken)} unreadable files:{listed}\nLeave them out with skip_broken=True.")
    good = np.array([row for row in range(len(rows)) if row not in broken], dtype=np.int64)
    if broken:
        images, labels = images[good], labels[good]
    return images, labels, dict(enumerate(classes))


def read_dataset(dataset: Any, size: int | None, *, quiet: bool) -> Labelled:
    """The images of a map-style data set, resized to ``size`` if given, for :meth:`acr.ImageSet.from_dataset`."""
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise InputError("from_dataset takes a map-style data set: one that has a length and is indexed by number.")
    images: list[Images] = []
    labels: list[Any] = []
    label_key = ""
    with progress("Reading images", len(dataset), quiet=quiet) as advance:
        for position in range(len(dataset)):
            image, label, label_key = _image_and_label(dataset[position], position)
            images.append(pixels_of(image, size, position))
            labels.append(label.item() if hasattr(label, "item") else label)
            advance(1)
    if not images:
        raise InputError("from_dataset was given an empty data set.")
    shapes = {image.shape[1:] for image in images}
    if len(shapes) > 1:
        raise InputError(f"The images have {len(shapes)} sizes, such as {sorted(shapes)[:2]}; give an image_size.")
    if len({len(image) for image in images}) > 1:  # grey images among colour ones become RGB
        images = [np.repeat(image, 3, axis=0) if len(image) == 1 else image for image in images]
    return np.stack(images), labels, _class_names(dataset, label_key)


def _image_and_label(item: Any, position: int) -> tuple[Any, Any, str]:
    """The image and the label of an item, and the key of the label if the item is a mapping."""
    if isinstance(item, Mapping):
        image_key = next((key for key in IMAGE_KEYS if key in item), None)
        label_key = next((key for key in LABEL_KEYS if key in item), None)
        if image_key is None or label_key is None:
            raise InputError(
                f"Item {position} has the keys {', '.join(map(str, item))}; it needs one of {', '.join(IMAGE_KEYS)} "
                f"and one of {', '.join(LABEL_KEYS)}."
            )
        return item[image_key], item[label_key], label_key
    if isinstance(item, (tuple, list)) and len(item) >= 2:
        return item[0], item[1], ""
    raise InputError(f"Item {position} is a {type(item).__name__}, not a pair (image, label) or a dict.")


def pixels_of(image: Any, size: int | None, position: int) -> Images:
    """The image as uint8 ``C x H x W``, resized to ``size`` if given; ``position`` names it in errors."""
    if isinstance(image, Image.Image):
        grey = image.mode in ("1", "L", "I", "F") or image.mode.startswith("I;16")
        picture = to_rgb(image)
        pixels = to_array(fit(picture, size) if size else picture)
        return pixels[:1] if grey else pixels
    pixels = to_images(np.asarray(image)[None], f"Image {position}")
    return resize(pixels, size)[0] if size else pixels[0]


def _class_names(dataset: Any, label_key: str) -> dict[int, str]:
    """Class names as torchvision (``classes``) or Hugging Face (``features[...].names``) provide them."""
    names = getattr(dataset, "classes", None)
    features = getattr(dataset, "features", None)
    if names is None and label_key and isinstance(features, Mapping):
        names = getattr(features.get(label_key), "names", None)
    return {i: str(name) for i, name in enumerate(names)} if isinstance(names, (list, tuple)) else {}
