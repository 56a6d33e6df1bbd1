"""A small stream to try methods on."""

from __future__ import annotations

import numpy as np

from acr.data.images import DataSet, ImageSet


def toy_data(
    classes: int = 4, train: int = 24, test: int = 6, channels: int = 3, side: int = 8, seed: int = 0
) -> DataSet:
    """Small images that a small network learns in seconds: every class has a bright spot at its own place.

    ``train`` and ``test`` are numbers of images per class, ``side`` is the side of the images in pixels.

    >>> toy_data(classes=3, train=5).train.counts()
    {0: 5, 1: 5, 2: 5}
    """
    rng = np.random.default_rng(seed)

    def make(per_class: int) -> ImageSet:
        images = rng.integers(0, 80, (classes * per_class, channels, side, side), dtype=np.uint8)
        labels = np.repeat(np.arange(classes), per_class)
        for image, label in zip(images, labels, strict=True):
            row, column = divmod(int(label) * 3, side)
            image[:, (row * 2) % side : (row * 2) % side + 2, column : column + 2] = 255
        order = rng.permutation(len(labels))
        return ImageSet(images[order], labels[order])

    trained = make(train)
    mean, std = trained.statistics()
    return DataSet("toy", trained, make(test), mean, std)
