"""Averaged Gradient Episodic Memory (A-GEM).

GEM with a single constraint instead of one per task: the step must not raise the loss on a random batch of the whole
memory. If it would, the component of the gradient that opposes the memory's gradient is removed. Chaudhry, Ranzato,
Rohrbach and Elhoseiny, "Efficient Lifelong Learning with A-GEM", ICLR 2019.

As in the paper's comparison, and unlike in the original, all classes share one head and the task is not known at test
time. Images are replayed in a random view.

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
        """One projected step; returns the loss on the current batch."""
        # g = ∇CE on the current batch.
        loss = F.cross_entropy(self.network(batch.augmented), batch.labels)
        gradient = self.gradient(loss)
        if len(self.buffer):
            # g_ref = ∇CE on a random batch of the memory, in a pass of its own.
            images, labels = self.retrieve()
            reference = self.gradient(F.cross_entropy(self.network(images), labels))
            # g − (⟨g,g_ref⟩/⟨g_ref,g_ref⟩) g_ref if ⟨g,g_ref⟩ < 0, otherwise g. It replaces the parameters' gradients,
            # which are those of the memory batch after the second backward pass.
            assign_gradient(self.network.parameters(), project_agem(gradient, reference))
        self.optimizer.step()
        return loss.detach()
