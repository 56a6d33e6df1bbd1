from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's cache or data folder."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("ACR_CACHE", str(cache))
    monkeypatch.delenv("ACR_DATA", raising=False)
    return cache


def picture(value: int = 0, size: tuple[int, int] = (12, 12), mode: str = "RGB") -> Image.Image:
    """A picture that differs from value to value."""
    rng = np.random.default_rng(value)
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    return Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8))


def save(path: Path, image: Image.Image, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path
