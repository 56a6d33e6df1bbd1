"""Digits as a person's images: 8 x 8 grey pictures that arrive in visits."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from acr import ContinualClassifier

SMALL = {"width": 2, "epochs": 2, "image_size": 8, "buffer_size": 20, "flip": False, "threads": 1, "verbose": False}


@pytest.fixture(scope="session")
def digits():
    """Images by digit: uint8, n x 8 x 8, the first 24 of each."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels.reshape(-1, 8, 8) * 15).astype(np.uint8)
    return {digit: images[labels == digit][:24] for digit in range(10)}


@pytest.fixture
def visit(digits):
    """A function that gives the images and labels of some digits, each labelled by its name."""

    def make(*wanted, part=slice(None), name=str):
        images = np.concatenate([digits[digit][part] for digit in wanted])
        return images, [name(digit) for digit in wanted for _ in digits[digit][part]]

    return make


@pytest.fixture
def small():
    """A function that makes a classifier which learns in a moment; keywords change its parameters."""
    return lambda **changes: ContinualClassifier(**{**SMALL, **changes})
