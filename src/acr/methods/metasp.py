"""MetaSP: example influence on stability and plasticity.

In the last epochs of a task a virtual step tells, for every sample of a batch, whether more of it would lower the loss
on stored samples (stability) and on current ones (plasticity). The two influences are merged into the one that serves
both best; it weighs the samples' losses, and its mean decides which samples are stored and which give way. Sun, Lyu,
Shang, Feng and Wan, "Exploring Example Influence in Continual Learning", NeurIPS 2022.

As in the paper's comparison a task is first trained without replay, and only its last epochs, ``replay_epochs`` of them
but not the first, are as above; the first task has no such phase and fills the memory as a reservoir. Influences come
from a forward-mode derivative along the validation gradient, with no second-order graph. Plain images are stored and
replayed in a random view; validation images are plain. The released program stores the augmented view and shows it
as it is (the quirk ``frozen-replay``), and at the end of a task it inserts random samples in place of the chosen ones
(``shuffled-metasp``). While the memory has room, chosen samples fill it before they replace any.

Measure it: ``acr run --method metasp --dataset split-cifar100``
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from acr.config import MethodOptions
from acr.data.stream import Task
from acr.data.views import join
from acr.memory.policies import Reservoir
from acr.methods.bases import MemoryMethod
from acr.methods.maths.influence import influences, kmeans_pick, loss_weights, normalise, pareto_weights
from acr.methods.method import Batch, Context
from acr.networks import Network

UNKNOWN = 1.0
"""Influence of a sample that has not been looked at: worse than most."""


class MetaSPOptions(MethodOptions):
    """Options of MetaSP."""

    replay_epochs: int = Field(5, ge=0)
    """Last epochs of a task that replay; one less than all if there are not so many."""
    validation_share: float = Field(0.1, gt=0, le=1)
    """Size of each validation set as a share of the memory."""


class MetaSP(MemoryMethod):
    """Replay weighted, and a memory chosen, by influence."""

    name = "metasp"
    label = "MetaSP"
    summary = "MetaSP: samples weighted and stored by their influence on old and new tasks"
    Options: ClassVar[type[MethodOptions]] = MetaSPOptions
    options: MetaSPOptions
    columns: ClassVar[dict[str, tuple[int, ...]]] = {"influence": (), "visits": ()}

    def __init__(self, network: Network, options: MetaSPOptions, context: Context) -> None:
        super().__init__(network, options, context)
        self.frozen = "frozen-replay" in context.protocol
        self.store = _Store(0, context.image_shape)
        """The current task's samples and their influences, from the second task on."""
        self.largest_store = 0
        """Bytes of the largest store so far."""

    def begin_task(self, task: Task) -> None:
        """An empty store for the task's samples."""
        self.store = _Store(len(task) if task.index else 0, self.context.image_shape)
        self.largest_store = max(self.largest_store, self.store.images.numel())

    def observe(self, batch: Batch) -> Tensor:
        """A plain step, or one weighted by influences in the last epochs of all tasks but the first."""
        shown = batch.augmented if self.frozen else batch.plain
        if batch.task and batch.epoch == 0:
            self.store.images[batch.indices] = shown.cpu()
            self.store.labels[batch.indices] = batch.labels.cpu()
        if batch.task and batch.epoch >= self.first_replay_epoch and len(self.buffer):
            return self.weighted_step(batch)
        loss = F.cross_entropy(self.network(batch.augmented), batch.labels)
        self.step(loss)
        if batch.task == 0:
            unknown = {"influence": torch.full((len(batch),), UNKNOWN), "visits": torch.zeros(len(batch))}
            draws = self.context.generator("policy")
            Reservoir().observe(self.buffer, shown, batch.labels.cpu(), batch.task, draws, **unknown)
        return loss.detach()

    @property
    def first_replay_epoch(self) -> int:
        """The epoch of a task from which on it replays."""
        return self.context.epochs - min(self.options.replay_epochs, self.context.epochs - 1)

    def weighted_step(self, batch: Batch) -> Tensor:
        """One step on current and replayed samples, each weighted by what it does to old and new tasks."""
        slots = self.draw()
        replayed, replayed_labels = self.stored(slots) if self.frozen else self.replayed(slots)
        images, labels = join(batch.augmented, replayed), torch.cat([batch.labels, replayed_labels])

        size = max(1, int(self.buffer.capacity * self.options.validation_share))
        known = torch.randperm(len(self.store), generator=self.context.generator("plasticity"))[:size]
        current = self.store.images[known], self.store.labels[known].to(labels.device)
        rate = float(self.optimizer.param_groups[0]["lr"])
        found = influences(self.network, images, labels, self.stored(self.draw(size, "stability")), current, rate)
        stability = normalise(found.stability, found.stability_loss)
        plasticity = normalise(found.plasticity, found.plasticity_loss)
        _, influence = pareto_weights(stability, plasticity)

        losses = F.cross_entropy(self.network(images), labels, reduction="none")
        loss = loss_weights(influence) @ losses
        self.step(loss)
        influence = influence.cpu()
        _update_mean(self.store.influence, self.store.visits, batch.indices, influence[: len(batch)])
        _update_mean(self.buffer.column("influence"), self.buffer.column("visits"), slots, influence[len(batch) :])
        return loss.detach()

    def stored(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Stored images as they are, and their labels."""
        return self.buffer.images[slots], self.buffer.labels[slots].to(self.context.device)

    def end_task(self, task: Task) -> None:
        """Let the task's chosen samples in, from its second on, for those that served old and new tasks least."""
        if task.index == 0:
            return
        seed = int(torch.randint(2**31, (), generator=self.context.generator("k-means")))
        number = self.buffer.capacity // (task.index + 1)
        incoming = kmeans_pick(self.store.images, self.store.influence, max(1, number), seed)
        if "shuffled-metasp" in self.context.protocol:
            incoming = torch.randperm(len(self.store), generator=self.context.generator("shuffled"))[incoming]
        room = self.buffer.capacity - len(self.buffer)
        free = torch.arange(len(self.buffer), len(self.buffer) + min(room, len(incoming)))
        leaving = least_useful(self.buffer.labels, self.buffer.column("influence"), number)
        draws = self.context.generator("pairing")
        incoming = incoming[torch.randperm(len(incoming), generator=draws)]
        slots = torch.cat([free, leaving[torch.randperm(len(leaving), generator=draws)]])[: len(incoming)]
        chosen = incoming[: len(slots)]
        images, labels, unknown = self.store.images[chosen], self.store.labels[chosen], torch.full(slots.shape, UNKNOWN)
        self.buffer.write(slots, images, labels, task.index, influence=unknown, visits=torch.zeros(len(slots)))
        self.buffer.column("influence").fill_(UNKNOWN)
        self.buffer.column("visits").zero_()
        self.buffer.seen += len(task)
        self.store = _Store(0, self.context.image_shape)

    def side_memory_bytes(self) -> int:
        """The most that was held of a current task; it is let go at the task's end."""
        return self.largest_store

    def state_dict(self) -> dict[str, Any]:
        """Also the current task's samples and influences."""
        store = {name: value.clone() for name, value in vars(self.store).items()}
        return {**super().state_dict(), "store": store, "largest_store": self.largest_store}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to a saved state."""
        super().load_state_dict(state)
        self.largest_store = state["largest_store"]
        self.store = _Store(0, self.context.image_shape)
        for name, value in state["store"].items():
            setattr(self.store, name, value.clone())


class _Store:
    """The samples of the current task with their mean influences."""

    def __init__(self, size: int, image_shape: tuple[int, int, int]) -> None:
        self.images = torch.zeros((size, *image_shape), dtype=torch.uint8)
        self.labels = torch.zeros(size, dtype=torch.int64)
        self.influence = torch.full((size,), UNKNOWN)
        self.visits = torch.zeros(size)

    def __len__(self) -> int:
        return len(self.labels)


def _update_mean(mean: Tensor, visits: Tensor, rows: Tensor, values: Tensor) -> None:
    """Running means: the first value replaces the initial one."""
    visits[rows] += 1
    mean[rows] += (values - mean[rows]) / visits[rows]


def least_useful(labels: Tensor, influence: Tensor, number: int) -> Tensor:
    """The slots that give way: of each class the same number, about ``number`` in all, with the largest influence.

    >>> least_useful(torch.tensor([0, 0, 1, 1]), torch.tensor([0.1, 0.2, 0.4, 0.3]), 2).tolist()
    [1, 2]
    """
    classes = torch.unique(labels).tolist()
    each = max(number, len(classes)) // max(1, len(classes))
    order = influence.argsort(descending=True, stable=True)
    chosen = [order[labels[order] == c][:each] for c in classes]
    return torch.cat(chosen) if chosen else torch.zeros(0, dtype=torch.int64)
