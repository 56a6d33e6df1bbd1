"""A short run of a method under observation: the real training loop, without files, screen or signals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from acr.config import RunConfig
from acr.data.stream import Task, TaskStream
from acr.launch import build
from acr.methods.method import Batch, Method
from acr.runs.writer import RunFolder
from acr.testing.poison import PoisonedStream
from acr.training.checkpoint import Checkpoints, clone_state, flatten
from acr.training.trainer import Position, Trainer

WIDTH = 4
"""Channels of the network's first stage: a step takes milliseconds."""


class Stopped(Exception):
    """The rehearsal has taken as many steps as it was to."""


class NoFolder(RunFolder):
    """A run folder that writes nothing."""

    def event(self, event: str, **values: Any) -> None:
        """Not written down."""


class Rehearsal(Trainer):
    """A method on a stream, step by step: its losses, and a look at it after every step.

    ``watch`` is called after every step and at the end of every task, when the method is between two calls.
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
        config = cls.complete_config(RunConfig(**values))
        method, context = build(config, stream, cls)
        nowhere = Path("nowhere")
        super().__init__(config, stream, method, context, [], NoFolder(nowhere, config), Checkpoints(nowhere, ""))
        self.test_images = test_images
        self.watch = watch
        self.losses: list[float | None] = []
        self.stop_after: int | None = None
        self.look_at: set[int] = set()
        """Numbers of steps after which the state is taken down in ``seen``."""
        self.seen: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        """The state of the run and that of the method, flat, after so many steps."""

    def go(self, steps: int | None = None) -> Rehearsal:
        """Learn to the end of the stream, or for so many steps more."""
        self.stop_after = None if steps is None else len(self.losses) + steps
        if steps == 0:
            return self
        try:
            while self.position.task < len(self.learned):
                task = self.learned[self.position.task]
                self.learn(task)
                self.between_tasks()
                self.position = Position(task=task.index + 1)
        except Stopped:
            pass
        return self

    def learn(self, task: Task) -> None:
        """One task, the only one whose samples may be looked at meanwhile."""
        if isinstance(self.stream, PoisonedStream):
            self.stream.open = task.index
        super().learn(task)
        if isinstance(self.stream, PoisonedStream):
            self.stream.open = None

    def after_step(self, batch: Batch, loss: Tensor | None) -> None:
        """Note the loss; this is where a real run would save itself, and where a rehearsal may stop."""
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
        if self.stop_after is not None and len(self.losses) >= self.stop_after:
            raise Stopped

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
            return dict(clone_state(self.state_dict()))
        except TypeError as error:
            raise AssertionError(f"its state cannot be saved. {error}".rstrip(".")) from error

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
