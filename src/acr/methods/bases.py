"""What methods with a replay memory share: the buffer, its policy, retrieval, and the confidence a policy may need."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from acr.config import MethodOptions, RunConfig
from acr.data.stream import Task, TaskImages
from acr.data.views import CropDraws, join
from acr.errors import InputError
from acr.memory import Buffer, ConfidenceTable
from acr.memory.policies import POLICIES, make_policy
from acr.methods.method import Batch, Context, Method
from acr.networks import Network

if TYPE_CHECKING:
    PolicyName = str
else:  # the names are listed once, by the policies' classes; help texts and validation follow
    PolicyName = Literal[tuple(POLICIES)]


class ReplayOptions(MethodOptions):
    """Options of a method whose memory follows one of the general policies."""

    sources: ClassVar[Mapping[str, str]] = {
        "policy": "the paper",
        "confidence_epochs": "the paper (E = 5)",
    }

    policy: PolicyName = "reservoir"
    """Which samples the memory keeps."""
    confidence_epochs: int | None = None
    """Number of epochs at the start of a task that record confidence (the paper's E); 5, or all epochs if fewer."""


@dataclass(frozen=True)
class ReplayDraws:
    """The draws of one replay batch: which slots of the memory, their labels, and the random view of each image."""

    slots: Tensor
    labels: Tensor
    view: CropDraws | None
    """None: the images as they are stored."""

    def __len__(self) -> int:
        return len(self.slots)


class MemoryMethod(Method):
    """A method with a buffer: ``retrieve`` before a step. The subclass decides what is stored.

    A step that needs several draws makes them first, with the functions ``draw_…``, and sends them to the device
    together (``self.context.send``).
    """

    columns: ClassVar[dict[str, tuple[int, ...]]] = {}
    """Further values stored with each sample: name to the shape of one value."""
    device_columns: ClassVar[Collection[str]] = ()
    """Those of them that the network computes and only the network needs: they are kept on the run's device."""

    def __init__(self, network: Network, options: MethodOptions, context: Context) -> None:
        super().__init__(network, options, context)
        self.buffer = Buffer(
            context.memory_capacity,
            context.image_shape,
            self.buffer_columns(),
            context.device,
            self.device_columns,
            context.codec,
        )

    def buffer_columns(self) -> dict[str, tuple[int, ...]]:
        """All further values stored with each sample: name to the shape of one value."""
        return dict(self.columns)

    def draw(self, size: int | None = None, *more: int | str) -> Tensor:
        """Slots of random stored samples, uniform without replacement.

        ``size`` is how many (a replay batch if None, fewer if the memory holds fewer). ``more`` extends the key of the
        draw, so that several draws in one step differ.
        """
        return self.buffer.draw(size or self.context.replay_size, self.context.generator("retrieve", *more))

    def draw_replay(self, slots: Tensor | None = None, *more: int | str, transform: bool = True) -> ReplayDraws:
        """The draws of a replay batch, on the host: of random stored samples, or of those at ``slots``.

        ``more`` extends the key of the random view; without ``transform`` the images are replayed as they are stored.
        """
        slots = self.draw() if slots is None else slots
        view = self.context.views.draw_replay(len(slots), self.context.generator("replay-view", *more))
        return ReplayDraws(slots, self.buffer.labels[slots], view if transform else None)

    def replay(self, draws: ReplayDraws) -> tuple[Tensor, Tensor]:
        """The images and labels of a replay batch whose draws were sent to the device."""
        images = self.buffer.images_at(draws.slots)
        return images if draws.view is None else self.context.views.replay(images, draws.view), draws.labels

    def replayed(self, slots: Tensor, *more: int | str) -> tuple[Tensor, Tensor]:
        """The stored images at ``slots`` in a random view, and their labels; ``more`` extends the key of the draw."""
        return self.replay(self.context.send(self.draw_replay(slots, *more)))

    def retrieve(self, transform: bool = True) -> tuple[Tensor, Tensor]:
        """A random replay batch and its labels: in a random view, or as stored if ``transform`` is False."""
        return self.replay(self.context.send(self.draw_replay(transform=transform)))

    def with_replay(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The augmented current images followed by a replay batch, if anything is stored, and the labels of both."""
        if not len(self.buffer):
            return batch.augmented, batch.labels
        view, draws = self.context.send((batch.draw_view(), self.draw_replay()))
        images, labels = self.replay(draws)
        return join(batch.augment(view), images), torch.cat([batch.labels, labels])

    def memory(self) -> dict[str, Tensor]:
        """The contents of the buffer."""
        return {**self.memory_as_stored(), "images": self.buffer.images}

    def memory_as_stored(self) -> dict[str, Tensor]:
        """The contents of the buffer, images as they are stored."""
        columns = {name: self.buffer.column(name) for name in self.buffer.column_names}
        return {"images": self.buffer.codes, "labels": self.buffer.labels, "tasks": self.buffer.tasks, **columns}

    def keep_in_memory(self, slots: Tensor) -> None:
        """Keep these slots of the buffer, in this order, and free the others."""
        self.buffer.keep(slots)

    def state_dict(self) -> dict[str, Any]:
        """Network, optimiser and memory."""
        return {**super().state_dict(), "buffer": self.buffer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        super().load_state_dict(state)
        self.buffer.load_state_dict(state["buffer"])


class ReplayMethod(MemoryMethod):
    """A method whose buffer follows a general policy. ``retrieve`` before a step, ``remember`` after it."""

    Options: ClassVar[type[MethodOptions]] = ReplayOptions
    options: ReplayOptions

    def __init__(self, network: Network, options: ReplayOptions, context: Context) -> None:
        self.policy = make_policy(options.policy, context.protocol.label_order)
        super().__init__(network, options, context)
        self.confidence_epochs = confidence_epochs(options.confidence_epochs, context.epochs)
        if self.policy.needs_confidence and self.confidence_epochs == 1 and options.policy == "challenging":
            warnings.warn("With one confidence epoch there is no variance: samples are kept in random order.",
                          stacklevel=2)  # fmt: skip

    @classmethod
    def complete_config(cls, config: RunConfig) -> RunConfig:
        """Record the number of confidence epochs that applies.

        It is None for a policy that needs no confidence, so that the option does not change the identity of such a run.
        """
        assert isinstance(config.options, ReplayOptions)
        epochs = confidence_epochs(config.options.confidence_epochs, config.epochs)
        in_force = epochs if POLICIES[config.options.policy].needs_confidence else None
        return config.model_copy(update={"options": config.options.model_copy(update={"confidence_epochs": in_force})})

    def buffer_columns(self) -> dict[str, tuple[int, ...]]:
        """The columns of the method and those of the policy."""
        return {**self.columns, **self.policy.columns}

    def begin_task(self, task: Task) -> None:
        """Start an empty confidence table for the samples of the task, if the policy needs one."""
        needed = self.policy.needs_confidence
        self.confidence = ConfidenceTable(len(task), self.confidence_epochs, self.context.device) if needed else None

    def record_confidence(self, batch: Batch, confidence: Tensor | None = None) -> None:
        """Record Γ_e = softmax(s(x))_y of each sample in the first E epochs, if the policy needs it.

        ``confidence`` holds one value per sample of the batch. If it is None, it is computed in a separate pass over
        the plain images in evaluation mode, with the softmax over all outputs of the network.
        """
        if self.confidence is None or batch.epoch >= self.confidence.epochs:
            return
        if confidence is None:
            confidence = own_class_confidence(self.network, batch.plain, batch.labels)
        self.confidence.record(batch.epoch, batch.indices, confidence)

    def remember(self, batch: Batch, images: Tensor | None = None, **columns: Tensor) -> None:
        """Offer a batch to the memory, its plain images unless others are given, with further columns."""
        stored = batch.plain if images is None else images
        draws = self.context.generator("policy")
        self.policy.observe(self.buffer, stored, batch.labels_on_host, batch.task, draws, **columns)

    def end_task(self, task: Task) -> None:
        """Let the policy rebuild the memory, if it is one that does so at the end of a task."""
        draws = self.context.generator("policy")
        self.policy.end_task(self.buffer, TaskImages(task), task.targets, task.index, draws, self.confidence)

    def state_dict(self) -> dict[str, Any]:
        """Network, optimiser, memory, policy and confidence."""
        confidence = None if self.confidence is None else self.confidence.state_dict()
        return {**super().state_dict(), "policy": self.policy.state_dict(), "confidence": confidence}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        super().load_state_dict(state)
        self.policy.load_state_dict(state["policy"])
        self.confidence = None
        if state["confidence"] is not None:
            self.confidence = ConfidenceTable(0, self.confidence_epochs, self.context.device)
            self.confidence.load_state_dict(state["confidence"])


def confidence_epochs(wanted: int | None, epochs: int) -> int:
    """Number of confidence epochs (E): as ``wanted``, or 5, or all ``epochs`` of a task if there are fewer than 5."""
    if wanted is None:
        return min(5, epochs)
    if not 1 <= wanted <= epochs:
        raise InputError(f"--confidence-epochs {wanted} must be between 1 and the epochs of a task, {epochs}.")
    return wanted


@torch.no_grad()
def own_class_confidence(network: Network, images: Tensor, labels: Tensor) -> Tensor:
    """Γ = softmax(s(x))_y, the probability of each image's own class, in evaluation mode: one value per image."""
    was_training = network.training
    network.eval()
    probability = network(images).softmax(1)
    network.train(was_training)
    return probability.gather(1, labels[:, None]).squeeze(1)
