"""What goes into the memory and what goes out. A policy decides, the buffer stores.

Two kinds: ``reservoir`` looks at every batch as it passes; the others wait for the end of a task, share the capacity
over tasks and classes (:func:`acr.memory.quotas.balanced_quotas`), and fill each class's quota in an order of their
own: at random, hardest first, easiest first, or most varying confidence first (the paper's choice).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from acr.errors import unknown
from acr.memory.buffer import Buffer
from acr.memory.confidence import ConfidenceTable
from acr.memory.quotas import balanced_quotas


class Policy:
    """What every policy answers to. The defaults do nothing."""

    name: ClassVar[str]
    needs_confidence: ClassVar[bool] = False
    """Whether the order of samples comes from a confidence table."""
    columns: ClassVar[dict[str, tuple[int, ...]]] = {}
    """What the policy itself stores with each sample."""

    def observe(
        self, buffer: Buffer, images: Tensor, labels: Tensor, task: int, generator: torch.Generator, **columns: Tensor
    ) -> None:
        """A batch has been trained on."""

    def end_task(
        self,
        buffer: Buffer,
        images: Tensor,
        labels: Tensor,
        task: int,
        generator: torch.Generator,
        confidence: ConfidenceTable | None = None,
        **columns: Tensor,
    ) -> None:
        """A task is over; ``images`` are all its training samples."""

    def state_dict(self) -> dict[str, Any]:
        """What the policy itself remembers (the buffer saves its own)."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to a saved state."""


class Reservoir(Policy):
    """Every sample offered so far is stored with the same probability (Vitter 1985). No balance is sought."""

    name = "reservoir"

    def observe(
        self, buffer: Buffer, images: Tensor, labels: Tensor, task: int, generator: torch.Generator, **columns: Tensor
    ) -> None:
        """Sample number N goes to slot N while there is room, then to a slot drawn from 0..N, if that exists."""
        number = buffer.seen + torch.arange(len(images))
        draw = (torch.rand(len(images), generator=generator, dtype=torch.float64) * (number + 1)).long()
        slot = torch.where(number < buffer.capacity, number, draw)
        last_writer = {s: i for i, s in enumerate(slot.tolist()) if s < buffer.capacity}
        rows = torch.tensor(list(last_writer.values()), dtype=torch.int64)
        slots = torch.tensor(list(last_writer), dtype=torch.int64)
        kept = {name: values[rows] for name, values in columns.items()}
        buffer.write(slots, images[rows], labels[rows], task, **kept)
        buffer.seen += len(images)


