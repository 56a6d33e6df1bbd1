"""A short run of a method under observation: the real training loop, without files, screen or signals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from acr.config import RunConfig, validated
from acr.data.stream import Task, TaskStream
from acr.launch import build_loop
from acr.methods.method import Method
from acr.testing.poison import PoisonedStream
from acr.training.checkpoint import clone_state, flatten
from acr.training.loop import Cursor, EpochEnd, Step
from acr.values import OFF, RESNET18

WIDTH = 4
"""Channels of the network's first stage: a step takes milliseconds."""


class Rehearsal:
    """A method on a stream, step by step: records its losses and calls ``watch`` after every step.

    Args:
        cls: the method; it need not be registered.
        stream: what it learns.
        options: options of the method; by default its own defaults.
        test_images: scored after every task, where a real run evaluates.
        network: the encoder, as in :func:`acr.run`.
        average_weights: half-life of the weights' average, as in :func:`acr.run`.
        images_per_place: images that share a place of the memory, as in :func:`acr.run`.
        watch: called after every step and at the end of every task, between two calls of the method.
    """

    def __init__(
        self,
        cls: type[Method],
        stream: TaskStream,
        options: dict[str, Any] | None = None,
        *,
        network: str | Callable[..., nn.Module] = RESNET18,
        batch_size: int = 8,
        buffer_size: int = 18,
        epochs: int = 2,
        learning_rate: float = 0.03,
        average_weights: str = OFF,
        images_per_place: int = 1,
        test_images: Tensor | None = None,
        watch: Callable[[Rehearsal], None] | None = None,
    ) -> None:
        values: dict[str, Any] = {
            "method": cls.name,
            "options": cls.Options(**(options or {})),
            "device": "cpu",
            "quiet": True,
            "network": network,
            "width": WIDTH,
            "epochs": epochs,
            "batch_size": batch_size,
            "replay_size": batch_size,
            "buffer_size": buffer_size if cls.uses_memory else 0,
            "learning_rate": learning_rate,
            "average_weights": average_weights,
            "images_per_place": images_per_place,
        }
        self.stream = stream
        self.loop = build_loop(cls.complete_config(validated(RunConfig, values)), stream, cls)
        self.method, self.context = self.loop.method, self.loop.context
        self.test_images = test_images
        self.watch = watch
        self.losses: list[float | None] = []
        self.record_at: set[int] = set()
        """Numbers of steps after which the state is copied into ``recorded``."""
        self.recorded: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        """By number of steps: the state of the run, and the state of the method as in :meth:`tensors`."""

    def go(self, steps: int | None = None) -> Rehearsal:
        """Learn to the end of the stream, or for ``steps`` more steps; returns itself."""
        # Task by task, instead of by iterating over the loop: a poisoned stream is opened for one task at a time.
        last = None if steps is None else len(self.losses) + steps
        while self.loop.cursor.task < len(self.loop.tasks) and (last is None or len(self.losses) < last):
            task = self.loop.tasks[self.loop.cursor.task]
            for event in self.learn(task):
                if isinstance(event, Step):
                    self.after_step(event)
                    if len(self.losses) == last:
                        return self
            self.between_tasks()
            self.loop.cursor = Cursor(task=task.index + 1)
        return self

    def learn(self, task: Task) -> Iterator[Step | EpochEnd]:
        """Learn one task, the only one whose samples may be accessed meanwhile."""
        tasks = self.loop.tasks
        if isinstance(tasks, PoisonedStream):
            tasks.open = task.index
        yield from self.loop.learn(task)
        if isinstance(tasks, PoisonedStream):
            tasks.open = None

    def after_step(self, step: Step) -> None:
        """Record the loss, and watch the method where a real run would save a checkpoint."""
        batch, loss = step.batch, step.loss
        where = f"task {batch.task}, epoch {batch.epoch}, step {batch.step}"
        if loss is None:
            self.losses.append(None)
        else:
            assert isinstance(loss, Tensor), f"observe returned {type(loss).__name__} at {where}, not a tensor or None"
            assert loss.numel() == 1, f"observe returned a loss of shape {tuple(loss.shape)} at {where}, not one number"
            value = float(loss)
            assert math.isfinite(value), f"the loss is {value} at {where}"
            self.losses.append(value)
        if self.watch:
            self.watch(self)
        if len(self.losses) in self.record_at:
            self.recorded[len(self.losses)] = (self.copy_of_state(), self.tensors())

    def between_tasks(self) -> None:
        """Score the test images, where a real run evaluates."""
        if self.watch:
            self.watch(self)
        if self.test_images is not None:
            self.scores(self.test_images)

    @torch.inference_mode()
    def scores(self, images: Tensor) -> Tensor:
        """The method's scores of images."""
        with self.method.answering():
            return self.method.logits(images)

    def copy_of_state(self) -> dict[str, Any]:
        """A copy of what a checkpoint would hold."""
        try:
            return dict(clone_state({"cursor": dict(vars(self.loop.cursor)), "method": self.method.state_dict()}))
        except TypeError as error:
            raise AssertionError(f"its state cannot be saved. {error}".rstrip(".")) from error

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore a state from :meth:`copy_of_state`."""
        self.loop.cursor = Cursor(**state["cursor"])
        self.method.load_state_dict(state["method"])

    def tensors(self) -> dict[str, Any]:
        """The state of the method: every tensor by its path, and everything else as one piece of text."""
        tensors: dict[str, Tensor] = {}
        rest = flatten(self.method.state_dict(), tensors)
        return {**{name: value.clone() for name, value in tensors.items()}, "numbers and text": repr(rest)}


def first_difference(a: Sequence[float | None], b: Sequence[float | None]) -> str | None:
    """The first difference between two series of losses, as text; None if they are equal."""
    for step, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return f"step {step}: {one} and {other}"
    return None if len(a) == len(b) else f"{len(a)} and {len(b)} steps"


def different_tensors(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Names of the parts of two states that are not equal, bit for bit."""

    def same(one: Any, other: Any) -> bool:
        if isinstance(one, Tensor) and isinstance(other, Tensor):
            return one.dtype == other.dtype and one.shape == other.shape and _bits(one) == _bits(other)
        return bool(one == other)

    return [name for name in sorted({*a, *b}) if name not in a or name not in b or not same(a[name], b[name])]


def _bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
