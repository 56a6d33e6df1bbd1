"""MetaSP: example influence on stability and plasticity.

In the last epochs of a task, a virtual step measures for every sample of a batch whether a larger weight on it would
lower the loss on stored samples (stability) and on current ones (plasticity). The two influences are merged into one
that serves both. It weights the losses of the samples, and its running mean decides which samples are stored and which
are replaced. Sun, Lyu, Shang, Feng and Wan, "Exploring Example Influence in Continual Learning", NeurIPS 2022.

As in the paper's comparison, a task is first trained without replay; only its last ``replay_epochs`` epochs work as
above: 5 of the paper's 50, and a tenth of any other number. The first task has no such phase, so that its samples are
chosen by their clusters alone. Influences come from
a forward-mode derivative along the validation gradient, without a second-order graph. Plain images are stored and
replayed in a random view; validation images are plain. The released program stores the augmented view and replays it
unchanged (the quirk ``frozen-replay``), and at the end of a task it inserts random samples in place of the chosen ones
(``shuffled-metasp``). While the memory has room, chosen samples fill it before they replace any.

Notation: ε_i is a weight on sample i of a batch, ℓ_i its loss, V_S and V_P the validation sets for stability and
plasticity, g_S and g_P the influences on them, g* the merged influence.

Measure it: ``acr run --method metasp --dataset split-cifar100``
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from acr.config import MethodOptions, Precision, RunConfig
from acr.data.stream import Task
from acr.data.views import join
from acr.errors import InputError
from acr.methods.bases import MemoryMethod
from acr.methods.maths.influence import influences, kmeans_pick, loss_weights, normalise, pareto_weights
from acr.methods.method import Batch, Context
from acr.networks import Network

UNKNOWN = 1.0
"""Influence of a sample that has not been measured yet: worse than most."""


class MetaSPOptions(MethodOptions):
    """Options of MetaSP."""

    revision: ClassVar[int] = 2
    """1: a reservoir sample was stored of the first task, and 5 epochs replayed however few there were."""
    sources: ClassVar[Mapping[str, str]] = {
        "replay_epochs": "the paper's released program (5 of 50), in proportion to the epochs",
        "validation_share": "the paper's released program",
    }
    replay_epochs: int | None = Field(None, ge=0)
    """Number of epochs with replay at the end of a task; by default a tenth of all, at least 1 (the paper: 5 of 50)."""
    validation_share: float = Field(0.1, gt=0, le=1)
    """Size of each validation set as a share of the memory."""


class MetaSP(MemoryMethod):
    """Replay weighted by influence, from a memory chosen by influence."""

    name = "metasp"
    label = "MetaSP"
    summary = "MetaSP: samples weighted and stored by their influence on old and new tasks"
    # Forward-mode derivatives know no autocast.
    precisions: ClassVar[Collection[Precision]] = frozenset[Precision](("32",))
    Options: ClassVar[type[MethodOptions]] = MetaSPOptions
    options: MetaSPOptions
    uses_last_epochs = True  # it replays in them only
    columns: ClassVar[dict[str, tuple[int, ...]]] = {"influence": (), "visits": ()}
    device_columns: ClassVar[Collection[str]] = ("influence", "visits")

    def __init__(self, network: Network, options: MetaSPOptions, context: Context) -> None:
        super().__init__(network, options, context)
        self.frozen = "frozen-replay" in context.protocol
        self.store = _Store(0, context.image_shape, context.device)
        """The samples of the current task and their influences."""
        self.largest_store = 0
        """Bytes of images in the largest store so far."""

    @classmethod
    def complete_config(cls, config: RunConfig) -> RunConfig:
        """Fill in the number of epochs with replay."""
        options = config.options
        assert isinstance(options, MetaSPOptions)
        epochs = replay_epochs(options.replay_epochs, config.epochs)
        return config.model_copy(update={"options": options.model_copy(update={"replay_epochs": epochs})})

    def begin_task(self, task: Task) -> None:
        """Start an empty store for the samples of the task."""
        self.store = _Store(len(task), self.context.image_shape, self.context.device)
        self.largest_store = max(self.largest_store, self.store.images.numel())

    def observe(self, batch: Batch) -> Tensor:
        """A plain step, or a weighted one in the last epochs of every task but the first; returns the step's loss."""
        shown = batch.augmented if self.frozen else batch.plain
        if batch.epoch == 0:
            self.store.remember(batch.indices, shown, batch.labels)
        if batch.task and batch.epoch >= self.first_replay_epoch and len(self.buffer):
            return self.weighted_step(batch)
        loss = F.cross_entropy(self.network(batch.augmented), batch.labels)
        self.step(loss)
        return loss.detach()

    @property
    def first_replay_epoch(self) -> int:
        """The first epoch of a task with replay, counted from 0."""
        return self.context.epochs - replay_epochs(self.options.replay_epochs, self.context.epochs)

    def weighted_step(self, batch: Batch) -> Tensor:
        """One step on current and replayed samples, each weighted by its influence; returns the weighted loss.

        Influences and weights are computed on the device, and the memory's running means of g* are kept there.
        """
        # The batch: current samples followed by a replay batch, M in all.
        slots = self.draw()
        replayed, replayed_labels = self.stored(slots) if self.frozen else self.replayed(slots)
        images, labels = join(batch.augmented, replayed), torch.cat([batch.labels, replayed_labels])

        # V_S: random stored samples. V_P: random samples of the current task.
        size = max(1, int(self.buffer.capacity * self.options.validation_share))
        # In the first epoch only those that have arrived are known.
        known = torch.randperm(self.store.known, generator=self.context.generator("plasticity"))[:size]
        current = self.store.samples(self.store.order[known.to(self.context.device, non_blocking=True)])

        # Virtual step θ'(ε) = θ − η∇(1/M) Σ(1+ε_i)ℓ_i; g_S = ∂ℓ̄(V_S; θ')/∂ε and g_P = ∂ℓ̄(V_P; θ')/∂ε at ε = 0.
        rate = float(self.optimizer.param_groups[0]["lr"])
        found = influences(self.network, images, labels, self.stored(self.draw(size, "stability")), current, rate)
        # g ← g·ℓ̄(V)/‖g‖₂ for each of the two.
        stability = normalise(found.stability, found.stability_loss)
        plasticity = normalise(found.plasticity, found.plasticity_loss)
        # g* = γ*g_S + (1−γ*)g_P, with γ* = argmin over [0, 1] of ‖γ g_S + (1−γ) g_P‖².
        _, influence = pareto_weights(stability, plasticity)

        # The update minimises Σ w_i ℓ_i, with w = (1−g*)/Σ(1−g*).
        losses = F.cross_entropy(self.network(images), labels, reduction="none")
        loss = loss_weights(influence) @ losses
        self.step(loss)

        # Running means of g*, by sample of the current task and by slot of the memory.
        _update_mean(self.store.influence, self.store.visits, batch.indices, influence[: len(batch)])
        _update_mean(self.buffer.column("influence"), self.buffer.column("visits"), slots, influence[len(batch) :])
        return loss.detach()

    def stored(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """The stored images at ``slots`` as they are, and their labels."""
        return self.buffer.images_at(slots), self.buffer.labels[slots].to(self.context.device)

    def end_task(self, task: Task) -> None:
        """Store the chosen samples of the task: the first fills the memory, later ones replace the least useful."""
        # Add: k-means with R = B // t clusters on the pixels of the task; from each the sample with the smallest g*.
        seed = int(torch.randint(2**31, (), generator=self.context.generator("k-means")))
        number = self.buffer.capacity // (task.index + 1)
        incoming = kmeans_pick(self.store.images, self.store.influence, max(1, number), seed)
        if "shuffled-metasp" in self.context.protocol:
            incoming = torch.randperm(len(self.store), generator=self.context.generator("shuffled"))[incoming]
        # Remove: of each class the R // (number of classes stored) samples with the largest g*. Free slots come first.
        room = self.buffer.capacity - len(self.buffer)
        free = torch.arange(len(self.buffer), len(self.buffer) + min(room, len(incoming)))
        leaving = least_useful(self.buffer.labels, self.buffer.column("influence").cpu(), number)
        # Removed and added samples are paired at random; if their counts differ, the longer list is cut.
        draws = self.context.generator("pairing")
        incoming = incoming[torch.randperm(len(incoming), generator=draws)]
        slots = torch.cat([free, leaving[torch.randperm(len(leaving), generator=draws)]])[: len(incoming)]
        chosen = incoming[: len(slots)]
        (images, labels), unknown = self.store.samples(chosen), torch.full(slots.shape, UNKNOWN)
        self.buffer.write(slots, images, labels.cpu(), task.index, influence=unknown, visits=torch.zeros(len(slots)))
        # The next task measures the influence of every stored sample again.
        self.buffer.column("influence").fill_(UNKNOWN)
        self.buffer.column("visits").zero_()
        self.buffer.seen += len(task)
        self.store = _Store(0, self.context.image_shape, self.context.device)

    def side_memory_bytes(self) -> int:
        """Bytes of the largest store of a task; the store is emptied at the end of its task."""
        return self.largest_store

    def state_dict(self) -> dict[str, Any]:
        """As in the base class, with the samples and influences of the current task."""
        store = {
            name: value.clone() if isinstance(value, Tensor) else value for name, value in vars(self.store).items()
        }
        return {**super().state_dict(), "store": store, "largest_store": self.largest_store}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        super().load_state_dict(state)
        self.largest_store = state["largest_store"]
        self.store = _Store(0, self.context.image_shape, self.context.device)
        for name, value in state["store"].items():
            here = value.to(self.context.device, copy=True) if isinstance(value, Tensor) else value
            setattr(self.store, name, here)


class _Store:
    """The samples of the current task with their mean influences, on the device."""

    def __init__(self, size: int, image_shape: tuple[int, int, int], device: torch.device) -> None:
        self.images = torch.zeros((size, *image_shape), dtype=torch.uint8, device=device)
        self.labels = torch.zeros(size, dtype=torch.int64, device=device)
        self.influence = torch.full((size,), UNKNOWN, device=device)
        self.visits = torch.zeros(size, device=device)
        self.order = torch.zeros(size, dtype=torch.int64, device=device)
        """Positions in the task, in the order of arrival."""
        self.known = 0
        """Number of samples that have arrived."""

    def __len__(self) -> int:
        return len(self.labels)

    def remember(self, indices: Tensor, images: Tensor, labels: Tensor) -> None:
        """Keep a batch of the task; ``indices`` are its positions in the task."""
        there = indices.to(self.images.device, non_blocking=True)
        self.order[self.known : self.known + len(there)] = there
        self.known += len(there)
        self.images[there] = images.to(self.images.device, non_blocking=True)
        self.labels[there] = labels

    def samples(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The images and labels at ``indices``."""
        there = indices.to(self.images.device, non_blocking=True)
        return self.images[there], self.labels[there]


def replay_epochs(wanted: int | None, epochs: int) -> int:
    """Number of epochs of a task with replay: as ``wanted``, or a tenth of the ``epochs``, at least 1.

    >>> [replay_epochs(None, epochs) for epochs in (50, 20, 5, 1)]
    [5, 2, 1, 1]
    """
    if wanted is None:
        return max(1, round(epochs / 10))
    if wanted > epochs:
        raise InputError(f"--replay-epochs {wanted} must not be more than the epochs of a task, {epochs}.")
    return wanted


def _update_mean(mean: Tensor, visits: Tensor, rows: Tensor, values: Tensor) -> None:
    """Update running means in place: ``values`` are new ones for ``rows``; the first replaces the initial value."""
    rows, values = rows.to(mean.device, non_blocking=True), values.to(mean.device)
    visits[rows] += 1
    mean[rows] += (values - mean[rows]) / visits[rows]


def least_useful(labels: Tensor, influence: Tensor, number: int) -> Tensor:
    """Slots to be replaced: those with the largest influence, equally many of each class, about ``number`` in all.

    ``labels`` and ``influence`` have one entry per stored sample.

    >>> least_useful(torch.tensor([0, 0, 1, 1]), torch.tensor([0.1, 0.2, 0.4, 0.3]), 2).tolist()
    [1, 2]
    """
    classes = torch.unique(labels).tolist()
    each = max(number, len(classes)) // max(1, len(classes))
    order = influence.argsort(descending=True, stable=True)
    chosen = [order[labels[order] == c][:each] for c in classes]
    return torch.cat(chosen) if chosen else torch.zeros(0, dtype=torch.int64)
