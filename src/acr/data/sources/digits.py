"""The embedded data set: scikit-learn's handwritten digits, 1,797 real scans of 8x8 pixels.

Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, 1998. One image in five of every class is the test
set, chosen once and for all, so that every run on every machine has the same split.
"""

from __future__ import annotations

import numpy as np

from acr.data.catalog import Request
from acr.data.images import DataSet, ImageSet
from acr.errors import InputError

TEST_SHARE = 5
"""Every fifth image of a class, in the order of the file, is a test image."""


def load(request: Request) -> DataSet:
    """The digits as uint8 1 x 8 x 8 images."""
    from sklearn.datasets import load_digits

    if request.image_size not in (None, 8):
        raise InputError(f"split-digits has 8x8 images; --image-size {request.image_size} does not apply to it.")
    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = digits.target.astype(np.int64)
    rank = np.zeros(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rank[labels == label] = np.arange((labels == label).sum())
    is_test = rank % TEST_SHARE == TEST_SHARE - 1
    train = ImageSet(images[~is_test], labels[~is_test])
    test = ImageSet(images[is_test], labels[is_test])
    mean, std = train.statistics()
    computed = f"computed from {len(train)} training images"
    notes = {"location": "sklearn.datasets.load_digits", "layout": "embedded", "normalisation": computed}
    return DataSet("split-digits", train, test, mean, std, notes)
