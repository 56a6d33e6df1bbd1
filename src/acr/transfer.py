"""From the host to the run's device: everything small that a step needs, in one copy that nobody waits for.

Draws are made on the host, so that every device sees the same run. A copy to an accelerator costs the same for one
number as for a few thousand, so a step packs all its draws into one buffer and takes it apart on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

Tree = TypeVar("Tree")
ALIGNMENT = 16
"""Every part of the buffer starts at a multiple of this many bytes, so that it can be read as any type."""


def send(tree: Tree, device: torch.device) -> Tree:
    """The same nested tuples, lists and dataclasses with every tensor on ``device``, all of them in one copy.

    Anything that is no tensor (numbers, None) is passed on. On a CPU nothing is copied at all.

    >>> send((torch.arange(3), None, [torch.ones(2)]), torch.device("cpu"))
    (tensor([0, 1, 2]), None, [tensor([1., 1.])])
    """
    if device.type == "cpu":
        return tree
    tensors: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    map_tensors(tree, collect)
    moved = iter(_send_all(tensors, device))
    return map_tensors(tree, lambda tensor: next(moved))


def map_tensors(tree: Tree, function: Callable[[Tensor], Tensor]) -> Tree:
    """Apply a function to every tensor of nested tuples, lists and dataclasses, in a fixed order."""
    if isinstance(tree, Tensor):
        return cast(Tree, function(tree))
    if isinstance(tree, (tuple, list)):
        return cast(Tree, type(tree)(map_tensors(part, function) for part in tree))
    if is_dataclass(tree) and not isinstance(tree, type):
        parts: dict[str, Any] = {f.name: map_tensors(getattr(tree, f.name), function) for f in fields(tree)}
        return cast(Tree, replace(tree, **parts))
    return tree


def _send_all(tensors: list[Tensor], device: torch.device) -> list[Tensor]:
    """Pack, copy, unpack. The buffer is pinned where CUDA is, so that the copy runs beside the host's next work."""
    if not tensors:
        return []
    starts, end = [], 0
    for tensor in tensors:
        starts.append(end)
        end += -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT
    packed = torch.empty(max(end, 1), dtype=torch.uint8, pin_memory=device.type == "cuda")
    for tensor, start in zip(tensors, starts, strict=True):
        _part(packed, tensor, start).copy_(tensor)
    moved = packed.to(device, non_blocking=True)
    return [_part(moved, tensor, start) for tensor, start in zip(tensors, starts, strict=True)]


def _part(buffer: Tensor, like: Tensor, start: int) -> Tensor:
    """The part of a byte buffer that holds a tensor of this kind."""
    size = like.numel() * like.element_size()
    return buffer[start : start + size].view(like.dtype).view(like.shape)
