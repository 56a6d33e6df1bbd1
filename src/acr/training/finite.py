"""Whether the numbers that a run depends on are still numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

CHECKED = ("network", "optimizer", "buffer")
"""Parts of a method's state in which every number must be finite. Other parts may use infinity for "not yet"."""


def not_finite(state: Mapping[str, Any]) -> list[str]:
    """Names of the tensors of a method's state that hold NaN or infinity, among :data:`CHECKED`.

    Everything is looked at where it is, and the answers are read from the device once.
    """
    found = [pair for part in CHECKED if part in state for pair in tensors(state[part], part)]
    floats = [(name, tensor) for name, tensor in found if tensor.is_floating_point() and tensor.numel()]
    by_device: dict[torch.device, list[tuple[str, Tensor]]] = {}
    for name, tensor in floats:
        by_device.setdefault(tensor.device, []).append((name, tensor))
    lost = []
    for pairs in by_device.values():
        good = torch.stack([tensor.isfinite().all() for _, tensor in pairs]).tolist()
        lost += [name for (name, _), fine in zip(pairs, good, strict=True) if not fine]
    return lost


def tensors(state: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """All tensors of a nested state, with where they are in it."""
    if isinstance(state, Tensor):
        yield name, state
    elif isinstance(state, Mapping):
        for key, value in state.items():
            yield from tensors(value, f"{name}.{key}")
    elif isinstance(state, (list, tuple)):
        for place, value in enumerate(state):
            yield from tensors(value, f"{name}.{place}")
