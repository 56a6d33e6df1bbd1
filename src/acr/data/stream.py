"""TaskStream: a data set as a sequence of tasks, each with its own classes.

for task in stream: ...        stream[2]        stream[:3]        len(stream)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TypeVar, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from acr.data.images import DataSet, ImageSet
from acr.errors import InputError
from acr.randomness import generator

Look = Callable[[Tensor], Tensor]
"""What is done to images (uint8, n x C x H x W) before a method sees them."""
Stream = TypeVar("Stream", bound="TaskStream | OpenStream")


@dataclass(frozen=True, eq=False)
class Task:
    """The training samples of one task of the stream. Gives access to no other task and to no test image.

    ``classes`` are label values; ``columns`` are the network outputs of these classes. The outputs of a network are
    numbered 0, 1, 2, … in the order of :attr:`TaskStream.classes`, and :attr:`targets` use these numbers.
    """

    index: int
    classes: tuple[int, ...]
    columns: tuple[int, ...]
    train: ImageSet
    positions: npt.NDArray[np.int64]
    look: Look | None = None

    def __len__(self) -> int:
        return len(self.positions)

    def __repr__(self) -> str:
        return f"Task({self.index}: {len(self):,} images of the classes {', '.join(map(str, self.classes))})"

    @cached_property
    def targets(self) -> Tensor:
        """The output column of every sample."""
        column = dict(zip(self.classes, self.columns, strict=True))
        return torch.tensor([column[int(label)] for label in self.train.labels[self.positions]], dtype=torch.int64)

    def images(self, indices: Tensor | None = None) -> Tensor:
        """Samples by their number in the task (all of them if None), without augmentation: uint8, n x C x H x W."""
        chosen = self.positions if indices is None else self.positions[indices.numpy()]
        images = torch.from_numpy(np.ascontiguousarray(self.train.images[chosen]))
        return images if self.look is None else self.look(images)


class TaskImages:
    """The training images of a task, of which only those that are asked for are made."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __len__(self) -> int:
        return len(self.task)

    def __getitem__(self, indices: Tensor) -> Tensor:
        return self.task.images(indices)


class TaskStream(Sequence[Task]):
    """Tasks in order. ``classes`` lists all label values, ascending: the order of the network's outputs."""

    look: Look | None = None

    def __init__(self, data: DataSet, tasks: Sequence[Sequence[int]]) -> None:
        self.data = data
        self.task_classes = tuple(tuple(int(c) for c in task) for task in tasks)
        if not self.task_classes:
            raise InputError("A stream needs at least one task.")
        self.classes = tuple(sorted({c for task in self.task_classes for c in task}))
        missing = [c for c in self.classes if c not in set(data.train.classes)]
        if missing:
            raise InputError(f"{data.name} has no training images of the classes {missing}.")
        if any(not task for task in self.task_classes):
            raise InputError(f"Every task needs at least one class; got {[list(t) for t in self.task_classes]}.")

    def __repr__(self) -> str:
        return f"TaskStream({self.data.name!r}: {len(self)} tasks, {len(self.classes)} classes)"

    @classmethod
    def split(
        cls,
        data: DataSet,
        tasks: int | None = None,
        classes_per_task: Sequence[int] | None = None,
        class_order: str | Sequence[int] = "file",
    ) -> TaskStream:
        """Split the classes of a data set into ``tasks`` tasks of equal size, or into tasks of the sizes given.

        ``classes_per_task`` and ``class_order`` take the values of the config fields of these names.
        """
        order = order_classes(data.train.classes, class_order)
        sizes = task_sizes(len(order), tasks, classes_per_task)
        ends = np.cumsum([0, *sizes])
        return cls(data, [order[a:b] for a, b in pairwise(ends)])

    def __len__(self) -> int:
        return len(self.task_classes)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> TaskStream: ...
    def __getitem__(self, index: int | slice) -> Task | TaskStream:
        if isinstance(index, slice):
            return seen_through(self.look, TaskStream(self.data, self.task_classes[index]))
        number = range(len(self))[index]
        classes = self.task_classes[number]
        positions = self.data.train.of_classes(classes)
        return Task(number, classes, self.columns(number), self.data.train, positions, self.look)

    def __iter__(self) -> Iterator[Task]:
        return (self[i] for i in range(len(self)))

    def columns(self, task: int) -> tuple[int, ...]:
        """The network outputs of a task's classes."""
        return tuple(self.classes.index(c) for c in self.task_classes[task])

    @cached_property
    def test_positions(self) -> tuple[npt.NDArray[np.int64], ...]:
        """For each task, the test images of its classes, by position in ``data.test``."""
        return tuple(self.data.test.of_classes(task) for task in self.task_classes)

    def merged(self) -> TaskStream:
        """The same classes as one task: what joint training sees."""
        return TaskStream(self.data, [self.classes])