class Balanced(Policy):
    """The frame of the end-of-task policies: exact balance of tasks and classes, one order inside a class."""

    def __init__(self, label_order: Any = sorted) -> None:
        self.label_order = label_order
        """Turns the labels of a task into the order in which remainders are handed out."""
        self.parts: list[list[int]] = []
        """The classes of each task seen, in that order."""
        self.quotas: list[list[int]] = []

    def order(self, labels: Tensor, confidence: ConfidenceTable | None, generator: torch.Generator) -> Tensor:
        """The samples of a task, the one to keep first in front."""
        raise NotImplementedError

    def own_columns(self, confidence: ConfidenceTable | None) -> dict[str, Tensor]:
        """Values of the policy's own columns for all samples of the task."""
        return {}

    def end_task(
        self,
        buffer: Buffer,
        images: Tensor,
        labels: Tensor,
        task: int,
        generator: torch.Generator,
        confidence: ConfidenceTable | None = None,
        **columns: Tensor,
    ) -> None:
        """Prune every old class to its new quota, last in its order first, and add the new task's samples."""
        classes = list(self.label_order(torch.unique(labels).tolist()))
        self.parts.append(classes)
        held = [[int(((buffer.tasks == t) & (buffer.labels == c)).sum()) for c in part]
                for t, part in enumerate(self.parts[:-1])]  # fmt: skip
        there = [int((labels == c).sum()) for c in classes]
        self.quotas = balanced_quotas(
            buffer.capacity, [len(part) for part in self.parts], previous=held, available=[*held, there]
        )
        buffer.keep(_first_within_quota(buffer.tasks.tolist(), buffer.labels.tolist(), self.parts, self.quotas))
        order = self.order(labels, confidence, generator)
        ranked = _first_within_quota([task] * len(order), labels[order].tolist(), self.parts, self.quotas)
        chosen = order[ranked]
        columns |= self.own_columns(confidence)
        buffer.append(images[chosen], labels[chosen], task, **{name: v[chosen] for name, v in columns.items()})
        buffer.seen += len(images)

    def state_dict(self) -> dict[str, Any]:
        """The classes of the tasks seen, and the quotas."""
        return {"parts": self.parts, "quotas": self.quotas}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to a saved state."""
        self.parts = [list(part) for part in state["parts"]]
        self.quotas = [list(row) for row in state["quotas"]]


def _first_within_quota(
    tasks: Sequence[int], labels: Sequence[int], parts: list[list[int]], quotas: list[list[int]]
) -> Tensor:
    """Positions of the samples that come first in their (task, class), as many as the quota allows."""
    room: dict[tuple[int, int], int] = defaultdict(int)
    for t, (part, row) in enumerate(zip(parts, quotas, strict=True)):
        room.update({(t, c): quota for c, quota in zip(part, row, strict=True)})
    kept = []
    for position, part_of in enumerate(zip(tasks, labels, strict=True)):
        if room[part_of] > 0:
            room[part_of] -= 1
            kept.append(position)
    return torch.tensor(kept, dtype=torch.int64)


class BalancedRandom(Balanced):
    """A random order inside each class."""

    name = "balanced-random"

    def order(self, labels: Tensor, confidence: ConfidenceTable | None, generator: torch.Generator) -> Tensor:
        """A random permutation."""
        return torch.randperm(len(labels), generator=generator)


class ByConfidence(Balanced):
    """An order read off the confidence table; equal values keep the order of the data, lowest index first."""

    needs_confidence = True
    columns: ClassVar[dict[str, tuple[int, ...]]] = {"confidence_mean": (), "confidence_variance": ()}

    def own_columns(self, confidence: ConfidenceTable | None) -> dict[str, Tensor]:
        """How sure the model was of a stored sample, for people who look into the memory."""
        assert confidence is not None
        return {"confidence_mean": confidence.mean(), "confidence_variance": confidence.variance()}

    def score(self, table: ConfidenceTable) -> Tensor:
        """The sample with the highest score is kept first."""
        raise NotImplementedError

    def order(self, labels: Tensor, confidence: ConfidenceTable | None, generator: torch.Generator) -> Tensor:
        """By falling score."""
        if confidence is None:
            raise ValueError(f"The policy {self.name!r} needs a confidence table.")
        return torch.sort(self.score(confidence), descending=True, stable=True).indices


class Hard(ByConfidence):
    """Lowest mean confidence first."""

    name = "hard"

    def score(self, table: ConfidenceTable) -> Tensor:
        """Minus the mean."""
        return -table.mean()


class Easy(ByConfidence):
    """Highest mean confidence first."""

    name = "easy"

    def score(self, table: ConfidenceTable) -> Tensor:
        """The mean."""
        return table.mean()


class Challenging(ByConfidence):
    """Most varying confidence first: samples at the boundary between classes. The paper's policy."""

    name = "challenging"

    def score(self, table: ConfidenceTable) -> Tensor:
        """The variance."""
        return table.variance()

    def order(self, labels: Tensor, confidence: ConfidenceTable | None, generator: torch.Generator) -> Tensor:
        """By falling variance; with a single recorded epoch there is none, and the order is random."""
        if confidence is not None and confidence.epochs == 1:
            return torch.randperm(len(labels), generator=generator)
        return super().order(labels, confidence, generator)


POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Reservoir, BalancedRandom, Hard, Easy, Challenging)
}


def make_policy(name: str, label_order: Any = sorted) -> Policy:
    """A policy by its name. ``label_order`` is the order of classes when remainders are handed out."""
    if name not in POLICIES:
        raise unknown("memory policy", name, POLICIES)
    kind = POLICIES[name]
    return kind(label_order) if issubclass(kind, Balanced) else kind()
