"""The training loop: every batch of every task, one optimiser step at a time.

It is a generator, with no files, no signals and no progress bar in it. Whoever consumes it decides what happens between
two steps: the trainer saves, logs and evaluates, the conformance suite looks at the method, the cost estimate looks at
the clock. Nothing here knows what a method does inside ``observe``. Every draw is keyed by its position in the run, so
the loop can be left after any step and resumed from a saved cursor as if nothing had happened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from acr.data.stream import OpenStream, Task, TaskStream, seen_through
from acr.methods.method import Batch, Context, Method
from acr.randomness import Position, generator, keyed_global
from acr.transfer import send


@dataclass
class Cursor:
    """The step to take next. ``step`` counts within the epoch; ``started``: the method began the task."""

    task: int = 0
    epoch: int = 0
    step: int = 0
    started: bool = False


@dataclass(frozen=True)
class Step:
    """A step was taken on this batch. ``loss`` is a tensor on the run's device, None if the method only collected."""

    batch: Batch
    loss: Tensor | None


@dataclass(frozen=True)
class EpochEnd:
    """All batches of an epoch were observed."""

    task: Task
    epoch: int


@dataclass(frozen=True)
class TaskEnd:
    """A task was learned, and its memory was updated."""

    task: Task


SEEN_BYTES = 2**30
"""A larger task's images are looked through batch by batch, epoch after epoch."""


