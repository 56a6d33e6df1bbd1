"""Fine-tuning: the lower bound. Cross-entropy on the current batch, no memory; old classes are forgotten.

``second_view`` adds a second view of every image, so that bounds can be had for methods that train on two views.

Measure it: ``acr run --method finetune --dataset split-cifar100``
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor

from acr.config import MethodOptions
from acr.data.views import join
from acr.methods.method import Batch, Method
from acr.methods.second_views import SecondView


class FinetuneOptions(MethodOptions):
    """Options of fine-tuning and of joint training."""

    added_later: ClassVar[Mapping[str, Any]] = {"second_view": "none"}
    sources: ClassVar[Mapping[str, str]] = {"second_view": "the usual bound"}

    second_view: SecondView = "none"
    """Second view of every image, for bounds on methods that train on two views."""


class Finetune(Method):
    """Cross-entropy on the current batch."""

    name = "finetune"
    label = "Fine-tuning"
    reference = True
    summary = "Fine-tuning: no memory, the lower bound"
    Options: ClassVar[type[MethodOptions]] = FinetuneOptions
    options: FinetuneOptions
    uses_memory = False

    def observe(self, batch: Batch) -> Tensor:
        """One step on the cross-entropy of the current batch; returns that loss."""
        view, second = self.context.send(
            (batch.draw_view(), self.draw_second_view(len(batch), self.options.second_view))
        )
        images, labels = batch.augment(view), batch.labels
        if second is not None:
            images, labels = join(images, self.second_view(images, second)), labels.repeat(2)
        loss = F.cross_entropy(self.network(images), labels)
        self.step(loss)
        return loss.detach()
