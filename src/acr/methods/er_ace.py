"""Experience Replay with Asymmetric Cross-Entropy (ER-ACE).

The current batch is told apart only among the classes that occur in it, so that new classes do not push the scores of
old ones down; what was learned before and what is new are told apart by the replay batch alone, among all classes seen.
Caccia, Aljundi, Asadi, Tuytelaars, Pineau and Belilovsky, "New Insights on Reducing Abrupt Representation Change in
Online Continual Learning", ICLR 2022.

As in the original, replay begins with the second task, and in the first one the current batch is told apart among all
classes seen. A current batch of one class only has nothing to tell apart: there the replay batch alone teaches.

Measure it: ``acr run --method er-ace --dataset split-cifar100``
"""

from __future__ import annotations

import torch
from torch import Tensor

from acr.losses import masked_cross_entropy
from acr.methods.bases import ReplayMethod
from acr.methods.method import Batch


class ERACE(ReplayMethod):
    """Cross-entropy among the batch's own classes, plus replay among all seen."""

    name = "er-ace"
    label = "ER-ACE"
    summary = "ER-ACE: new classes are told apart among themselves, all of them by replay"

    def observe(self, batch: Batch) -> Tensor:
        """One step on the sum of the two losses, each batch in a pass of its own."""
        seen = torch.tensor(self.context.seen, device=batch.labels.device)
        first_task = self.context.task == 0
        loss = masked_cross_entropy(
            self.network(batch.augmented), batch.labels, seen if first_task else torch.unique(batch.labels)
        )
        if len(self.buffer) and not first_task:
            images, labels = self.retrieve()
            loss = loss + masked_cross_entropy(self.network(images), labels, seen)
        self.record_confidence(batch)
        self.step(loss)
        self.remember(batch)
        return loss.detach()
