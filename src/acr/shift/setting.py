"""What a corruption function gets in addition to the images: its constants and one random stream per image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from acr.randomness import key_to_seed

Bytes = NDArray[np.uint8]
"""Images as stored: N x C x H x W."""

Floats = NDArray[np.float32]
"""Images in [0, 1], N x C x H x W, or single planes where stated."""


Word = TypeVar("Word", np.int16, np.uint32)


@dataclass(frozen=True)
class Setting:
    """One corruption at one severity, for images with the given indices in their set.

    Draws are keyed by (seed, corruption, severity, index), so the corruption of an image never depends on its
    neighbours. Corruption functions read the streams once, in order, and take everything they need from each.
    """

    name: str
    severity: int
    table: str
    """Name of the table of constants."""
    values: tuple[float, ...]
    """The corruption's constants."""
    seed: int
    indices: Sequence[int]

    def streams(self) -> Iterator[np.random.Generator]:
        """One generator per image, in order. It is one object, re-keyed at each step: use it before taking the next.

        Re-keying costs a tenth of building a generator, which at 32x32 would cost as much as the noise itself.
        """
        base = key_to_seed(self.seed, "shift", self.name, self.severity).to_bytes(8, "little")
        engine = np.random.PCG64DXSM(0)
        stream = np.random.Generator(engine)
        for index in self.indices:
            digest = blake2b(base + int(index).to_bytes(8, "little", signed=True), digest_size=32).digest()
            engine.state = {
                "bit_generator": "PCG64DXSM",
                "state": {
                    "state": int.from_bytes(digest[:16], "little"),
                    "inc": int.from_bytes(digest[16:], "little") | 1,
                },
                "has_uint32": 0,
                "uinteger": 0,
            }
            yield stream


def words(stream: np.random.Generator, count: int, dtype: type[Word]) -> NDArray[Word]:
    """``count`` uniform integers of a narrow type, several from each 64 bits: the cheapest draws there are."""
    per_draw = 8 // np.dtype(dtype).itemsize
    raw = np.asarray(stream.bit_generator.random_raw(-(-count // per_draw)), dtype="<u8")
    return raw.view(np.dtype(dtype).newbyteorder("<"))[:count]


def unit(images: Bytes) -> Floats:
    """Bytes as float32 in [0, 1]."""
    return np.divide(images, np.float32(255), dtype=np.float32)
