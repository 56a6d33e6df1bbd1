"""Corrupting batches of images: the public functions, and what they accept.

Images are uint8, or floats in [0, 1], of any size with one or three channels, as numpy arrays or torch tensors of the
shape N x C x H x W, N x H x W x C or N x H x W; the result is of the same kind and shape. The arithmetic runs on the
CPU in float32. The corruption of an image depends on the image, the corruption with its severity and constants, the
seed, and the image's index in its set, and on nothing else: neither on the batch nor on its order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from acr.errors import InputError
from acr.shift import blur, digital, noise, weather
from acr.shift.setting import Bytes, Floats, Setting
from acr.shift.severities import constants_for

Images = TypeVar("Images", NDArray[Any], torch.Tensor)

_FUNCTIONS: dict[str, Callable[[Bytes, Setting], Floats]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "defocus_blur": blur.defocus_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "fog": weather.fog,
    "elastic_transform": digital.elastic_transform,
    "pixelate": digital.pixelate,
    "jpeg_compression": digital.jpeg_compression,
    "glass_blur": blur.glass_blur,
    "frost": weather.frost,
    "brightness": weather.brightness,
    "contrast": weather.contrast,
}

# Images worked on together, counted in 32x32 images: enough to hide numpy's cost per call, few enough for the cache.
_CHUNK = {"motion_blur": 128, "snow": 128, "fog": 16, "glass_blur": 512}
_DEFAULT_CHUNK = 64


def corrupt(
    images: Images,
    name: str,
    severity: int = 1,
    constants: str = "imagenet-c",
    seed: int = 0,
    indices: Sequence[int] | NDArray[Any] | torch.Tensor | None = None,
) -> Images:
    """Corrupted copies of images, of the same kind: uint8 images give uint8 (rounded to nearest).

    Args:
        images: uint8, or floats in [0, 1], which are rounded to bytes; floats give floats. Their shape is one of those
            of :meth:`acr.ImageSet.from_arrays`: N x C x H x W, N x H x W x C or N x H x W with C = 1 or 3.
        name: one of ``acr.shift.CORRUPTIONS``.
        severity: 1 to 5.
        constants: ``imagenet-c`` (the paper's evaluation) or ``cifar-c`` (made for 32x32).
        seed: of the draws.
        indices: the images' indices in their set, 0..N-1 if None; they make a part of a set match the whole.

    >>> from acr.shift import corrupt
    >>> images = np.full((2, 3, 8, 8), 100, dtype=np.uint8)
    >>> both, second = corrupt(images, "snow"), corrupt(images[1:], "snow", indices=[1])
    >>> bool((both[1:] == second).all())
    True
    """
    pixels = _pixels(images)
    if not _is_bytes(images):
        return _like(images, _run(pixels, name, severity, constants, seed, indices, quantise=False))
    return _like(images, _run(pixels, name, severity, constants, seed, indices, quantise=True))


def corrupt_float(
    images: Images,
    name: str,
    severity: int = 1,
    constants: str = "imagenet-c",
    seed: int = 0,
    indices: Sequence[int] | NDArray[Any] | torch.Tensor | None = None,
) -> Images:
    """Corrupted copies as float32 in [0, 1], not rounded to bytes: what the released evaluation fed its networks.

    The arguments and the draws are those of ``corrupt``, which gives these values rounded to bytes. Pixelate and JPEG
    work on bytes and give multiples of 1/255. Float images in [0, 1] are first rounded to the nearest byte.
    """
    return _like(images, _run(_pixels(images), name, severity, constants, seed, indices, quantise=False))


def wrapped_bytes(images: Images, mean: Sequence[float], std: Sequence[float]) -> Images:
    """Bytes of the normalised images by ``wrap``: what the released evaluation corrupted instead of the images.

    A normalised value is roughly in [-2, 2]. Times 255 it exceeds a byte in both directions, and only its remainder
    modulo 256 is left. ``mean`` and ``std`` have one value per channel, on the scale 0..1.

    >>> ramp = np.array([0, 128, 255], dtype=np.uint8).reshape(1, 1, 1, 3)
    >>> wrapped_bytes(ramp, mean=[0.5071], std=[0.2675]).ravel().tolist()
    [29, 252, 213]
    """
    pixels = _pixels(images)
    channels = pixels.shape[1]
    if len(mean) != channels or len(std) != channels:
        raise InputError(f"The images have {channels} channels, but mean has {len(mean)} values and std {len(std)}.")
    if min(std) <= 0:
        raise InputError(f"Standard deviations must be above 0, not {list(std)}.")
    centre, spread = (np.asarray(values, np.float32)[:, None] for values in (mean, std))
    # A result depends only on a byte and its channel, so it is computed once per brightness and looked up.
    table = wrap((np.divide(np.arange(256), 255, dtype=np.float32) - centre) / spread)
    wrapped = np.empty_like(pixels)
    for channel in range(channels):
        wrapped[:, channel] = table[channel][pixels[:, channel]]
    return _like(images, wrapped)


def wrap(normalised: Images) -> Images:
    """Float values times 255, truncated towards zero and wrapped modulo 256 to a byte, for any shape.

    >>> wrap(np.array([0.5, 1.5, -0.5], dtype=np.float32)).tolist()
    [127, 126, 129]
    """
    if isinstance(normalised, torch.Tensor):
        return normalised.mul(255).to(torch.int64).remainder(256).to(torch.uint8)
    return ((normalised * np.float32(255)).astype(np.int64) % 256).astype(np.uint8)


def _run(
    pixels: Bytes,
    name: str,
    severity: int,
    constants: str,
    seed: int,
    indices: Sequence[int] | NDArray[Any] | torch.Tensor | None,
    quantise: bool,
) -> NDArray[Any]:
    """Corrupt chunk by chunk, so that float copies of a large set never exist all at once."""
    values = constants_for(name, severity, constants)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise InputError(f"The seed must be a whole number, not {seed!r}.")
    numbers = _numbers(indices, len(pixels))
    result = np.empty(pixels.shape, np.uint8 if quantise else np.float32)
    chunk = max(1, _CHUNK.get(name, _DEFAULT_CHUNK) * 1024 // max(pixels[0, 0].size, 1024))
    for start in range(0, len(pixels), chunk):
        part = slice(start, start + chunk)
        setting = Setting(name, int(severity), constants, values, int(seed), numbers[part])
        floats = _FUNCTIONS[name](pixels[part], setting)
        # The assignment to bytes truncates, so adding a half rounds to nearest.
        result[part] = floats * np.float32(255) + np.float32(0.5) if quantise else floats
    return result


def _pixels(images: Any) -> Bytes:
    """The images as a contiguous uint8 array, N x C x H x W; raises an error that says what is wrong with them."""
    if isinstance(images, torch.Tensor):
        array: NDArray[Any] = images.detach().cpu().numpy()
    elif isinstance(images, np.ndarray):
        array = images
    else:
        raise InputError(f"Images must be a numpy array or a torch tensor, not {type(images).__name__}.")
    shape = "x".join(map(str, array.shape)) or "a single number"
    moved = _channels_first(array)
    if moved is None:
        raise InputError(
            f"Images must be N x C x H x W, N x H x W x C or N x H x W with 1 or 3 channels C, but these are {shape}."
        )
    array = moved
    if array.size == 0:
        raise InputError(f"There are no pixels to corrupt: the images are {shape}.")
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if not np.issubdtype(array.dtype, np.floating):
        raise InputError(f"Images must be uint8, or floats in [0, 1], not {array.dtype}.")
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 1):  # NaN fails both
        raise InputError(f"Float images must lie in [0, 1], but these lie in [{low:g}, {high:g}].")
    return np.rint(np.multiply(array, 255, dtype=np.float64)).astype(np.uint8)


def _channels_first(array: NDArray[Any]) -> NDArray[Any] | None:
    """The array as N x C x H x W; None if it has none of the shapes that images have."""
    if array.ndim == 3:
        return array[:, None]
    if array.ndim != 4:
        return None
    if array.shape[1] in (1, 3):
        return array
    return array.transpose(0, 3, 1, 2) if array.shape[3] in (1, 3) else None


def _is_bytes(images: NDArray[Any] | torch.Tensor) -> bool:
    return bool(images.dtype == torch.uint8 if isinstance(images, torch.Tensor) else images.dtype == np.uint8)


def _like(images: Images, result: NDArray[Any]) -> Images:
    """The result, N x C x H x W, in the shape of the images and as the same kind of array."""
    if images.ndim == 3:
        result = result[:, 0]
    elif images.shape[1] not in (1, 3):
        result = np.ascontiguousarray(result.transpose(0, 2, 3, 1))
    if isinstance(images, torch.Tensor):
        return torch.from_numpy(result).to(images.device)
    return result


def _numbers(indices: Any, count: int) -> list[int]:
    """The images' indices in their set as a list, one per image."""
    if indices is None:
        return list(range(count))
    array = indices.detach().cpu().numpy() if isinstance(indices, torch.Tensor) else np.asarray(indices)
    if array.ndim != 1 or len(array) != count:
        raise InputError(f"Indices must be one number for each of the {count} images; their shape is {array.shape}.")
    if not np.issubdtype(array.dtype, np.integer) or array.min() < 0:
        raise InputError("Indices must be whole numbers from 0 up: the images' positions in their set.")
    return [int(number) for number in array]