class TaskData:
    """The training samples of one task, as close to the network as they can be.

    On a CPU images are read from where they are, in memory or mapped from a file; those that are seen through something
    are so once per task instead of once per epoch, unless they would take too much memory. On an accelerator the labels
    are on the device, and so are the images if ``data_device`` says so; otherwise each batch is copied over, from
    pinned memory, while the device works on the one before.
    """

    def __init__(self, task: Task, device: torch.device, data_device: torch.device) -> None:
        self.task = task
        self.device = device
        self.labels = task.targets.to(device)
        self.images = task.images().to(device) if data_device.type != "cpu" else None
        size = len(task) * math.prod(task.train.image_shape)
        self.seen = task.images() if self.images is None and task.look is not None and size <= SEEN_BYTES else None

    def samples(self, indices: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Images and labels by their number in the task, given on the host and ``there``, on the device."""
        labels = self.labels.index_select(0, there)
        if self.images is not None:
            return self.images.index_select(0, there), labels
        images = self.task.images(indices) if self.seen is None else self.seen[indices]
        if self.device.type == "cuda":
            images = images.pin_memory()
        return images.to(self.device, non_blocking=True), labels


class TrainingLoop:
    """A method learns a stream. Iterating takes steps from the cursor on.

    ``rate`` maps an epoch to its learning rate, the same in every task; without it the optimiser's rate is not changed.
    ``data_device`` is where the images of the current task are kept: the run's device, or the host if they do not fit.
    """

    def __init__(
        self,
        stream: TaskStream | OpenStream,
        method: Method,
        context: Context,
        rate: Callable[[int], float] | None = None,
        data_device: torch.device | None = None,
    ) -> None:
        if method.sees_all_tasks:
            assert isinstance(stream, TaskStream)  # a stream without an end has no whole
            stream = stream.merged()
        self.tasks = stream if context.codec is None else seen_through(context.codec.as_stored, stream)
        """The tasks as this method sees them."""
        self.method = method
        self.context = context
        self.rate = rate
        self.data_device = data_device or context.device
        """Where the images of the current task are kept."""
        self.cursor = Cursor()
        self.enough = False
        """Set between two epochs to end the task there, as if it had no further ones."""
        self._data: TaskData | None = None

    def __iter__(self) -> Iterator[Step | EpochEnd | TaskEnd]:
        while self.cursor.task < len(self.tasks):
            task = self.tasks[self.cursor.task]
            yield from self.learn(task)
            # The cursor moves on before the task's end is announced: a checkpoint made then begins with the next task.
            self.cursor = Cursor(task=task.index + 1)
            yield TaskEnd(task)

    def learn(self, task: Task) -> Iterator[Step | EpochEnd]:
        """All epochs of one task, from the cursor on, and then the method's end of the task."""
        cursor = self.cursor
        if not cursor.started:  # a run resumed in the middle of a task has what begin_task set in its state
            self.begin_task(task)
            cursor.started = True
        for epoch in range(cursor.epoch, self.context.epochs):
            for step in self.steps(task, epoch, cursor.step):
                # The cursor moves before the yield: whoever we yield to may save it in a checkpoint.
                cursor.epoch, cursor.step = epoch, step.batch.step + 1
                yield step
            self.place(task, epoch, cursor.step)
            with self.encoder_draws():
                self.method.end_epoch()
            cursor.epoch, cursor.step = epoch + 1, 0
            yield EpochEnd(task, epoch)
            if self.enough:
                break
        self.end_task(task)

    def task_data(self, task: Task) -> TaskData:
        """The task's training samples where the network can reach them; those of the task before are let go."""
        if self._data is None or self._data.task is not task:
            self._data = None  # first, so that two tasks never take up memory together
            self._data = TaskData(task, self.context.device, self.data_device)
        return self._data

    def begin_task(self, task: Task) -> None:
        """Let the method begin a task."""
        self.place(task)
        self.method.begin_task(task)

    def steps(self, task: Task, epoch: int, first: int = 0) -> Iterator[Step]:
        """The steps of one epoch, from number ``first`` on. The cursor is not moved."""
        if self.rate is not None:
            for group in self.method.optimizer.param_groups:
                group["lr"] = self.rate(epoch)
        for batch in self.batches(task, epoch, first):
            self.place(task, epoch, batch.step)
            self.method.network.train()  # an evaluation may have left it in evaluation mode
            with self.encoder_draws():
                loss = self.method.observe(batch)
            if self.method.average is not None:
                steps = self.steps_per_epoch(task) * self.context.epochs
                self.method.average.update(self.method.network, steps, task.index + 1)
            yield Step(batch, loss)

    def end_task(self, task: Task) -> None:
        """Let the method end a task; most methods update their memory now."""
        self.place(task, self.context.epochs)
        with self.encoder_draws():
            self.method.end_task(task)

    def encoder_draws(self) -> AbstractContextManager[None]:
        """Within it, what dropout draws from the global generator is keyed by the position, like all other draws."""
        at = self.context.position
        if not self.method.network.draws:
            return nullcontext()
        return keyed_global(at.seed, "encoder", at.task, at.epoch, at.step)

    def batches(self, task: Task, epoch: int, first: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, in an order keyed by task and epoch; the last one may be smaller."""
        size, data = self.context.batch_size, self.task_data(task)
        order = torch.randperm(len(task), generator=generator(self.context.seed, "shuffle", task.index, epoch))
        there = send(order, self.context.device)  # the order of a whole epoch goes to the device in one copy
        for step in range(first, self.steps_per_epoch(task)):
            chosen = slice(step * size, (step + 1) * size)
            images, labels = data.samples(order[chosen], there[chosen])
            position = Position(self.context.seed, task.index, epoch, step)
            yield Batch(there[chosen], images, labels, position, self.context.views, task.targets[order[chosen]])

    def place(self, task: Task, epoch: int = 0, step: int = 0) -> None:
        """Record in the method's context where the run is, and which classes have been seen."""
        self.context.position = Position(self.context.seed, task.index, epoch, step)
        seen = [column for earlier in range(task.index + 1) for column in self.tasks.columns(earlier)]
        self.context.seen = list(dict.fromkeys(seen))

    def steps_per_epoch(self, task: Task) -> int:
        """Number of batches per epoch, including a smaller last one."""
        return math.ceil(len(task) / self.context.batch_size)

    def steps_in_all(self) -> int:
        """Number of steps of the whole run."""
        return sum(self.steps_per_epoch(task) for task in self.tasks) * self.context.epochs

    def steps_taken(self) -> int:
        """Number of steps taken since the start of the run."""
        cursor = self.cursor
        taken = sum(self.steps_per_epoch(self.tasks[t]) * self.context.epochs for t in range(cursor.task))
        if cursor.task < len(self.tasks):
            taken += cursor.epoch * self.steps_per_epoch(self.tasks[cursor.task]) + cursor.step
        return taken
