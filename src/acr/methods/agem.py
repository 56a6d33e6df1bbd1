"""Averaged Gradient Episodic Memory (A-GEM).

GEM with one constraint in place of one a task: the step must not raise the loss on a random batch of the whole memory.
If it would, the part of the gradient that opposes the memory's is taken out. Chaudhry, Ranzato, Rohrbach and Elhoseiny,
"Efficient Lifelong Learning with A-GEM", ICLR 2019.

As in the paper's comparison the head is shared by all classes and there is no task at test time, which the original
has; replayed images come in a random view.

Measure it: ``acr run --method agem --dataset split-cifar100``
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from acr.methods.episodic import EpisodicMethod
from acr.methods.maths.gradients import assign_gradient, project_agem
from acr.methods.method import Batch


class AGEM(EpisodicMethod):
    """A step that does not raise the loss on a memory batch, to first order."""

    name = "agem"
    label = "A-GEM"
    summary = "A-GEM: steps that do not raise the loss on a batch of the memory"

    def observe(self, batch: Batch) -> Tensor:
        """One projected step."""
        loss = F.cross_entropy(self.network(batch.augmented), batch.labels)
        gradient = self.gradient(loss)
        if len(self.buffer):
            images, labels = self.retrieve()
            reference = self.gradient(F.cross_entropy(self.network(images), labels))
            assign_gradient(self.network.parameters(), project_agem(gradient, reference))
        self.optimizer.step()
        return loss.detach()
