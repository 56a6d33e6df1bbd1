"""Gradient-based Sample Selection (GSS), the greedy variant.

Trains like ER, but prefers to store samples whose gradients point in other directions than those of the stored samples.
The score of a sample is one plus the largest cosine between its gradient and those of a few stored samples; samples
with high scores are replaced by samples with low scores. Aljundi, Lin, Goujaud and Bengio, "Gradient based sample
selection for online continual learning", NeurIPS 2019.

As in the paper's comparison, stored samples are replaced only if the gradient of the batch as a whole points away from
all the stored ones it is compared with (a score below 1): the gate. With 32 single samples it almost never opens; a run
records how often it did. The original compares with gradients of 10 memory batches of 10 samples, and its Algorithm 2
gates each sample itself: ``references``, ``reference_size``, ``gate``. Gradients, taken in evaluation mode, are never
stored: one backward pass for all samples together gives their cosines.

Measure it: ``acr run --method gss --dataset split-cifar100``
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from acr.config import MethodOptions, Precision
from acr.methods.bases import MemoryMethod
from acr.methods.maths.gradient_similarity import gradient_similarity
from acr.methods.method import Batch, Context
from acr.networks import Network

FIRST_SCORE = 0.1
"""Score of samples that arrive when nothing is stored to compare them with."""


class GSSOptions(MethodOptions):
    """Options of GSS."""

    revision: ClassVar[int] = 2
    """1: references were called comparisons, and the gate was not recorded."""
    sources: ClassVar[Mapping[str, str]] = {
        "references": "the launcher of the paper's released program",
        "reference_size": "the paper's released program and Mammoth; the original has 10",
        "gate": "the paper's released program and Mammoth; the original's Algorithm 2 has sample",
    }
    references: int = Field(32, ge=1)
    """Number of gradients of the memory that new ones are compared with; fewer while the memory is small."""
    reference_size: int = Field(1, ge=1)
    """Stored samples per reference; the original compares with gradients of batches of 10."""
    gate: Literal["batch", "sample"] = "batch"
    """What must point away from all references to contend for a slot: the batch as a whole, or each sample itself."""


class GSS(MemoryMethod):
    """Experience replay from a memory of diverse gradients."""

    name = "gss"
    label = "GSS"
    summary = "GSS: replay from a memory whose samples' gradients differ"
    # It multiplies activations and gradients of single layers.
    precisions: ClassVar[Collection[Precision]] = frozenset[Precision](("32",))
    Options: ClassVar[type[MethodOptions]] = GSSOptions
    settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {"split-cifar100": {"learning_rate": 0.03}}  # the paper's
    options: GSSOptions
    columns: ClassVar[dict[str, tuple[int, ...]]] = {"score": ()}

    def __init__(self, network: Network, options: GSSOptions, context: Context) -> None:
        super().__init__(network, options, context)
        self.gate_tried = self.gate_opened = 0
        """How often the gate was asked while the memory was full (by batches or samples), and how often it opened."""

    def observe(self, batch: Batch) -> Tensor:
        """One step as in ER, then the choice of what to store; returns the loss of the step."""
        images, labels = self.with_replay(batch)
        loss = F.cross_entropy(self.network(images), labels)
        self.step(loss)
        self.remember(batch)
        return loss.detach()

    def remember(self, batch: Batch) -> None:
        """Fill the memory; once it is full, let the samples of the batch contend for slots."""
        buffer, labels = self.buffer, batch.labels_on_host
        batch_score, scores = self.scores(batch)
        # While there is room, samples are stored with the score c of their batch.
        filling = min(len(batch), buffer.capacity - len(buffer))
        buffer.append(batch.plain[:filling], labels[:filling], batch.task, score=batch_score.expand(filling))
        # After that, only a batch with c < 1 (or a sample with s < 1) may replace anything; samples contend with s.
        if filling < len(batch):
            contenders = self.through_the_gate(batch_score, scores, filling)
            draws = torch.rand(len(batch), 2, generator=self.context.generator("policy"), dtype=torch.float64)
            slots, rows = contend(buffer.column("score"), scores[contenders], draws[contenders])
            rows = contenders[rows]
            buffer.write(slots, batch.plain[rows], labels[rows], batch.task, score=scores[rows])
        buffer.seen += len(batch)

    def through_the_gate(self, batch_score: Tensor, scores: Tensor, first: int) -> Tensor:
        """The rows of a batch, from ``first`` on, that may contend for a slot; counts how often the gate opens."""
        rows = torch.arange(first, len(scores))
        if self.options.gate == "sample":
            open_for = rows[scores[first:] < 1]
            self.gate_tried, self.gate_opened = self.gate_tried + len(rows), self.gate_opened + len(open_for)
            return open_for
        opens = bool(batch_score < 1)
        self.gate_tried, self.gate_opened = self.gate_tried + 1, self.gate_opened + opens
        return rows if opens else rows[:0]

    def facts(self) -> dict[str, float]:
        """How often the gate opened once the memory was full: a share of the batches, or of the samples."""
        return {"gate_open": self.gate_opened / self.gate_tried} if self.gate_tried else {}

    def state_dict(self) -> dict[str, Any]:
        """As in the base class, with the counts of the gate."""
        return {**super().state_dict(), "gate_tried": self.gate_tried, "gate_opened": self.gate_opened}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        super().load_state_dict(state)
        self.gate_tried, self.gate_opened = state["gate_tried"], state["gate_opened"]

    def scores(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The score c of the batch as a whole (a scalar) and the scores s of its samples (one per sample).

        Both are on the host, where it is decided what is stored; they are read in one copy, the one wait of a step.
        """
        if not len(self.buffer):
            return torch.tensor(FIRST_SCORE), torch.full((len(batch),), FIRST_SCORE)
        # G_j: the gradients of a few random stored samples, as stored, or of groups of them.
        size = min(self.options.reference_size, len(self.buffer))
        slots = self.draw(min(self.options.references, len(self.buffer) // size) * size, "compare")
        stored_labels = self.buffer.labels[slots].to(batch.labels.device)
        cosines = gradient_similarity(
            self.network, batch.plain, batch.labels, self.buffer.images_at(slots), stored_labels, group=size
        )
        # c = 1 + max_j cos(g_batch, G_j) and s = 1 + max_j cos(g_sample, G_j).
        largest = torch.cat([cosines.batch.max()[None], cosines.samples.max(1).values]).cpu()
        return 1 + largest[0], 1 + largest[1:]


def contend(stored: Tensor, scores: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Decide which slots are overwritten, and by which of the new samples.

    Args:
        stored: scores of the B stored samples.
        scores: scores of the n new samples.
        draws: n x 2 uniform numbers in [0, 1): one draws the slot, the other decides whether it is overwritten.

    Returns the overwritten slots, and for each the row of the new sample that ends up in it.
    """
    standing = stored.double().clone()
    taken: dict[int, int] = {}
    for row, (score, (where, whether)) in enumerate(zip(scores.tolist(), draws.tolist(), strict=True)):
        # Slot i with probability score_i/Σ score.
        steps = standing.cumsum(0)
        slot = min(int(torch.searchsorted(steps, where * float(steps[-1]), right=True)), len(standing) - 1)
        rival = float(standing[slot])
        # With probability score_i/(score_i + s), overwrite slot i and set score_i = s.
        if whether * (rival + score) < rival:
            standing[slot] = score
            taken[slot] = row
    return torch.tensor(list(taken), dtype=torch.int64), torch.tensor(list(taken.values()), dtype=torch.int64)
