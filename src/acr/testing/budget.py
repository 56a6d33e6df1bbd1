"""Counting what a method keeps of the samples it saw."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acr.data.images import ImageSet
from acr.data.stream import Task
from acr.methods.method import Context, Method
from acr.testing.rehearsal import Rehearsal

OWN_COLUMNS = {"images", "labels", "tasks"}
LABEL_AND_TASK_BYTES = 16


def declared_columns(method: Method) -> dict[str, tuple[int, ...]]:
    """The columns that a method declares it stores with each sample, including those of its policy."""
    declared = getattr(method, "buffer_columns", None)
    return dict(declared()) if declared else dict(getattr(method, "columns", {}))


def budget_bytes(run: Rehearsal) -> int:
    """The most that the memory may take: buffer size x image + samples x (label + task + declared columns)."""
    context, columns = run.context, declared_columns(run.method).values()
    beside = LABEL_AND_TASK_BYTES + sum(4 * math.prod(shape) for shape in columns)
    return context.buffer_size * math.prod(context.image_shape) + context.memory_capacity * beside


def memory_bytes(run: Rehearsal) -> tuple[int, int, int]:
    """Bytes of the memory, its budget in bytes, and bytes of samples kept outside the memory."""
    used = sum(value.numel() * value.element_size() for value in run.method.memory_as_stored().values())
    return used, budget_bytes(run), run.method.side_memory_bytes()


def check_memory(run: Rehearsal) -> None:
    """Assert that the memory is within its budget and holds what it declares, and that no other samples are kept."""
    method, context = run.method, run.context
    memory = method.memory()
    if memory:
        missing = OWN_COLUMNS - set(memory)
        assert not missing, f"memory() has no {sorted(missing)}"
        lengths = {name: len(values) for name, values in memory.items()}
        assert len(set(lengths.values())) == 1, f"the columns of memory() have different lengths: {lengths}"
        n = lengths["images"]
        room = context.memory_capacity
        assert n <= room, f"the memory holds {n} samples; its budget is {room}"
        images = memory["images"]
        assert images.dtype == torch.uint8, f"the memory holds {images.dtype} images; the budget is counted in bytes"
        shape = tuple(images.shape[1:])
        assert shape == context.image_shape, f"the memory holds images of shape {shape}, not {context.image_shape}"
        seen, tasks = set(context.seen), memory["tasks"].tolist()
        unseen = sorted(set(memory["labels"].tolist()) - seen)
        assert not unseen, f"the memory holds labels {unseen}; seen so far are {sorted(seen)}"
        assert all(0 <= t <= context.task for t in tasks), "the memory holds samples of tasks that have not begun"
        undeclared = sorted(set(memory) - OWN_COLUMNS - set(declared_columns(method)))
        assert not undeclared, f"the memory holds the columns {undeclared}, which are not declared"
    used, budget, side = memory_bytes(run)
    assert used <= budget, f"the memory takes {used} bytes; its budget is {budget}"
    held = sum(value.nbytes for value in image_like(method, context.image_shape))
    allowed = context.buffer_size * math.prod(context.image_shape) + side
    if context.codec is not None and memory:  # what is stored does not look like images, and has used up the budget
        stored = method.memory_as_stored()
        allowed -= stored["images"].nbytes
        assert len(stored["images"]) == len(memory["images"]), "memory() and memory_as_stored() have different lengths"
    assert held <= allowed, (
        f"the method keeps {held} bytes of images; {allowed - side} is the memory's budget and {side} is what "
        "side_memory_bytes() reports"
    )


def image_like(method: Method, shape: tuple[int, int, int]) -> list[Tensor | np.ndarray[Any, Any]]:
    """Every tensor or array of a method whose last dimensions are those of images; each storage counts once."""
    found: dict[int, Tensor | np.ndarray[Any, Any]] = {}
    for value in _reachable(vars(method), set()):
        if tuple(value.shape[-3:]) == shape:
            found[value.untyped_storage().data_ptr() if isinstance(value, Tensor) else value.ctypes.data] = value
    return list(found.values())


def _reachable(value: Any, visited: set[int]) -> Iterator[Tensor | np.ndarray[Any, Any]]:
    """Every tensor and array that can be reached from an object, except through what the run itself provides."""
    if id(value) in visited or isinstance(value, (Context, Task, ImageSet, torch.nn.Module, torch.optim.Optimizer)):
        return
    visited.add(id(value))
    if isinstance(value, (Tensor, np.ndarray)):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _reachable(item, visited)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _reachable(item, visited)
    elif hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
        yield from _reachable(vars(value), visited)
