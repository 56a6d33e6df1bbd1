"""Losses of the steps taken, read from the device only now and then."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor


class LostLoss(Exception):
    """A loss that is not finite: its value, and the step at which it was first seen."""

    def __init__(self, value: float, where: str) -> None:
        super().__init__(f"{value} at {where}")
        self.value = value
        self.where = where


@dataclass
class LossRecord:
    """Losses since the last reading. To read one is to wait for the device, so they are read all at once."""

    newest: float | None = None
    """The newest loss that was read; None before the first, or if the method only collects."""
    _unread: list[tuple[str, Tensor]] = field(default_factory=list)

    def add(self, where: str, loss: Tensor | None) -> None:
        """One more step was taken; ``where`` names it for people."""
        if loss is None:
            self.newest = None
        else:
            self._unread.append((where, loss.detach().reshape(())))

    def read(self) -> float | None:
        """The newest loss. Raises :class:`LostLoss` if any since the last reading is not finite."""
        if self._unread:
            values = torch.stack([loss.double() for _, loss in self._unread]).tolist()
            places = [where for where, _ in self._unread]
            self._unread.clear()
            for where, value in zip(places, values, strict=True):
                if not math.isfinite(value):
                    raise LostLoss(value, where)
            self.newest = values[-1]
        return self.newest
