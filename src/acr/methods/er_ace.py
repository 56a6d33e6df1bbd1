"""Experience Replay with Asymmetric Cross-Entropy (ER-ACE).

The current batch is classified only among the classes that occur in it, so that new classes do not push down the scores
of old ones. Only the replay batch, classified among all classes seen, separates old classes from new ones.
Caccia, Aljundi, Asadi, Tuytelaars, Pineau and Belilovsky, "New Insights on Reducing Abrupt Representation Change in
Online Continual Learning", ICLR 2022.

As in the original, replay begins with the second task, and in the first task the current batch is classified among all
classes seen. In later tasks a current batch of a single class has a loss of zero: only the replay batch trains then.

Measure it: ``acr run --method er-ace --dataset split-cifar100``
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from acr.losses import class_counts, masked_cross_entropy
from acr.methods.bases import ReplayMethod
from acr.methods.method import Batch


class ERACE(ReplayMethod):
    """Cross-entropy among the batch's own classes, plus replay among all classes seen."""

    name = "er-ace"
    label = "ER-ACE"
    summary = "ER-ACE: the current batch is classified among its own classes, replay among all"
    settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        name: {"learning_rate": 0.03} for name in ("split-cifar100", "split-mini-imagenet", "split-tiny-imagenet")
    }
    settings_source = "Mammoth: utils/best_args.py has 0.03 for CIFAR-100; the other two were not tuned there"

    def observe(self, batch: Batch) -> Tensor:
        """One step on the sum of the two losses, each batch in a pass of its own; returns that sum."""
        first_task = self.context.task == 0
        outputs = self.network.num_classes
        seen = class_counts(torch.tensor(self.context.seen), outputs)
        memory = self.draw_replay() if len(self.buffer) and not first_task else None
        # All random draws of the step, and the classes seen, go to the device in one copy.
        view, memory, seen = self.context.send((batch.draw_view(), memory, seen))
        # CE over the classes C present in the batch, Σ_{c∈C} exp(h_c) in the denominator; in the first task C is all
        # classes seen.
        present = seen if first_task else class_counts(batch.labels, outputs)
        loss = masked_cross_entropy(self.network(batch.augment(view)), batch.labels, present)
        if memory is not None:
            # CE of the replay batch over all classes seen.
            images, labels = self.replay(memory)
            loss = loss + masked_cross_entropy(self.network(images), labels, seen)
        self.record_confidence(batch)
        self.step(loss)
        self.remember(batch)
        return loss.detach()
