"""A short run of a method under observation: the real training loop, without files, screen or signals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from acr.config import RunConfig
from acr.data.stream import Task, TaskStream
from acr.launch import build_loop
from acr.methods.method import Method
from acr.testing.poison import PoisonedStream
from acr.training.checkpoint import clone_state, flatten
from acr.training.loop import Cursor, EpochEnd, Step

WIDTH = 4
"""Channels of the network's first stage: a step takes milliseconds."""


class Rehearsal:
    """A method on a stream, step by step: its losses, and a look at it after every step.

    Args:
        cls: the method; it need not be registered.
        stream: what it learns.
        options: options of the method, the defaults if not given.
        test_images: scored between two tasks, where a real run evaluates.
        watch: called after every step and at the end of every task, when the method is between two calls.
    """

    def __init__(
        self,
        cls: type[Method],
        stream: TaskStream,
        options: dict[str, Any] | None = None,
        *,
        batch_size: int = 8,
        buffer_size: int = 18,
        epochs: int = 2,
        learning_rate: float = 0.03,
        test_images: Tensor | None = None,
        watch: Callable[[Rehearsal], None] | None = None,
    ) -> None:
        values: dict[str, Any] = {
            "method": cls.name,
            "options": cls.Options(**(options or {})),
            "device": "cpu",
            "quiet": True,
            "width": WIDTH,
            "epochs": epochs,
            "batch_size": batch_size,
            "replay_size": batch_size,
            "buffer_size": buffer_size if cls.uses_memory else 0,
            "learning_rate": learning_rate,
        }
        self.stream = stream
        self.loop = build_loop(cls.complete_config(RunConfig(**values)), stream, cls)
        self.method, self.context = self.loop.method, self.loop.context
        self.test_images = test_images
        self.watch = watch
        self.losses: list[float | None] = []
        self.look_at: set[int] = set()
        """Numbers of steps after which the state is copied into ``seen``."""
        self.seen: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        """The state of the run and that of the method, flat, after so many steps."""

    def go(self, steps: int | None = None) -> Rehearsal:
        """Learn to the end of the stream, or for so many steps more."""
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
        """One task, the only one whose samples may be looked at meanwhile."""
        if isinstance(self.stream, PoisonedStream):
            self.stream.open = task.index
        yield from self.loop.learn(task)
        if isinstance(self.stream, PoisonedStream):
            self.stream.open = None

    def after_step(self, step: Step) -> None:
        """Note the loss, and look at the method where a real run would save itself."""
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
        if len(self.losses) in self.look_at:
            self.seen[len(self.losses)] = (self.copy_of_state(), self.tensors())

    def between_tasks(self) -> None:
        """Where a real run evaluates."""
        if self.watch:
            self.watch(self)
        if self.test_images is not None:
            self.scores(self.test_images)

    @torch.inference_mode()
    def scores(self, images: Tensor) -> Tensor:
        """What the method says about images."""
        self.method.network.eval()
        return self.method.logits(images)

    def copy_of_state(self) -> dict[str, Any]:
        """What a checkpoint would hold."""
        try:
            return dict(clone_state({"cursor": dict(vars(self.loop.cursor)), "method": self.method.state_dict()}))
        except TypeError as error:
            raise AssertionError(f"its state cannot be saved. {error}".rstrip(".")) from error

    def load_state(self, state: dict[str, Any]) -> None:
        """Back to a state that was copied."""
        self.loop.cursor = Cursor(**state["cursor"])
        self.method.load_state_dict(state["method"])

    def tensors(self) -> dict[str, Any]:
        """The state of the method, flat: every tensor by its path, and the rest as one piece of text."""
        tensors: dict[str, Tensor] = {}
        rest = flatten(self.method.state_dict(), tensors)
        return {**{name: value.clone() for name, value in tensors.items()}, "numbers and text": repr(rest)}


def first_difference(a: Sequence[float | None], b: Sequence[float | None]) -> str | None:
    """Where two series of losses part, in words; None if they are equal."""
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
