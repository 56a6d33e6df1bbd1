"""One visit: a method learns the images that have arrived, as one task of a stream without an end."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch

from acr.config import RunConfig
from acr.data.images import ImageSet
from acr.data.stream import OpenStream
from acr.errors import AcrError
from acr.methods.method import Method
from acr.randomness import generator
from acr.storage.signals import StopSignal
from acr.training.checkpoint import clone_state
from acr.training.devices import image_device
from acr.training.finite import not_finite
from acr.training.loop import EpochEnd, TrainingLoop
from acr.training.loss_record import LossRecord, LostLoss
from acr.training.progress import RunProgress

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EarlyStop:
    """When to stop before all epochs are over: accuracy on held-out images has not risen for ``patience`` epochs."""

    accuracy: Callable[[Method], float]
    """Accuracy of the method on the held-out images, as it is now."""
    patience: int


@dataclass(frozen=True)
class Learned:
    """What there is to say about a visit."""

    epochs: int
    """Epochs that count: with early stopping, up to the best one."""
    loss: float | None
    """The last loss; None for a method whose steps have none."""
    held_out: float | None
    """Accuracy on the held-out images after the epoch that counts; None if none were held out."""
    seconds: float


def learn(
    method: Method,
    train: ImageSet,
    earlier: Sequence[Sequence[int]],
    config: RunConfig,
    early_stop: EarlyStop | None = None,
) -> Learned:
    """Let a method learn one more task. It is changed; whoever wants to go back keeps the one it was made from.

    Args:
        method: the method, with an output for every class.
        train: the images; labels are outputs of the network.
        earlier: outputs of every earlier task.
        config: how it learns.
        early_stop: when to stop before all epochs are over, if at all.

    With early stopping the method ends as if training had ended after its best epoch: everything it keeps, its memory
    too, goes back to that epoch before the task is ended.
    """
    stream = OpenStream(train, earlier)
    place = image_device(method.context.device, config.data_device, train.images.nbytes)
    loop = TrainingLoop(stream, method, method.context, config.rate_in_epoch, place)
    loop.cursor.task = stream.newest.index
    losses, best, began = LossRecord(), _Best(), time.monotonic()
    last_loss: float | None = None
    epochs = config.epochs
    task = loop.tasks[loop.cursor.task]
    steps = loop.steps_per_epoch(task) * config.epochs
    with RunProgress(steps, quiet=config.quiet) as progress, StopSignal() as stop:
        for event in loop.learn(task):
            if isinstance(event, EpochEnd):
                last_loss = _read(losses)
                if early_stop is not None and _may_stop(method, event.epoch):
                    best.offer(early_stop.accuracy(method), event.epoch, method)
                    if event.epoch - best.epoch >= early_stop.patience or event.epoch + 1 == config.epochs:
                        method.load_state_dict(best.state)
                        epochs, loop.enough = best.epoch + 1, True
            else:
                where = f"epoch {event.batch.epoch + 1}/{config.epochs}"
                losses.add(f"{where}, step {event.batch.step + 1}", event.loss)
                if event.batch.step % config.log_every == 0:
                    _read(losses)
                progress.step(where, losses.newest, config.batch_size)
            if stop.received is not None:
                _end(stop.received)
    _check_finite(method)
    return Learned(epochs, last_loss, best.accuracy, time.monotonic() - began)


class _Best:
    """The state of the method after its best epoch so far."""

    def __init__(self) -> None:
        self.accuracy: float | None = None
        self.epoch = 0
        self.state: dict[str, Any] = {}

    def offer(self, accuracy: float, epoch: int, method: Method) -> None:
        """Keep the state if no earlier epoch was as good."""
        if self.accuracy is None or accuracy > self.accuracy:
            self.accuracy, self.epoch, self.state = accuracy, epoch, clone_state(method.state_dict())


def _may_stop(method: Method, epoch: int) -> bool:
    """Whether a task may end after this epoch: a method that records confidence needs all epochs of that first."""
    return method.confidence is None or epoch + 1 >= method.confidence.epochs


def _read(losses: LossRecord) -> float | None:
    try:
        return losses.read()
    except LostLoss as lost:
        raise AcrError(_diverged(f"The loss became {lost.value} at {lost.where}")) from None


def _end(number: int) -> NoReturn:
    """End as the signal asks, between two steps: what Ctrl-C raises inside a library may get lost there."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _check_finite(method: Method) -> None:
    """Refuse weights that are not numbers."""
    state = method.state_dict()
    lost = not_finite({name: state[name] for name in ("network", "optimizer") if name in state})
    if lost:
        raise AcrError(_diverged(f"{lost[0]} became infinite or NaN"))


def _diverged(what: str) -> str:
    return (
        f"{what}. The classifier is as it was before this call. Try a smaller learning_rate, and look at the images "
        "and labels."
    )


def hold_out(columns: Rows, fraction: float, seed: int, visit: int) -> tuple[Rows, Rows]:
    """Positions to learn from and positions to hold out: a fraction of each class, drawn with a key of their own.

    A class with a single image is learned from, not held out.
    """
    held: list[int] = []
    for column in np.unique(columns).tolist():
        rows = np.flatnonzero(columns == column)
        order = torch.randperm(len(rows), generator=generator(seed, "held-out", visit, column)).numpy()
        count = min(len(rows) - 1, max(1, math.floor(fraction * len(rows) + 0.5)))
        held += rows[order[:count]].tolist()
    out = np.array(sorted(held), dtype=np.int64)
    return np.setdiff1d(np.arange(len(columns)), out), out