class OpenStream(Sequence[Task]):
    """A stream without an end, of which only the newest task has images: the others were learned before and are gone.

    Outputs of the network are numbered in the order in which classes arrive, and the labels of ``train`` are these
    numbers already. ``earlier`` has the outputs of every earlier task.
    """

    look: Look | None = None

    def __init__(self, train: ImageSet, earlier: Sequence[Sequence[int]] = ()) -> None:
        self.task_columns = (*(tuple(int(c) for c in task) for task in earlier), train.classes)
        self.newest = Task(len(earlier), train.classes, train.classes, train, np.arange(len(train)))

    def __len__(self) -> int:
        return len(self.task_columns)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        if isinstance(index, slice) or range(len(self))[index] != self.newest.index:
            raise InputError("The images of earlier tasks are not there any more.")
        return replace(self.newest, look=self.look)

    def columns(self, task: int) -> tuple[int, ...]:
        """The network outputs of a task's classes."""
        return self.task_columns[task]


def seen_through(look: Look | None, stream: Stream) -> Stream:
    """A stream with the same tasks, whose training images are seen through ``look``."""
    seen = copy(stream)
    seen.look = look
    return seen


def order_classes(classes: Sequence[int], order: str | Sequence[int]) -> list[int]:
    """Arrange label values: ``file`` (ascending), ``random:SEED``, or a list that names each class at most once.

    >>> order_classes([0, 1, 2], [2, 0])
    [2, 0]
    """
    if isinstance(order, str):
        if order == "file":
            return list(classes)
        kind, _, seed = order.partition(":")
        if kind == "random" and seed.isdecimal() and seed.isascii():
            permutation = torch.randperm(len(classes), generator=generator(int(seed), "class-order"))
            return [classes[i] for i in permutation.tolist()]
        raise InputError(f"The class order must be 'file', 'random:SEED' or a list of labels; got {order!r}.")
    wanted = [int(c) for c in order]
    unknown = [c for c in wanted if c not in set(classes)]
    if unknown:
        raise InputError(f"The class order names labels that the data set does not have: {unknown}.")
    if len(set(wanted)) < len(wanted):
        raise InputError("The class order names a label twice.")
    return wanted


def task_sizes(classes: int, tasks: int | None, classes_per_task: Sequence[int] | None) -> list[int]:
    """Number of classes of each task. A single number in ``classes_per_task`` is the size of every task.

    >>> task_sizes(10, 5, None), task_sizes(10, None, [3]), task_sizes(10, None, [5, 2, 3])
    ([2, 2, 2, 2, 2], [3, 3, 3, 1], [5, 2, 3])
    """
    if classes_per_task:
        sizes = list(classes_per_task)
        if min(sizes) < 1:
            raise InputError(f"Every task needs at least one class; got --classes-per-task {sizes}.")
        if len(sizes) == 1:
            if tasks is None:
                full, rest = divmod(classes, sizes[0])  # the last task takes what is left
                return [sizes[0]] * full + ([rest] if rest else [])
            if tasks > classes:
                raise InputError(f"{classes} classes cannot make {tasks} tasks: every task needs at least one class.")
            sizes = sizes * tasks
        if tasks is not None and tasks != len(sizes):
            raise InputError(f"--tasks {tasks} and --classes-per-task {sizes} do not agree.")
        if sum(sizes) > classes:
            raise InputError(f"--classes-per-task {sizes} needs {sum(sizes)} classes; the data set has {classes}.")
        return sizes
    count = tasks or max(1, classes // 2)
    if count < 1 or count > classes:
        raise InputError(f"{classes} classes cannot make {count} tasks: every task needs at least one class.")
    if classes % count:
        raise InputError(
            f"{classes} classes do not divide into {count} equal tasks; give the sizes with --classes-per-task, "
            "for example --classes-per-task 3,3,4."
        )
    return [classes // count] * count
