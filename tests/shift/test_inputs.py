"""Kinds of input, wrapped bytes, severities, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from acr.errors import InputError
from acr.shift import (
    CONSTANTS,
    CORRUPTIONS,
    PAPER_CORRUPTIONS,
    SEVERITIES,
    corrupt,
    corrupt_float,
    wrap,
    wrapped_bytes,
)
from acr.shift.severities import TABLES

MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
SMALL = np.zeros((2, 3, 8, 8), np.uint8)


def test_names() -> None:
    assert len(CORRUPTIONS) == 15
    assert CORRUPTIONS[:11] == PAPER_CORRUPTIONS
    for table in TABLES.values():
        assert set(table) == set(CORRUPTIONS)
        assert all(len(row) == len(SEVERITIES) for row in table.values())


def test_names_import_nothing_heavy() -> None:
    code = "import sys, acr.shift; print([m for m in ('torch', 'numpy', 'scipy', 'PIL') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_same_kind_comes_back(photographs: np.ndarray, name: str) -> None:
    images = photographs[:3]
    expected = corrupt(images, name)
    assert isinstance(expected, np.ndarray)
    tensor = corrupt(torch.from_numpy(images), name, indices=torch.arange(3))
    assert tensor.dtype == torch.uint8
    np.testing.assert_array_equal(tensor.numpy(), expected)
    view = np.asfortranarray(images)[:, :, ::1]
    np.testing.assert_array_equal(corrupt(view, name), expected)
    floats = corrupt(images / 255, name)  # floats stay floats
    np.testing.assert_array_equal(floats, corrupt_float(images, name))
    np.testing.assert_array_equal(corrupt_float(torch.from_numpy(images), name).numpy(), floats)


@pytest.mark.parametrize("name", ["pixelate", "jpeg_compression"])
def test_byte_corruptions_give_bytes(photographs: np.ndarray, name: str) -> None:
    levels = corrupt_float(photographs, name) * 255
    np.testing.assert_allclose(levels, np.rint(levels), atol=1e-4)


GROWS = ["gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "motion_blur", "zoom_blur", "fog", "pixelate",
         "jpeg_compression", "brightness", "contrast"]  # fmt: skip


@pytest.mark.parametrize("table", CONSTANTS)
@pytest.mark.parametrize("name", GROWS)
def test_change_grows_with_severity(photographs: np.ndarray, name: str, table: str) -> None:
    """Where the constants say so: elastic, snow, glass and frost trade one constant for another, as does thick fog."""
    severities = (1, 2, 3) if (name, table) == ("fog", "imagenet-c") else SEVERITIES
    change = [np.abs(corrupt_float(photographs, name, s, table) - photographs / 255).mean() for s in severities]
    assert np.all(np.diff(change) > 0), change


RED = [0.11, 0.49, 0.86, 0.23, 0.60, 0.98, 0.35, 0.72, 0.09, 0.46, 0.84]
"""What raw brightness 0, .1, ..., 1 becomes in the red channel of CIFAR-100."""


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_wrap_on_a_ramp(kind) -> None:
    normalised = (np.linspace(0, 1, 11, dtype=np.float32) - np.float32(MEAN[0])) / np.float32(STD[0])
    red = np.asarray(wrap(kind(normalised)))
    assert red.dtype == np.uint8
    np.testing.assert_array_equal(np.round(red / 255, 2), RED)


def test_wrapped_bytes_on_a_ramp() -> None:
    raw = np.rint(np.linspace(0, 1, 11) * 255).astype(np.uint8)
    images = np.broadcast_to(raw, (1, 3, 1, 11)).copy()
    red = wrapped_bytes(images, MEAN, STD)[0, 0, 0] / 255
    np.testing.assert_allclose(red, RED, atol=0.0125)  # a byte cannot hold .1 exactly, and the slope is 1/.2675


def test_wrapped_bytes_of_every_byte_equal_float32_arithmetic() -> None:
    images = np.broadcast_to(np.arange(256, dtype=np.uint8), (1, 3, 1, 256)).copy()
    tensor = torch.from_numpy(images).float().div(255)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, STD))
    expected = tensor.sub(mean).div(std).mul(255).to(torch.int32).remainder(256).to(torch.uint8)
    assert torch.equal(wrapped_bytes(torch.from_numpy(images), MEAN, STD), expected)
    assert np.array_equal(wrapped_bytes(images, MEAN, STD), expected.numpy())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "gausian_noise"}, "no corruption 'gausian_noise'. Did you mean 'gaussian_noise'"),
        ({"severity": 0}, "from 1 to 5, not 0"),
        ({"severity": 6}, "from 1 to 5, not 6"),
        ({"severity": 1.0}, "from 1 to 5, not 1.0"),
        ({"severity": "1"}, "from 1 to 5, not '1'"),
        ({"severity": 1.5}, "from 1 to 5, not 1.5"),
        ({"severity": True}, "from 1 to 5, not True"),
        ({"constants": "cifarc"}, "no table of constants 'cifarc'. Did you mean 'cifar-c'"),
        ({"images": SMALL[:0]}, "no pixels to corrupt: the images are 0x3x8x8"),
        ({"images": SMALL[:, :, :0]}, "no pixels to corrupt"),
        ({"images": SMALL + 1.5}, r"must lie in \[0, 1\], but these lie in \[1.5, 1.5\]"),
        ({"images": SMALL - 0.5}, r"must lie in \[0, 1\]"),
        ({"images": SMALL * np.nan}, r"must lie in \[0, 1\]"),
        ({"images": SMALL.astype(np.int32)}, "uint8, or floats in .*, not int32"),
        (
            {"images": SMALL[0, 0]},
            "N x H x W x C or N x H x W with 1 or 3 channels C, but these are 8x8",
        ),
        ({"images": np.zeros((2, 8, 8, 4), np.uint8)}, "1 or 3 channels C, but these are 2x8x8x4"),
        ({"images": [[1]]}, "numpy array or a torch tensor, not list"),
        ({"indices": [0]}, "one number for each of the 2 images"),
        ({"indices": [[0, 1]]}, "one number for each of the 2 images"),
        ({"indices": [0.5, 1.0]}, "whole numbers from 0"),
        ({"indices": [-1, 0]}, "whole numbers from 0"),
        ({"seed": 0.5}, "whole number, not 0.5"),
    ],
)
@pytest.mark.parametrize("function", [corrupt, corrupt_float])
def test_bad_input(function, arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        function(**({"images": SMALL, "name": "fog"} | arguments))


def test_bad_mean_and_std() -> None:
    with pytest.raises(InputError, match="3 channels, but mean has 1"):
        wrapped_bytes(SMALL, [0.5], [0.5])
    with pytest.raises(InputError, match="above 0"):
        wrapped_bytes(SMALL, MEAN, [0, 1, 1])
