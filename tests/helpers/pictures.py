"""Pictures and files of pictures, for tests of what reads them."""

from pathlib import Path

import numpy as np
from PIL import Image


def picture(value: int = 0, size: tuple[int, int] = (12, 12), mode: str = "RGB") -> Image.Image:
    """A picture that differs from value to value."""
    rng = np.random.default_rng(value)
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    return Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8))


def save(path: Path, image: Image.Image, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path
