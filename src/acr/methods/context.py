"""What a method is given: batches of the current task, and the context of its run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from acr.data.views import CropDraws, Views
from acr.memory.codec import Codec
from acr.networks import Network
from acr.protocols import Protocol
from acr.randomness import Position
from acr.transfer import Tree, send


@dataclass(frozen=True)
class Batch:
    """A batch of the current task."""

    indices: Tensor
    """Positions of the samples inside the task, 0..n-1. This and the next two are on the run's device."""
    plain: Tensor
    """The images as they are, uint8."""
    labels: Tensor
    """Classes of the images, as output columns of the network."""
    position: Position
    """Where in the run the batch occurs, and the source of its draws."""
    views: Views = field(repr=False)
    host_labels: Tensor | None = field(default=None, repr=False)
    """The labels once more, on the host, for decisions that are made there; None: ``labels`` are there already."""

    @property
    def labels_on_host(self) -> Tensor:
        """The labels, without waiting for the device."""
        return self.labels if self.host_labels is None else self.host_labels

    @property
    def task(self) -> int:
        """Number of the task, from 0."""
        return self.position.task

    @property
    def epoch(self) -> int:
        """Number of the epoch in its task, from 0."""
        return self.position.epoch

    @property
    def step(self) -> int:
        """Number of the batch in its epoch, from 0."""
        return self.position.step

    @cached_property
    def augmented(self) -> Tensor:
        """The data set's random crop (and flip) of every image, uint8."""
        return self.views.crop_flip(self.plain, send(self.draw_view(), self.plain.device))

    def draw_view(self) -> CropDraws:
        """The draws of :attr:`augmented`, on the host, for a method that sends all draws of a step together."""
        return self.views.draw_crop_flip(len(self), self.position.generator("augment"))

    def augment(self, draws: CropDraws) -> Tensor:
        """:attr:`augmented`, made from draws that were sent already."""
        self.__dict__["augmented"] = self.views.crop_flip(self.plain, draws)
        return self.augmented

    def __len__(self) -> int:
        return len(self.indices)


@dataclass
class Context:
    """What a run provides to its method."""

    seed: int
    buffer_size: int
    batch_size: int
    epochs: int
    learning_rate: float
    image_shape: tuple[int, int, int]
    views: Views
    build_network: Callable[[str], Network]
    """Builds a newly initialised network like the run's. Its argument, a purpose, keys the initialisation."""
    momentum: float = 0.0
    weight_decay: float = 0.0
    replay_size: int = 32
    """Number of memory samples in a step."""
    codec: Codec | None = None
    """How the memory stores images, if several share a place; the images of every task have been through it."""
    tasks: int | None = None
    """Number of tasks of the stream, where known."""
    classes: int | None = None
    """Number of classes of the stream, where known."""
    protocol: Protocol = field(default_factory=Protocol)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    scaler: torch.amp.GradScaler | None = None
    """Scales the loss in 16-bit precision, where small gradients would vanish."""
    position: Position = field(init=False)
    """The current position in the run, updated by the training loop."""
    seen: list[int] = field(default_factory=list)
    """Output columns of the classes seen so far, in order of arrival, including those of the current task."""

    def __post_init__(self) -> None:
        self.position = Position(self.seed)

    @property
    def task(self) -> int:
        """Number of the current task, from 0."""
        return self.position.task

    @property
    def memory_capacity(self) -> int:
        """Number of samples that the memory can hold: its places, times the images that share one."""
        return self.buffer_size * self.per_place

    @property
    def per_place(self) -> int:
        """Images that share a place of the memory."""
        return 1 if self.codec is None else self.codec.per_place

    def send(self, tree: Tree) -> Tree:
        """Draws of a step (nested tuples, lists and dataclasses of host tensors) on the run's device, in one copy."""
        return send(tree, self.device)

    def generator(self, purpose: str, *more: int | str) -> torch.Generator:
        """A generator for this purpose at the current position, which always gives the same draws.

        ``more`` extends the key, so that several draws for one purpose in one step differ.
        """
        return self.position.generator(purpose, *more)
