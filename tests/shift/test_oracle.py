"""Against an independent ImageNet-C: pixel by pixel where nothing is drawn, in statistics elsewhere."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from scipy.stats import chisquare, poisson

from acr.shift import SEVERITIES, corrupt, corrupt_float
from acr.shift.blur import disk, trail
from acr.shift.severities import constants_for

oracle = pytest.importorskip("imagecorruptions.corruptions")
cv2 = pytest.importorskip("cv2")


def pictures(images: np.ndarray) -> list[Image.Image]:
    return [Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))) for image in images]


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", ["defocus_blur", "pixelate", "jpeg_compression", "brightness", "contrast"])
def test_equals_oracle(photographs: np.ndarray, name: str, severity: int) -> None:
    images = photographs.copy()
    images[0, :, :9] = 0  # black has no hue
    images[1] = 255
    theirs = np.stack([np.asarray(getattr(oracle, name)(p, severity), np.float64) for p in pictures(images)])
    theirs = theirs.transpose(0, 3, 1, 2) / 255
    assert np.abs(corrupt(images, name, severity) / 255 - theirs).max() <= 1 / 255
    np.testing.assert_allclose(corrupt_float(images, name, severity), theirs, atol=1e-5)


@pytest.mark.parametrize("share", [0.95, 0.9, 0.85, 0.75, 0.65, 0.6, 0.5, 0.4, 0.3, 0.25])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (8, 8), (31, 17), (64, 50)])
def test_pixelate_is_pillows_box(share: float, height: int, width: int) -> None:
    """Both constants tables, sizes that do not divide: byte for byte what Pillow does to each image."""
    from acr.shift.digital import pixelate
    from acr.shift.setting import Setting

    images = np.random.default_rng(0).integers(0, 256, (3, 3, height, width), dtype=np.uint8)
    ours = pixelate(images, Setting("pixelate", 1, "", (share,), 0, range(3)))
    for image, result in zip(pictures(images), np.rint(ours * 255), strict=True):
        small = image.resize((int(width * share), int(height * share)), Image.Resampling.BOX)
        large = np.asarray(small.resize((width, height), Image.Resampling.BOX))
        np.testing.assert_array_equal(result, large.transpose(2, 0, 1))


@pytest.mark.parametrize(("channels", "height", "width"), [(1, 8, 8), (1, 50, 33), (3, 17, 90), (3, 224, 224)])
def test_jpeg_is_pillows(channels: int, height: int, width: int) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, channels, height, width), dtype=np.uint8)
    for image, result in zip(images, corrupt(images, "jpeg_compression", 2), strict=True):
        file = BytesIO()
        Image.fromarray(image.transpose(1, 2, 0).squeeze()).save(file, "JPEG", quality=18)
        opened = np.asarray(Image.open(file)).reshape(height, width, channels)
        np.testing.assert_array_equal(result, opened.transpose(2, 0, 1))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_defocus_with_small_constants(photographs: np.ndarray, severity: int) -> None:
    radius, alias = constants_for("defocus_blur", severity, "cifar-c")
    kernel = oracle.disk(radius, alias)
    np.testing.assert_allclose(disk(radius, alias), kernel, atol=1e-6)
    theirs = [[cv2.filter2D(channel / 255, -1, kernel) for channel in image] for image in photographs]
    ours = corrupt_float(photographs, "defocus_blur", severity, "cifar-c")
    np.testing.assert_allclose(ours, np.clip(theirs, 0, 1), atol=1e-4)


def flat(count: int, level: int) -> np.ndarray:
    return np.full((count, 3, 32, 32), level, np.uint8)


def spectrum(noise: np.ndarray) -> np.ndarray:
    """Mean power of planes in 4 bands of spatial frequency."""
    planes = noise.reshape(-1, *noise.shape[-2:])
    power = (np.abs(np.fft.fft2(planes - planes.mean())) ** 2).mean(axis=0) / planes[0].size
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(planes.shape[1]), np.fft.fftfreq(planes.shape[2]), indexing="ij"))
    band = np.digitize(frequency, [0.15, 0.3, 0.45])
    return np.array([power[band == b].mean() for b in range(4)])


@pytest.mark.parametrize("severity", [1, 3, 5])
@pytest.mark.parametrize("level", [20, 130, 240])
@pytest.mark.parametrize("name", ["gaussian_noise", "shot_noise", "impulse_noise"])
def test_noise_statistics(name: str, severity: int, level: int) -> None:
    images = flat(120, level)
    np.random.seed(0)
    function = getattr(oracle, name)
    seeds = ([seed] if name == "impulse_noise" else [] for seed in range(len(images)))  # it has a generator of its own
    noisy = [np.asarray(function(p, severity, *seed)) for p, seed in zip(pictures(images), seeds, strict=True)]
    theirs = np.stack(noisy).transpose(0, 3, 1, 2) / 255
    ours = corrupt_float(images, name, severity).astype(np.float64)
    off = [(sample - sample.mean()) ** 2 for sample in (ours, theirs)]
    mean_error = np.sqrt((off[0].mean() + off[1].mean()) / ours.size)
    variance_error = np.sqrt((off[0].var() + off[1].var()) / ours.size)
    assert abs(ours.mean() - theirs.mean()) < 4 * mean_error
    assert abs(ours.var() - theirs.var()) < 4 * variance_error
    np.testing.assert_allclose(spectrum(ours), spectrum(theirs), rtol=0.06)
    np.testing.assert_allclose(spectrum(ours), ours.var(), rtol=0.04)  # white
    channels = np.corrcoef(ours.transpose(1, 0, 2, 3).reshape(3, -1))
    assert np.abs(channels - np.eye(3)).max() < 0.02  # each channel has its own noise


@pytest.mark.parametrize(("table", "severity"), [("imagenet-c", 5), ("imagenet-c", 1), ("cifar-c", 5), ("cifar-c", 1)])
@pytest.mark.parametrize("level", [1, 60, 200])
def test_shot_noise_is_poisson(table: str, severity: int, level: int) -> None:
    (rate,) = constants_for("shot_noise", severity, table)
    noisy = corrupt_float(flat(60, level), "shot_noise", severity, table)
    counts = np.rint(noisy.astype(np.float64) * rate).astype(int)
    law = poisson(rate * level / 255)
    edges = [k for k in range(int(rate)) if law.pmf(k) * counts.size > 20]
    seen = [np.sum(counts == k) for k in edges]
    expected = [law.pmf(k) * counts.size for k in edges]
    seen.append(counts.size - sum(seen))
    expected.append(counts.size - sum(expected))
    assert chisquare(seen, expected).pvalue > 1e-4


def test_impulse_noise_is_half_salt_half_pepper() -> None:
    noisy = corrupt(flat(400, 77), "impulse_noise", 3)
    assert np.mean(noisy == 0) == pytest.approx(0.045, rel=0.03)
    assert np.mean(noisy == 255) == pytest.approx(0.045, rel=0.03)
    assert np.mean(noisy == 77) == pytest.approx(0.91, rel=0.01)


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("angle", [-45.0, -30.5, 0.0, 12.0, 44.9, -90.0, -128.0])
def test_motion_equals_oracle_at_an_angle(photographs: np.ndarray, severity: int, angle: float) -> None:
    """The oracle leaves out taps beyond the image, so the image is larger than the trail."""
    radius, sigma = constants_for("motion_blur", severity)
    large = np.tile(photographs[3].transpose(1, 2, 0), (2, 2, 1))
    theirs = oracle._motion_blur(large / 255, radius, sigma, angle)
    np.testing.assert_allclose(trail(large[None], radius, sigma, [angle])[0], theirs, atol=1e-5)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_motion_statistics(severity: int) -> None:
    """White noise through the blur: the same mean, variance and spectrum, so the same kernels and spread of angles."""
    images = np.random.default_rng(1).integers(0, 256, (200, 3, 48, 48), dtype=np.uint8)
    np.random.seed(0)
    theirs = np.stack([oracle.motion_blur(p, severity) for p in pictures(images)]).transpose(0, 3, 1, 2) / 255
    ours = corrupt_float(images, "motion_blur", severity)
    assert ours.mean() == pytest.approx(theirs.mean(), abs=0.002)
    assert ours.var() == pytest.approx(theirs.var(), rel=0.06)
    np.testing.assert_allclose(spectrum(ours), spectrum(theirs), rtol=0.1)
