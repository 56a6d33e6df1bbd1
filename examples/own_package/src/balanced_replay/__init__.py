"""Replay in which every class has the same share, however many of its images are stored.

A reservoir keeps what the stream brings, so that a class of few images has few places in the memory. Experience replay
draws from the memory at random, and rehearses such a class rarely; here, every class is rehearsed equally often.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from acr.methods.bases import ReplayMethod
from acr.methods.method import Batch


def balanced_slots(labels: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """The places of up to ``size`` samples, random and without repetition, with equally many of each class.

    All classes give their first sample, in a random order, then all that have one their second, and so on. A class
    with too few samples leaves its share to the others.
    """
    order = torch.randperm(len(labels), generator=generator)
    _, classes = torch.unique(labels[order], return_inverse=True)
    how_many_before = F.one_hot(classes).cumsum(0).gather(1, classes[:, None])[:, 0]
    return order[torch.argsort(how_many_before, stable=True)[:size]]


class BalancedReplay(ReplayMethod):
    """Cross-entropy on the current batch and a replayed one that is balanced over the classes."""

    name = "balanced-replay"
    label = "Balanced Replay"
    summary = "Replay in which every class has the same share; reservoir memory"

    def draw(self, size: int | None = None, *more: int | str) -> Tensor:
        """Which stored samples are replayed. Draws come from the run's generator, so that a run can be resumed."""
        generator = self.context.generator("retrieve", *more)
        return balanced_slots(self.buffer.labels, size or self.context.replay_size, generator)

    def observe(self, batch: Batch) -> Tensor:
        """One step on the current and the replayed images together; returns the loss."""
        images, labels = self.with_replay(batch)
        loss = F.cross_entropy(self.network(images), labels)
        self.record_confidence(batch)  # for the policies of --policy that choose by it
        self.step(loss)
        self.remember(batch)
        return loss.detach()
