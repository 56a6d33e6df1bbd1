"""A stream in which only the current task can be accessed.

Every task comes with the rows of all other tasks replaced by noise, in arrays that raise an error when such a row is
accessed. A method that bypasses the error learns from the noise, which shows when its run is compared with one on the
original stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from acr.data.images import DataSet, ImageSet
from acr.data.stream import Task, TaskStream

Guard = Callable[[npt.NDArray[np.int64]], None]


class Peeked(AssertionError):
    """The method accessed something that it must not see."""


class GuardedArray(np.ndarray[Any, Any]):
    """An array that calls a guard with the rows that are accessed; an operation on the array accesses all rows."""

    guard: Guard | None = None

    def __getitem__(self, key: Any) -> Any:
        if self.guard is not None:
            first = key[0] if isinstance(key, tuple) else key
            self.guard(np.atleast_1d(np.arange(len(self))[first]))
        return np.ndarray.__getitem__(np.asarray(self), key)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        self._as_a_whole()
        return getattr(ufunc, method)(*(np.asarray(i) if isinstance(i, GuardedArray) else i for i in inputs), **named)

    def __array_function__(self, function: Any, types: Any, arguments: Any, named: Any) -> Any:
        self._as_a_whole()
        plain = [np.asarray(a) if isinstance(a, GuardedArray) else a for a in arguments]
        return function(*plain, **named)

    def _as_a_whole(self) -> None:
        if self.guard is not None:
            self.guard(np.arange(len(self)))


def guarded(images: ImageSet, guard: Guard) -> ImageSet:
    """The same images, with ``guard`` called before each access."""
    result = ImageSet(images.images.view(GuardedArray), images.labels.view(GuardedArray), images.class_names)
    for array in (result.images, result.labels):
        assert isinstance(array, GuardedArray)
        array.guard = guard
    return result


class PoisonedStream(TaskStream):
    """Tasks in a training set whose other rows are noise; neither these nor the test set may be read."""

    def __init__(self, data: DataSet, tasks: Any) -> None:
        super().__init__(data, tasks)
        self.open: int | None = None
        """The task that is being learned, None between tasks."""
        self.rows = [self.data.train.of_classes(classes) for classes in self.task_classes]

        def no_test(rows: npt.NDArray[np.int64]) -> None:
            raise Peeked("the method looked at the test set")

        self.data = DataSet(data.name, data.train, guarded(data.test, no_test), data.mean, data.std)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> TaskStream: ...
    def __getitem__(self, index: int | slice) -> Task | TaskStream:
        if isinstance(index, slice):
            return PoisonedStream(self.data, self.task_classes[index])
        number = range(len(self))[index]
        train, mine = self.data.train, self.rows[number]
        rng = np.random.default_rng([0, number])
        images = rng.integers(0, 256, train.images.shape, dtype=np.uint8)
        labels = rng.choice(np.asarray(self.classes), len(train))
        images[mine], labels[mine] = train.images[mine], train.labels[mine]

        def guard(asked: npt.NDArray[np.int64]) -> None:
            if self.open == number and np.isin(asked, mine).all():
                return
            when = "between two tasks" if self.open is None else f"while task {self.open} was learned"
            if self.open is not None and self.open != number:
                raise Peeked(f"the method looked at samples of task {number} {when}")
            others = [t for t, rows in enumerate(self.rows) if t != number and np.isin(asked, rows).any()]
            what = f"samples or labels of tasks {others}" if others else f"samples of task {number}"
            raise Peeked(f"the method looked at {what} {when}")

        classes = self.task_classes[number]
        return Task(number, classes, self.columns(number), guarded(ImageSet(images, labels), guard), mine, self.look)

    def merged(self) -> TaskStream:
        """Not possible here: a method that sees all tasks at once accesses future ones by definition."""
        raise Peeked("the method is trained on all tasks at once (sees_all_tasks)")
