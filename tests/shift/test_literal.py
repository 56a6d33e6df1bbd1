"""The fast corruptions against slow, literal ones that take the same draws."""

from __future__ import annotations

import numpy as np
import pytest
import shift_literal as literal

from acr.shift import CONSTANTS, SEVERITIES, corrupt_float
from acr.shift.blur import disk
from acr.shift.frost import PANES, pane
from acr.shift.setting import Setting
from acr.shift.severities import FROST_SCALE, constants_for

EVERY = [(table, severity) for table in CONSTANTS for severity in SEVERITIES]


def stream(name: str, severity: int, index: int, seed: int = 3) -> np.random.Generator:
    return next(Setting(name, severity, "", (), seed, [index]).streams())


def both(images: np.ndarray, name: str, table: str, severity: int, slow, **more) -> tuple[np.ndarray, np.ndarray]:
    """Images of this name, fast and slow."""
    indices = [7 * n for n in range(len(images))]
    fast = corrupt_float(images, name, severity, table, seed=3, indices=indices)
    values = constants_for(name, severity, table)
    literal_ones = [
        slow(image.transpose(1, 2, 0) / 255, values, stream(name, severity, index), **more).transpose(2, 0, 1)
        for image, index in zip(images, indices, strict=True)
    ]
    return fast, np.stack(literal_ones)


@pytest.mark.parametrize(("table", "severity"), EVERY)
@pytest.mark.parametrize("name", ["zoom_blur", "motion_blur", "snow", "elastic_transform"])
def test_equals_literal(photographs: np.ndarray, name: str, table: str, severity: int) -> None:
    for images in (photographs[:3], photographs[5:7, :1], photographs[7:9, :, :8, :8]):
        fast, slow = both(images, name, table, severity, getattr(literal, name))
        # Snow cuts its layer to bytes: a rounding in the last place of a float may cut one way or the other.
        np.testing.assert_allclose(fast, slow, atol=1.1 / 255 if name == "snow" else 0.1 / 255)
        assert np.mean(np.abs(fast - slow)) < 0.02 / 255


@pytest.mark.parametrize(("table", "severity"), EVERY)
def test_glass_blur(photographs: np.ndarray, table: str, severity: int) -> None:
    fast, slow = both(photographs[:2], "glass_blur", table, severity, literal.glass_blur)
    np.testing.assert_allclose(fast, slow, atol=0.01 / 255)


@pytest.mark.parametrize(
    ("table", "severity"), [("imagenet-c", 1), ("imagenet-c", 5), *(("cifar-c", s) for s in SEVERITIES)]
)
def test_fog(photographs: np.ndarray, table: str, severity: int) -> None:
    for images, side in ((photographs[:2], 32), (photographs[2:4, :1, :9, :7], 16)):
        side = 256 if table == "imagenet-c" else side
        fast, slow = both(images, "fog", table, severity, literal.fog, side=side)
        np.testing.assert_allclose(fast, slow, atol=0.02 / 255)


@pytest.mark.parametrize(("table", "severity"), EVERY)
def test_frost(photographs: np.ndarray, table: str, severity: int) -> None:
    panes = [pane(3, number, FROST_SCALE[table], 36).transpose(1, 2, 0) / 255 for number in range(PANES)]
    for images in (photographs[:4], photographs[4:6, :1]):
        fast, slow = both(images, "frost", table, severity, literal.frost, panes=panes)
        np.testing.assert_allclose(fast, slow, atol=0.01 / 255)


@pytest.mark.parametrize(("table", "severity"), EVERY)
def test_defocus_of_images_smaller_than_the_disk(photographs: np.ndarray, table: str, severity: int) -> None:
    kernel = disk(*constants_for("defocus_blur", severity, table))
    for images in (photographs[:2, :, :8, :8], photographs[:2, :1, :5, :6]):
        fast = corrupt_float(images, "defocus_blur", severity, table)
        slow = np.stack([literal.defocus_blur(image.transpose(1, 2, 0) / 255, kernel) for image in images])
        np.testing.assert_allclose(fast, slow.transpose(0, 3, 1, 2), atol=0.01 / 255)


def test_frost_looks_like_frost() -> None:
    """Pale, with open glass and bright crystals, a little blue, and not twice the same."""
    first, second = pane(0, 0, 1.0, 40), pane(0, 1, 1.0, 40)
    assert first.shape[0] == 3
    assert not np.array_equal(first, second)
    assert 100 < first.mean() < 170
    assert np.quantile(first, 0.05) < 80
    assert np.quantile(first, 0.99) > 190
    assert first[2].mean() > first[0].mean()
    np.testing.assert_array_equal(first, pane.__wrapped__(0, 0, 1.0, 40))
