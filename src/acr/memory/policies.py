"""What enters the memory and what leaves it. A policy decides, the buffer stores.

There are two kinds. ``reservoir`` looks at every batch as it passes. The others wait for the end of a task, share the
capacity over tasks and classes (:func:`acr.memory.quotas.balanced_quotas`), and fill the quota of each class in an
order of their own: at random, hardest first, easiest first, or most varying confidence first (the paper's choice).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from acr.errors import unknown
from acr.memory.buffer import Buffer
from acr.memory.confidence import ConfidenceTable
from acr.memory.quotas import balanced_quotas


class Images(Protocol):
    """Images that may be made when they are asked for; a tensor is the simplest kind."""

    def __len__(self) -> int: ...

    def __getitem__(self, indices: Tensor, /) -> Tensor: ...


class Policy:
    """The interface of every policy. The defaults do nothing."""

    name: ClassVar[str]
    needs_confidence: ClassVar[bool] = False
    """Whether the policy orders samples by a confidence table."""
    columns: ClassVar[dict[str, tuple[int, ...]]] = {}
    """Further values that the policy stores with each sample: name to the shape of one value."""

    def observe(
        self, buffer: Buffer, images: Tensor, labels: Tensor, task: int, generator: torch.Generator, **columns: Tensor
    ) -> None:
        """A batch has been trained on.

        ``images``, ``labels`` (on the host) and every column have one row per sample; ``task`` is the number of their
        task.
        """

    def end_task(
        self,
        buffer: Buffer,
        images: Images,
        labels: Tensor,
        task: int,
        generator: torch.Generator,
        confidence: ConfidenceTable | None = None,
        **columns: Tensor,
    ) -> None:
        """A task has ended. ``images``, ``labels`` and every column have one row per training sample of the task.

        ``images[indices]`` are some of the images: whole tasks need not fit into memory.
        """

    def state_dict(self) -> dict[str, Any]:
        """The policy's own state (the buffer saves its own)."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""


class Reservoir(Policy):
    """Every sample offered so far is stored with the same probability (Vitter 1985), without balancing."""

    name = "reservoir"

    def observe(
        self, buffer: Buffer, images: Tensor, labels: Tensor, task: int, generator: torch.Generator, **columns: Tensor
    ) -> None:
        """Sample N, counted from 0, is written to slot N while N < B, then to r ~ U{0..N} if r < B.

        Where stored samples were deleted since, the next ones fill the free slots.
        """
        number = buffer.seen + torch.arange(len(images))
        next_free = len(buffer) + torch.arange(len(images))  # the same numbers as long as slots are free
        draw = (torch.rand(len(images), generator=generator, dtype=torch.float64) * (number + 1)).long()
        slot = torch.where(next_free < buffer.capacity, next_free, draw)
        # Where several samples of a batch draw the same slot, the last one remains.
        last_writer = {s: i for i, s in enumerate(slot.tolist()) if s < buffer.capacity}
        rows = torch.tensor(list(last_writer.values()), dtype=torch.int64)
        slots = torch.tensor(list(last_writer), dtype=torch.int64)
        buffer.write(slots, images, labels, task, rows=rows, **columns)
        buffer.seen += len(images)


