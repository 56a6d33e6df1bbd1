"""The embedded data set: scikit-learn's handwritten digits, 1,797 real scans of 8x8 pixels.

Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, 1998. The split is fixed, so that every run on every
machine has the same: 144 images per class for training, the other 30 to 39, spread evenly over the file, for testing.
144 images per class make 9 full batches of 32 in a task of two classes. A last batch of two or three images would give
batch normalisation only two or three values per channel (the last feature map of these images is 1x1), which ruins its
running averages.
"""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from acr.data.catalog import Request
from acr.data.images import DataSet, ImageSet
from acr.errors import InputError

TRAIN_PER_CLASS = 144


def load(request: Request) -> DataSet:
    """The digits as uint8 1 x 8 x 8 images."""
    if request.options.image_size not in (None, 8):
        raise InputError(
            f"split-digits has 8x8 images; --image-size {request.options.image_size} does not apply to it."
        )
    pixels, labels = pixels_and_labels()
    images = np.round(pixels * (255 / 16)).astype(np.uint8)[:, None]
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        held_out = len(rows) - TRAIN_PER_CLASS
        is_test[rows[np.arange(held_out) * len(rows) // held_out]] = True
    train = ImageSet(images[~is_test], labels[~is_test])
    test = ImageSet(images[is_test], labels[is_test])
    mean, std = train.statistics()
    computed = f"computed from {len(train)} training images"
    notes = {"location": "sklearn.datasets.load_digits", "layout": "embedded", "normalisation": computed}
    return DataSet("split-digits", train, test, mean, std, notes)


def pixels_and_labels() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Pixels between 0 and 16, N x 8 x 8, and labels, as ``sklearn.datasets.load_digits`` returns them.

    Its file is read directly, because importing scikit-learn would cost every run a second.
    """
    package = find_spec("sklearn")
    for folder in (package.submodule_search_locations or []) if package else []:
        file = Path(folder, "datasets", "data", "digits.csv.gz")
        if file.exists():
            with gzip.open(file, "rt") as lines:
                table = np.loadtxt(lines, delimiter=",")
            return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    digits = load_digits()
    return digits.images, digits.target.astype(np.int64)
