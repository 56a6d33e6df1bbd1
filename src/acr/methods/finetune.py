"""Fine-tuning: the lower bound. Cross-entropy on the current batch, no memory; old classes are forgotten.

Measure it: ``acr run --method finetune --dataset split-cifar100``
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from acr.methods.method import Batch, Method


class Finetune(Method):
    """Cross-entropy on the current batch."""

    name = "finetune"
    label = "Fine-tuning"
    reference = True
    summary = "Fine-tuning: no memory, the lower bound"
    uses_memory = False

    def observe(self, batch: Batch) -> Tensor:
        """One step on the cross-entropy of the current batch; returns that loss."""
        loss = F.cross_entropy(self.network(batch.augmented), batch.labels)
        self.step(loss)
        return loss.detach()
