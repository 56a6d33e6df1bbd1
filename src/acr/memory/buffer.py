"""The buffer: a fixed number of slots for 8-bit images with label, task and further columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from acr.errors import InputError
from acr.memory.codec import Codec
from acr.transfer import send


class Buffer:
    """At most ``capacity`` samples. Slots ``0 .. len(buffer)-1`` are filled.

    ``image_shape`` is C x H x W. ``columns`` maps the names of further values that a method keeps with each sample
    (logits, scores) to the shape of one value. ``labels`` are output columns of the network, and ``tasks`` the numbers
    of the tasks that the samples came from. Storage is allocated once, with images in uint8: 3,072 bytes for a 32x32
    colour image. With a ``codec`` their codes are stored instead, which take less room, and images come back from it
    nearly as they were.

    Images are on ``device``, as are the ``device_columns``, which hold what the network computes. Labels, tasks and the
    other columns are on the host, where it is decided what is stored and drawn, so that no decision waits for the
    device.
    """

    def __init__(
        self,
        capacity: int,
        image_shape: tuple[int, int, int],
        columns: Mapping[str, tuple[int, ...]] | None = None,
        device: torch.device | None = None,
        device_columns: Collection[str] = (),
        codec: Codec | None = None,
    ) -> None:
        if capacity < 1:
            raise InputError(f"A replay memory holds one sample or more; got a buffer size of {capacity}.")
        self.capacity = capacity
        self.seen = 0
        """Number of samples offered so far (the reservoir's counter)."""
        self._filled = 0
        self.device = device or torch.device("cpu")
        self.codec = codec
        shape, kind = (image_shape, torch.uint8) if codec is None else ((codec.nbytes,), torch.uint8)
        self._images = torch.zeros((capacity, *shape), dtype=kind, device=self.device)
        self._labels = torch.zeros(capacity, dtype=torch.int64)
        self._tasks = torch.zeros(capacity, dtype=torch.int64)
        self._places = {name: self.device if name in device_columns else torch.device("cpu") for name in columns or {}}
        self._columns = {
            name: torch.zeros((capacity, *shape), device=self._places[name]) for name, shape in (columns or {}).items()
        }

    def __len__(self) -> int:
        return self._filled

    @property
    def codes(self) -> Tensor:
        """What is stored of the images (a view of the storage): the images themselves, or one row of bytes each."""
        return self._images[: self._filled]

    @property
    def images(self) -> Tensor:
        """The stored images, n x C x H x W: a view of the storage; with a codec, a decoded copy."""
        return self._decoded(self.codes)

    def images_at(self, slots: Tensor) -> Tensor:
        """The images in some slots, whose numbers are on the host or where the images are."""
        here = slots.device == self._images.device
        return self._decoded(self._images.index_select(0, slots) if here else self._images[slots])

    def _decoded(self, stored: Tensor) -> Tensor:
        return stored if self.codec is None else self.codec.decode(stored)

    @property
    def labels(self) -> Tensor:
        """Output columns of the stored images."""
        return self._labels[: self._filled]

    @property
    def tasks(self) -> Tensor:
        """Numbers of the tasks that the stored images came from."""
        return self._tasks[: self._filled]

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the further columns."""
        return tuple(self._columns)

    def column(self, name: str) -> Tensor:
        """A further column, one row per stored image."""
        return self._columns[name][: self._filled]

    @property
    def nbytes(self) -> int:
        """Bytes of storage, filled or not."""
        parts = [self._images, self._labels, self._tasks, *self._columns.values()]
        return sum(part.numel() * part.element_size() for part in parts)

    def write(
        self,
        slots: Tensor,
        images: Tensor,
        labels: Tensor,
        task: int | Tensor,
        *,
        rows: Tensor | None = None,
        **columns: Tensor,
    ) -> None:
        """Write one sample to each of ``slots``, overwriting what is there. New slots must continue the filled ones.

        ``slots`` and ``labels`` are on the host. ``task`` is one number for all samples or one per sample; ``columns``
        have one row per sample. With ``rows``, also on the host, these of the samples are written and no others.
        """
        self._write(slots, images, labels, task, rows, columns, encode=self.codec is not None)

    def _write(
        self,
        slots: Tensor,
        images: Tensor,
        labels: Tensor,
        task: int | Tensor,
        rows: Tensor | None,
        columns: Mapping[str, Tensor],
        *,
        encode: bool,
    ) -> None:
        if slots.numel() == 0:
            return
        top = int(slots.max()) + 1
        if top > self.capacity:
            raise InputError(f"Slot {top - 1} does not exist: the memory holds {self.capacity} samples.")
        if set(columns) != set(self._columns):
            raise InputError(f"This memory keeps the columns {sorted(self._columns)}; got {sorted(columns)}.")
        new = torch.unique(slots[slots >= self._filled])
        if len(new) != max(0, top - self._filled):
            raise InputError(f"Writing slot {top - 1} would leave a gap after slot {self._filled - 1}.")
        there, picked = send((slots, rows), self.device)
        chosen = _rows(images, rows, picked).to(self.device)
        if encode:
            assert self.codec is not None
            chosen = self.codec.encode(chosen)
        self._images.index_copy_(0, there, chosen)
        labels = labels.cpu()
        self._labels[slots] = labels if rows is None else labels[rows]
        self._tasks[slots] = torch.as_tensor(task)
        for name, values in columns.items():
            stored, place = self._columns[name], self._places[name]
            entries = _rows(values.detach(), rows, picked).to(place, stored.dtype)
            stored.index_copy_(0, slots if place.type == "cpu" else there, entries)
        self._filled = max(self._filled, top)

    def append(self, images: Tensor, labels: Tensor, task: int | Tensor, **columns: Tensor) -> None:
        """Add samples after the stored ones; the arguments are those of ``write``."""
        self.write(torch.arange(self._filled, self._filled + len(images)), images, labels, task, **columns)

    def keep(self, slots: Tensor) -> None:
        """Keep only these slots, in this order."""
        n, there = len(slots), send(slots, self.device)
        for part in (self._images, self._labels, self._tasks, *self._columns.values()):
            part[:n] = part.index_select(0, slots if part.device.type == "cpu" else there)
        self._filled = n

    def widen(self, name: str, width: int, fill: float = float("nan")) -> None:
        """Extend a column of vectors to ``width`` entries per sample, new ones set to ``fill``: for added classes."""
        old = self._columns[name]
        self._columns[name] = torch.full((self.capacity, width), fill, device=self._places[name])
        self._columns[name][:, : old.shape[1]] = old

    def draw(self, size: int, generator: torch.Generator) -> Tensor:
        """Slots of up to ``size`` stored samples, uniform without replacement, in random order.

        Floyd's algorithm needs only one draw per sample, so the cost does not grow with the memory.
        """
        filled, size = self._filled, min(size, self._filled)
        tops = torch.arange(filled - size, filled)
        draws = (torch.rand(size, generator=generator, dtype=torch.float64) * (tops + 1)).long().tolist()
        chosen: dict[int, None] = {}
        for top, draw in zip(tops.tolist(), draws, strict=True):
            chosen[draw if draw not in chosen else top] = None
        order = torch.randperm(size, generator=generator)
        return torch.tensor(list(chosen), dtype=torch.int64)[order]

    def state_dict(self) -> dict[str, Any]:
        """The filled slots and the counter; of images what is stored, so with a codec their codes."""
        columns = {name: values[: self._filled].clone() for name, values in self._columns.items()}
        return {
            "seen": self.seen,
            "images": self.codes.clone(),
            "labels": self.labels.clone(),
            "tasks": self.tasks.clone(),
            "columns": columns,
            "code": None if self.codec is None else self.codec.fingerprint,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        self._filled = 0
        columns = {name: state["columns"][name] for name in self._columns}
        for name, values in columns.items():
            shape = (self.capacity, *values.shape[1:])  # a column may have been widened
            self._columns[name] = torch.zeros(shape, device=self._places[name])
        images, code = state["images"], state.get("code")
        if self.codec is not None and code != self.codec.fingerprint:
            raise InputError(
                "The images of the saved memory were compressed by another version of this package, in a code that "
                "this one cannot read. Use the version that saved it."
            )
        if (images.dtype, images.shape[1:]) != (self._images.dtype, self._images.shape[1:]):
            raise InputError(
                f"The saved memory has {images.dtype} of shape {tuple(images.shape[1:])} per image, and this one "
                f"{self._images.dtype} of shape {tuple(self._images.shape[1:])}."
            )
        # If there is a codec, these are codes already.
        self._write(torch.arange(len(images)), images, state["labels"], state["tasks"], None, columns, encode=False)
        self.seen = state["seen"]


def _rows(values: Tensor, rows: Tensor | None, there: Tensor | None) -> Tensor:
    """The chosen rows of values on the host or on the device: ``rows`` and ``there`` are the same numbers."""
    if rows is None or there is None:
        return values
    return values.index_select(0, rows if values.device.type == "cpu" else there)
