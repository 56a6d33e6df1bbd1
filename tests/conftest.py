"""What all tests share: a small stream that a small network learns in seconds."""

import numpy as np
import pytest
import torch

from acr.data.images import DataSet, ImageSet


@pytest.fixture(autouse=True)
def _one_thread():
    """Tests run side by side; more threads each would only get into each other's way."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_data_from_outside(monkeypatch, tmp_path_factory):
    monkeypatch.delenv("ACR_DATA", raising=False)
    monkeypatch.setenv("ACR_CACHE", str(tmp_path_factory.getbasetemp() / "acr-cache"))


def blobs(classes=4, train=24, test=6, channels=3, side=8, seed=0):
    """Images whose brightness pattern tells the class: a bright spot at a place of its own, in noise."""
    rng = np.random.default_rng(seed)

    def make(per_class):
        images = rng.integers(0, 80, (classes * per_class, channels, side, side), dtype=np.uint8)
        labels = np.repeat(np.arange(classes), per_class)
        for image, label in zip(images, labels, strict=True):
            y, x = divmod(int(label) * 3, side)
            image[:, (y * 2) % side : (y * 2) % side + 2, x : x + 2] = 255
        order = rng.permutation(len(labels))
        return ImageSet(images[order], labels[order])

    data = make(train)
    mean, std = data.statistics()
    return DataSet("blobs", data, make(test), mean, std)


@pytest.fixture
def blob_data():
    return blobs()
