"""Images as people have them: arrays, tensors, pictures in memory or paths, of any size."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from acr.data.adapters import pixels_of
from acr.data.fingerprint import image_digests
from acr.data.readers.decoding import Images, list_broken, resize, to_images
from acr.data.readers.paths import decode_paths
from acr.errors import InputError, shown
from acr.memory.codec import Codec

LUMA = np.array([299, 587, 114])
"""Thousandths of red, green and blue in grey (ITU-R 601)."""


@dataclass(frozen=True)
class Batch:
    """Images as the network takes them, and the files they came from."""

    images: Images
    """uint8, N x C x size x size."""
    files: tuple[str, ...]
    """Absolute path of every image; empty text where it did not come from a file."""

    def __len__(self) -> int:
        return len(self.images)

    def digests(self, codec: Codec | None = None) -> list[str]:
        """A checksum of every image's pixels: by it an image is known again.

        With the ``codec`` of a memory, of the pixels as they come back from it. An image that is learned has been
        through it once, so one that is stored has been through it twice.
        """
        images = self.images
        if codec is not None:
            seen = codec.as_stored(torch.from_numpy(np.ascontiguousarray(images)))
            images = codec.as_stored(seen).numpy()
        return [row.tobytes().hex() for row in image_digests(images)]

    def select(self, rows: Sequence[int]) -> Batch:
        """The images at these positions."""
        return Batch(self.images[list(rows)], tuple(self.files[row] for row in rows))


def read_images(images: Any, size: int, channels: int | None = None) -> Batch:
    """Images of any kind as square uint8 images.

    Args:
        images: an array or tensor (uint8, or floats in 0..1; N x H x W, N x H x W x C or N x C x H x W), or a list of
            arrays, tensors, Pillow images and paths; or a :class:`Batch`, which has been read before. Images that have
            another size are resized and cropped to the centre square, as those of a folder are.
        size: side in pixels.
        channels: 1 (grey) or 3 (colour); None: 1 if all images are grey, else 3.
    """
    if isinstance(images, (str, os.PathLike)):
        raise InputError(f"Give a list of paths, such as [{shown(str(images))}], even for one image.")
    if hasattr(images, "detach"):  # a tensor, which may carry a gradient or be on another device
        images = images.detach().cpu().numpy()
    if isinstance(images, Batch):
        batch = Batch(resize(images.images, size), images.files)
    elif isinstance(images, np.ndarray) and images.dtype.kind not in "OUS":
        batch = Batch(_from_array(images, size), ("",) * len(images))
    elif hasattr(images, "__len__") and hasattr(images, "__getitem__"):
        batch = _from_list(list(images), size)
    else:
        raise InputError(
            f"Images must be an array, a tensor, or a list of arrays, pictures or paths; got {shown(images)}."
        )
    return batch if channels is None else Batch(with_channels(batch.images, channels), batch.files)


def read_files(
    paths: Sequence[str | Path], size: int, channels: int | None = None, *, quiet: bool = True
) -> tuple[Batch, dict[int, str]]:
    """The images in files, without those that cannot be read: their positions are returned too, with the reasons.

    The other arguments are those of :func:`read_images`; ``quiet``: show no progress.
    """
    decoded, broken = decode_paths(paths, size, quiet=quiet)
    good = [row for row in range(len(paths)) if row not in broken]
    pixels = decoded[good] if broken else decoded
    if channels is not None:
        pixels = with_channels(pixels, channels)
    return Batch(pixels, tuple(os.path.abspath(paths[row]) for row in good)), broken


def with_channels(images: Images, channels: int) -> Images:
    """Grey images as colour images, or the other way round; unchanged if they have that many channels."""
    if images.shape[1] == channels:
        return images
    if channels == 3:
        return np.repeat(images, 3, axis=1)
    weighted = np.tensordot(LUMA, images.astype(np.uint32), axes=(0, 1))
    return ((weighted + 500) // 1000).astype(np.uint8)[:, None]


def _from_array(images: np.ndarray[Any, Any], size: int) -> Images:
    if images.ndim == 3 and images.shape[-1] in (1, 3):
        raise InputError(
            f"An array of shape {images.shape} looks like a single image. Give one more dimension: images[None]."
        )
    if not len(images):
        return _no_images(size)
    pixels = resize(to_images(images, "The array of images"), size)
    # A channel that was added to grey images has no stride of its own. PyTorch would take another path through its
    # kernels, and the same images would be answered with other last digits than in a list.
    return np.ascontiguousarray(pixels).reshape(-1).reshape(pixels.shape)


def _from_list(images: list[Any], size: int) -> Batch:
    """A list in which every item is of any of the kinds."""
    if not images:
        return Batch(_no_images(size), ())
    paths = {place: Path(image) for place, image in enumerate(images) if isinstance(image, (str, os.PathLike))}
    decoded, broken = decode_paths(list(paths.values()), size)
    if broken:
        names = list(paths.values())
        listed = list_broken([(str(names[row]), reason) for row, reason in sorted(broken.items())])
        raise InputError(f"{len(broken)} of {len(images)} images cannot be read:{listed}")
    rows: dict[int, Images] = dict(zip(paths, decoded, strict=True))
    for place, image in enumerate(images):
        if place not in rows:
            rows[place] = _picture(image, size, place)
    channels = 1 if all(len(row) == 1 for row in rows.values()) else 3
    pixels = np.concatenate([with_channels(rows[place][None], channels) for place in range(len(images))])
    files = tuple(os.path.abspath(paths[place]) if place in paths else "" for place in range(len(images)))
    return Batch(pixels, files)


def _picture(image: Any, size: int, place: int) -> Images:
    """A picture or array in memory as uint8, C x size x size; ``place`` names it in errors."""
    if hasattr(image, "detach"):
        image = image.detach().cpu().numpy()
    if not isinstance(image, (Image.Image, np.ndarray)):
        raise InputError(f"Image {place} is {shown(image)}: not a path, a picture, an array or a tensor.")
    return pixels_of(image, size, place)


def _no_images(size: int) -> Images:
    return np.zeros((0, 3, size, size), np.uint8)
