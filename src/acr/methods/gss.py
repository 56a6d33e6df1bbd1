"""Gradient-based Sample Selection (GSS), the greedy variant.

Trains as ER does, but prefers to store samples whose gradients point elsewhere than those of the samples stored: a
sample's score is one plus its largest cosine with the gradients of a few stored ones, and samples of high score give
way to samples of low score. Aljundi, Lin, Goujaud and Bengio, "Gradient based sample selection for online continual
learning", NeurIPS 2019.

As in the paper's comparison, only a batch whose own gradient points away from some stored ones (score below 1) may
replace stored samples. The single-sample gradients, taken in evaluation mode, are never held: their cosines come out of
one backward pass for all samples together.

Measure it: ``acr run --method gss --dataset split-cifar100``
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from acr.config import MethodOptions
from acr.methods.bases import MemoryMethod
from acr.methods.maths.gradient_similarity import gradient_similarity
from acr.methods.method import Batch

FIRST_SCORE = 0.1
"""Score of samples that come when there is nothing to compare them with."""


class GSSOptions(MethodOptions):
    """Options of GSS."""

    comparisons: int = Field(32, ge=1)
    """Stored samples with whose gradients new ones are compared."""


class GSS(MemoryMethod):
    """Experience replay from a memory of diverse gradients."""

    name = "gss"
    label = "GSS"
    summary = "GSS: replay from a memory whose samples' gradients differ"
    Options: ClassVar[type[MethodOptions]] = GSSOptions
    options: GSSOptions
    columns: ClassVar[dict[str, tuple[int, ...]]] = {"score": ()}

    def observe(self, batch: Batch) -> Tensor:
        """One step as ER's, then the memory's choice."""
        images, labels = self.with_replay(batch)
        loss = F.cross_entropy(self.network(images), labels)
        self.step(loss)
        self.remember(batch)
        return loss.detach()

    def remember(self, batch: Batch) -> None:
        """Fill the memory; when it is full, let the batch's samples contend for places."""
        buffer, labels = self.buffer, batch.labels.cpu()
        batch_score, scores = self.scores(batch)
        filling = min(len(batch), buffer.capacity - len(buffer))
        buffer.append(batch.plain[:filling], labels[:filling], batch.task, score=batch_score.expand(filling))
        if batch_score < 1 and filling < len(batch):
            draws = torch.rand(len(batch), 2, generator=self.context.generator("policy"), dtype=torch.float64)
            slots, rows = contend(buffer.column("score"), scores[filling:], draws[filling:])
            rows += filling
            buffer.write(slots, batch.plain[rows], labels[rows], batch.task, score=scores[rows])
        buffer.seen += len(batch)

    def scores(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The score of the batch as a whole and of each of its samples."""
        if not len(self.buffer):
            return torch.tensor(FIRST_SCORE), torch.full((len(batch),), FIRST_SCORE)
        slots = self.draw(self.options.comparisons, "compare")
        stored_labels = self.buffer.labels[slots].to(batch.labels.device)
        cosines = gradient_similarity(self.network, batch.plain, batch.labels, self.buffer.images[slots], stored_labels)
        return 1 + cosines.batch.max().cpu(), 1 + cosines.samples.max(1).values.cpu()


def contend(stored: Tensor, scores: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Which slots are overwritten, and by which of the new samples.

    One after the other each new sample challenges a slot i, drawn in proportion to the stored scores, and takes it with
    probability score_i/(score_i + its own), which becomes the slot's score. ``draws``: two uniform numbers a sample.
    """
    standing = stored.double().clone()
    taken: dict[int, int] = {}
    for row, (score, (where, whether)) in enumerate(zip(scores.tolist(), draws.tolist(), strict=True)):
        steps = standing.cumsum(0)
        slot = min(int(torch.searchsorted(steps, where * float(steps[-1]), right=True)), len(standing) - 1)
        rival = float(standing[slot])
        if whether * (rival + score) < rival:
            standing[slot] = score
            taken[slot] = row
    return torch.tensor(list(taken), dtype=torch.int64), torch.tensor(list(taken.values()), dtype=torch.int64)