class Balanced(Policy):
    """Base of the end-of-task policies: exact balance of tasks and classes, and one order within a class."""

    def __init__(self, label_order: Any = sorted) -> None:
        self.label_order = label_order
        """Puts the labels of a task into the order in which remainders are distributed."""
        self.parts: list[list[int]] = []
        """The classes of each task seen, in that order."""
        self.quotas: list[list[int]] = []
        """The quota of each of these classes."""

    def order(self, labels: Tensor, confidence: ConfidenceTable | None, generator: torch.Generator) -> Tensor:
        """Indices of the samples of a task, the ones to be kept first at the front."""
        raise NotImplementedError

    def own_columns(self, confidence: ConfidenceTable | None) -> dict[str, Tensor]:
        """Values of the policy's own columns, one row per sample of the task."""
        return {}

    def end_task(
        self,
        buffer: Buffer,
        images: Images,
        labels: Tensor,
        task: int,
        generator: torch.Generator,
        confidence: ConfidenceTable | None = None,
        **columns: Tensor,
    ) -> None:
        """Prune every old class to its new quota, and store samples of the finished task.

        These are steps 8 to 11 of ACR's Algorithm 1, numbered as in ``acr.methods.acr``.
        """
        # Algorithm 1, step 8: share the B places evenly over the tasks seen, then over the classes of each task. No old
        # class gets more than it holds, and no new class more than it has samples.
        classes = list(self.label_order(torch.unique(labels).tolist()))
        self.parts.append(classes)
        held = [[int(((buffer.tasks == t) & (buffer.labels == c)).sum()) for c in part]
                for t, part in enumerate(self.parts[:-1])]  # fmt: skip
        there = [int((labels == c).sum()) for c in classes]
        self.quotas = balanced_quotas(
            buffer.capacity, [len(part) for part in self.parts], previous=held, available=[*held, there]
        )
        # Algorithm 1, step 9: prune. Each old class keeps its first samples in stored order, up to its quota. They were
        # stored in the policy's order, so with the challenging policy those with the lowest σ² leave.
        buffer.keep(_first_within_quota(buffer.tasks.tolist(), buffer.labels.tolist(), self.parts, self.quotas))
        # Algorithm 1, step 10: put the new samples into the policy's order, for ACR by decreasing σ².
        order = self.order(labels, confidence, generator)
        # Algorithm 1, step 11: walk through that order and take a sample while its class is below its quota. The new
        # samples follow the old ones that were kept.
        ranked = _first_within_quota([task] * len(order), labels[order].tolist(), self.parts, self.quotas)
        chosen = order[ranked]
        columns |= self.own_columns(confidence)
        buffer.append(images[chosen], labels[chosen], task, **{name: v[chosen] for name, v in columns.items()})
        buffer.seen += len(images)

    def state_dict(self) -> dict[str, Any]:
        """The classes of the tasks seen, and the quotas."""
        return {"parts": self.parts, "quotas": self.quotas}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        self.parts = [list(part) for part in state["parts"]]
        self.quotas = [list(row) for row in state["quotas"]]


def _first_within_quota(
    tasks: Sequence[int], labels: Sequence[int], parts: list[list[int]], quotas: list[list[int]]
) -> Tensor:
    """Positions of the samples that come first in their (task, class), up to its quota.

    ``tasks`` and ``labels`` have one entry per sample; ``parts`` are the classes of each task, ``quotas`` their quotas.
    """
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
    """A random order within each class."""

    name = "balanced-random"

    def order(self, labels: Tensor, confidence: ConfidenceTable | None, generator: torch.Generator) -> Tensor:
        """A random permutation."""
        return torch.randperm(len(labels), generator=generator)


class ByConfidence(Balanced):
    """An order taken from the confidence table; ties go to the lower index."""

    needs_confidence = True
    columns: ClassVar[dict[str, tuple[int, ...]]] = {"confidence_mean": (), "confidence_variance": ()}

    def own_columns(self, confidence: ConfidenceTable | None) -> dict[str, Tensor]:
        """Mean and variance of the confidence of each sample, for people who inspect the memory."""
        assert confidence is not None
        return {"confidence_mean": confidence.mean(), "confidence_variance": confidence.variance()}

    def score(self, table: ConfidenceTable) -> Tensor:
        """One score per sample; the highest is kept first."""
        raise NotImplementedError

    def order(self, labels: Tensor, confidence: ConfidenceTable | None, generator: torch.Generator) -> Tensor:
        """By decreasing score."""
        if confidence is None:
            raise ValueError(f"The policy {self.name!r} needs a confidence table.")
        return torch.sort(self.score(confidence), descending=True, stable=True).indices


class Hard(ByConfidence):
    """Lowest mean confidence first."""

    name = "hard"

    def score(self, table: ConfidenceTable) -> Tensor:
        """Minus the mean of Γ_e."""
        return -table.mean()


class Easy(ByConfidence):
    """Highest mean confidence first."""

    name = "easy"

    def score(self, table: ConfidenceTable) -> Tensor:
        """The mean of Γ_e."""
        return table.mean()


class Challenging(ByConfidence):
    """Most varying confidence first: samples at the boundary between classes. The paper's policy."""

    name = "challenging"

    def score(self, table: ConfidenceTable) -> Tensor:
        """σ², the variance of Γ_e."""
        return table.variance()

    def order(self, labels: Tensor, confidence: ConfidenceTable | None, generator: torch.Generator) -> Tensor:
        """By decreasing variance; with a single recorded epoch there is no variance, and the order is random."""
        if confidence is not None and confidence.epochs == 1:
            return torch.randperm(len(labels), generator=generator)
        return super().order(labels, confidence, generator)


POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Reservoir, BalancedRandom, Hard, Easy, Challenging)
}


def make_policy(name: str, label_order: Any = sorted) -> Policy:
    """A policy by its name. ``label_order`` sorts the labels of a task for the distribution of remainders."""
    if name not in POLICIES:
        raise unknown("memory policy", name, POLICIES)
    kind = POLICIES[name]
    return kind(label_order) if issubclass(kind, Balanced) else kind()
