"""Gradient Episodic Memory (GEM).

Before every step the gradient on the current batch is compared with the gradients on the stored samples of each
earlier task. If the step would raise one of those losses, it is replaced by the nearest one that raises none: a
quadratic program with one variable per task. Lopez-Paz and Ranzato, "Gradient Episodic Memory for Continual Learning",
NeurIPS 2017.

The original stores the last samples of each task and knows the task at test time. Here, as in the paper's comparison,
random samples of each task are stored and replayed in a random view, and all classes share one head. The quadratic
program is solved as non-negative least squares, which does not fail on duplicate or vanishing gradients. If a task has
more than ``LARGEST_PASS`` stored samples, its gradient is computed in several passes, so that memory stays bounded.

Measure it: ``acr run --method gem --dataset split-cifar100``
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from acr.config import MethodOptions
from acr.methods.episodic import EpisodicMethod
from acr.methods.maths.gradients import assign_gradient, project_gem
from acr.methods.method import Batch

LARGEST_PASS = 512
"""Most stored samples that pass through the network at once."""


class GEMOptions(MethodOptions):
    """Options of GEM."""

    sources: ClassVar[Mapping[str, str]] = {
        "margin": "the launcher of the paper's released program",
        "ridge": "the paper's released program",
    }

    margin: float = Field(0.5, ge=0)
    """Smallest weight of every earlier task's gradient in a corrected step (γ); above 0 it favours the old tasks."""
    ridge: float = Field(1e-3, gt=0)
    """Added to the diagonal of the quadratic program's matrix."""


class GEM(EpisodicMethod):
    """A step that raises no earlier task's loss, to first order."""

    name = "gem"
    label = "GEM"
    summary = "Gradient Episodic Memory: steps that raise no earlier task's loss"
    Options: ClassVar[type[MethodOptions]] = GEMOptions
    options: GEMOptions

    def observe(self, batch: Batch) -> Tensor:
        """One projected step; returns the loss on the current batch."""
        # g_j = ∇CE on all stored samples of task j, for every earlier task, in one pass per task.
        earlier = torch.unique(self.buffer.tasks).tolist()
        memory_gradients = [self.task_gradient(task) for task in earlier]
        # g = ∇CE on the current batch.
        loss = F.cross_entropy(self.network(batch.augmented), batch.labels)
        gradient = self.gradient(loss)
        if memory_gradients:
            # If any ⟨g,g_j⟩ < 0, use Gᵀv + g, where the rows of G are the g_j and v ≥ γ solves the quadratic program
            # min_v ½vᵀ(GGᵀ + ridge·I)v + (Gg)ᵀv. Otherwise use g.
            stacked = torch.stack(memory_gradients)
            gradient = project_gem(gradient, stacked, self.options.margin, self.options.ridge)
            assign_gradient(self.network.parameters(), gradient)
        self.optimizer.step()
        return loss.detach()

    def task_gradient(self, task: int) -> Tensor:
        """The gradient of the mean cross-entropy on all stored samples of a task, as one vector."""
        slots = (self.buffer.tasks == task).nonzero()[:, 0]
        images, labels = self.replayed(slots, task)
        parts = []
        for part, part_labels in zip(torch.split(images, LARGEST_PASS), torch.split(labels, LARGEST_PASS), strict=True):
            loss = F.cross_entropy(self.network(part), part_labels)
            # Weighted by its share of the samples, so that the parts add up to the gradient of the mean.
            parts.append(self.gradient(loss * (len(part) / len(images))))
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
