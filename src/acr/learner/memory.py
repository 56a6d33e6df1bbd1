"""What a classifier remembers of the images it has learned, and from which files they came."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from acr.data.fingerprint import image_digests
from acr.errors import InputError, shown

Origins = dict[str, tuple[str, ...]]
"""Files by the checksum of the image: several where copies of one image were learned."""


@dataclass(frozen=True, eq=False)
class MemoryView:
    """The stored images of a classifier (a copy), with one entry per image in every field."""

    images: npt.NDArray[np.uint8]
    """N x C x H x W."""
    labels: npt.NDArray[Any]
    """As they were given."""
    visits: npt.NDArray[np.int64]
    """The call of ``partial_fit`` that an image came with, counted from 0."""
    files: tuple[tuple[str, ...], ...]
    """Files that the image was read from; empty if it was not read from a file."""

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        return f"MemoryView({len(self)} images of {len(set(self.labels.tolist()))} classes)"

    def find(
        self,
        indices: Iterable[int] | None = None,
        labels: Iterable[Hashable] | None = None,
        files: Iterable[str] | None = None,
    ) -> list[int]:
        """Positions of the images with one of these indices, labels or files; what matches nothing is an error."""
        found: set[int] = set()
        for index in indices or ():
            if not 0 <= index < len(self):
                raise InputError(f"There is no image {index} in the memory; it holds 0 to {len(self) - 1}.")
            found.add(int(index))
        own = self.labels.tolist()
        for label in labels or ():
            rows = [row for row, value in enumerate(own) if value == label]
            if not rows:
                raise InputError(f"The memory holds no image of the class {shown(label)}.")
            found.update(rows)
        for file in files or ():
            rows = [row for row, names in enumerate(self.files) if file in names]
            if not rows:
                raise InputError(f"The memory holds no image that was read from {file}.")
            found.update(rows)
        return sorted(found)


def origins_of(
    stored: npt.NDArray[np.uint8], known: Mapping[str, Sequence[str]], new: Iterable[tuple[str, str]]
) -> Origins:
    """Files of the stored images: among those known before and those (checksum, file) that have just been learned."""
    files: dict[str, dict[str, None]] = {digest: dict.fromkeys(names) for digest, names in known.items()}
    for digest, file in new:
        if file:
            files.setdefault(digest, {})[file] = None
    present = [row.tobytes().hex() for row in image_digests(stored)]
    return {digest: tuple(files[digest]) for digest in dict.fromkeys(present) if digest in files}
