"""ImageSet: labelled 8-bit images, in memory or memory-mapped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from acr.data.adapters import read_dataset, read_folder
from acr.data.fingerprint import Fingerprint, Part, fingerprint, image_digests
from acr.data.readers.decoding import Images as Images
from acr.data.readers.decoding import to_images
from acr.errors import InputError

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images as uint8 ``N x C x H x W`` (in memory or memory-mapped), their labels, and the names of their classes.

    Labels keep the values that the source gives them: nothing in this package renumbers them.
    ``class_names`` maps a label value to the name a person knows it by.
    """

    images: Images
    labels: Labels
    class_names: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 4:
            found = f"{images.dtype} of shape {images.shape}" if isinstance(images, np.ndarray) else type(images)
            raise InputError(f"ImageSet holds uint8 images, N x C x H x W; got {found}.")
        if images.shape[1] not in (1, 3):
            raise InputError(f"ImageSet holds images with 1 or 3 channels, N x C x H x W; got shape {images.shape}.")
        if labels.shape != (len(images),):
            raise InputError(f"{len(images)} images need {len(images)} labels; got labels of shape {labels.shape}.")
        if not np.issubdtype(labels.dtype, np.integer):
            raise InputError(f"Labels are integers; got {labels.dtype}.")
        object.__setattr__(self, "labels", labels.astype(np.int64, copy=False))
        names = {int(label): self.class_names.get(int(label), str(int(label))) for label in self.classes}
        object.__setattr__(self, "class_names", names)

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        return f"ImageSet({len(self):,} images of {'x'.join(map(str, self.image_shape))}, {len(self.classes)} classes)"

    @property
    def classes(self) -> tuple[int, ...]:
        """The label values present, ascending."""
        return tuple(int(label) for label in np.unique(self.labels))

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def select(self, indices: npt.ArrayLike) -> ImageSet:
        """The images at these positions, in this order (a copy)."""
        index = np.asarray(indices)
        return ImageSet(self.images[index], self.labels[index], self.class_names)

    def of_classes(self, classes: Sequence[int]) -> npt.NDArray[np.int64]:
        """Positions of the images of these classes, ascending."""
        return np.flatnonzero(np.isin(self.labels, np.asarray(classes, dtype=np.int64)))

    def counts(self) -> dict[int, int]:
        """Number of images per class."""
        values, counts = np.unique(self.labels, return_counts=True)
        return {int(v): int(n) for v, n in zip(values, counts, strict=True)}

    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel, on the scale 0..1."""
        if len(self) == 0:
            raise InputError("An empty image set has no mean and standard deviation.")
        levels = np.arange(256) / 255.0  # counting bytes gives exact sums, without a copy of the images as floats
        mean, std = [], []
        for channel in range(self.images.shape[1]):
            counts = np.zeros(256)
            for start in range(0, len(self), 4096):  # in parts: the images may be larger than memory
                counts += np.bincount(self.images[start : start + 4096, channel].ravel(), minlength=256)
            share = counts / counts.sum()
            m = float(share @ levels)
            mean.append(m)
            std.append(float(np.sqrt(share @ (levels - m) ** 2)))
        return tuple(mean), tuple(std)

    @classmethod
    def from_arrays(
        cls, images: Any, labels: Sequence[Any] | npt.ArrayLike, class_names: Mapping[int, str] | None = None
    ) -> ImageSet:
        """From arrays or tensors, uint8 or floats in 0..1.

        Their shape is ``N x H x W``, ``N x H x W x C`` or ``N x C x H x W`` with C = 1 or 3.

        Integer labels keep their values. Other labels, such as text, are numbered in sorted order, and the label as
        text becomes the name of its number.

        >>> ImageSet.from_arrays(np.zeros((2, 8, 8), np.uint8), ["cat", "ant"]).class_names
        {0: 'ant', 1: 'cat'}
        """
        pixels = pixels_of(images, "The array of images")
        names = dict(class_names or {})
        (numbers,) = number_labels([np.asarray(labels)], names)
        return cls(pixels, numbers, names)

    @classmethod
    def from_folder(
        cls, folder: str | Path, image_size: int = 32, *, skip_broken: bool = False, quiet: bool = True
    ) -> ImageSet:
        """From ``folder/<class>/*``: JPEG, PNG, GIF, WebP, BMP, TIFF or PPM, as RGB, cropped to the centre square.

        Classes are numbered in the natural order of their folders' names. Unreadable files are left out if
        ``skip_broken``; otherwise they are an error that lists them.
        """
        return cls(*read_folder(Path(folder), image_size, skip_broken=skip_broken, quiet=quiet))

    @classmethod
    def from_dataset(cls, dataset: Any, image_size: int | None = None, *, quiet: bool = True) -> ImageSet:
        """From any map-style data set: PyTorch's, torchvision's, Hugging Face's, or a list.

        Items are pairs (image, label), or dicts with ``image`` or ``img`` and ``label``, ``labels`` or
        ``fine_label``. An image is a PIL image, an array or a tensor (uint8, or floats in 0..1). Images of unequal
        sizes need an ``image_size``. Grey images stay grey if all of them are.
        """
        return cls.from_arrays(*read_dataset(dataset, image_size, quiet=quiet))


@dataclass(frozen=True, eq=False)
class DataSet:
    """What a source provides: a training set, a test set, and what is known about them."""

    name: str
    train: ImageSet
    test: ImageSet
    mean: tuple[float, ...]
    std: tuple[float, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What a run records about the origin of the data: files, versions, which images were held out."""
    source: Fingerprint | None = None
    """Fingerprint of the images that this set was chosen from; None: they are all here."""

    def __post_init__(self) -> None:
        if self.train.image_shape != self.test.image_shape:
            raise InputError(
                f"{self.name}: training images are {self.train.image_shape}, test images {self.test.image_shape}."
            )

    def __repr__(self) -> str:
        sizes = f"{len(self.train):,} training and {len(self.test):,} test images"
        shape = "x".join(map(str, self.train.image_shape))
        return f"DataSet({self.name!r}: {sizes} of {shape}, {len(self.train.classes)} classes)"

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """What the data set is made of: equal for equal images, labels and class names, wherever they are stored."""
        if self.source is not None:
            return self.source
        parts = {"train": self.train, "test": self.test}
        return fingerprint(
            {split: Part(image_digests(images.images), images.labels) for split, images in parts.items()},
            {**self.test.class_names, **self.train.class_names},
        )


def pixels_of(images: Any, where: str) -> Images:
    """An array or tensor of images as uint8 ``N x C x H x W``; see :meth:`ImageSet.from_arrays`."""
    return to_images(np.asarray(on_host(images)), where)


def label_column(labels: Any, where: str) -> npt.NDArray[Any]:
    """Labels as a column of whole numbers or text, for :func:`number_labels`; ``where`` names them in errors.

    >>> label_column([[3], [5]], "The labels")
    array([3, 5])
    """
    try:
        column = np.asarray(on_host(labels))
        column = np.asarray(column.tolist()) if column.dtype.kind == "O" else column
    except ValueError:  # lists of unequal lengths
        raise InputError(f"{where} must be one whole number or text per image.") from None
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1 or column.dtype.kind not in "biuUS":
        raise InputError(
            f"{where} must be one whole number or text per image; got {column.dtype} of shape {column.shape}."
        )
    return column


def on_host(values: Any) -> Any:
    """A tensor, which may carry a gradient or be on another device, as NumPy can read it; anything else as it is."""
    return values.detach().cpu() if hasattr(values, "detach") else values


def number_labels(columns: Sequence[npt.NDArray[Any]], class_names: dict[int, str]) -> list[Labels]:
    """Columns of labels as numbers. Integers keep their values; other labels are numbered in sorted order.

    The labels as text then replace the content of ``class_names``.
    """
    if all(column.dtype.kind in "iu" for column in columns):
        return [column.astype(np.int64) for column in columns]
    values = [[v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in c.tolist()] for c in columns]
    if any(isinstance(value, str) for column in values for value in column):
        values = [[str(value) for value in column] for column in values]
    order = sorted({value for column in values for value in column})
    class_names.clear()
    class_names.update({number: str(value) for number, value in enumerate(order)})
    number_of = {value: number for number, value in enumerate(order)}
    return [np.array([number_of[value] for value in column], dtype=np.int64) for column in values]
