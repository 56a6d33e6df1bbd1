"""Experience Replay (ER).

Every step trains on the current batch and a random batch of the memory together; the memory is a reservoir sample of
everything seen. Riemer et al. 2019; Chaudhry et al. 2019, "On Tiny Episodic Memories in Continual Learning".

The default stores plain images and replays them in a fresh random view, as most libraries do. The paper's released
program stores the augmented view and replays it unchanged: the quirk ``frozen-replay``. ``second_view`` adds a second
view of every image, so that ER can be compared with ACR on the same views.

Measure it: ``acr run --method er --dataset split-cifar100``
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from acr.config import MethodOptions
from acr.data.views import join
from acr.methods.bases import ReplayMethod, ReplayOptions
from acr.methods.method import Batch
from acr.methods.second_views import SecondView


class EROptions(ReplayOptions):
    """Options of ER."""

    sources: ClassVar[Mapping[str, str]] = {"second_view": "ER's authors"}

    second_view: SecondView = "none"
    """Second view of every image, for comparisons with ACR on the same views."""


class ER(ReplayMethod):
    """Cross-entropy on the current and a replayed batch."""

    name = "er"
    label = "ER"
    summary = "Experience Replay: current and replayed batch together, reservoir memory"
    Options: ClassVar[type[MethodOptions]] = EROptions
    options: EROptions

    @classmethod
    def settings_for(cls, dataset: str, buffer_size: int) -> Mapping[str, Any]:
        """The paper's settings: a higher rate on Tiny-ImageNet with a large memory."""
        return {"learning_rate": 0.1} if dataset == "split-tiny-imagenet" and buffer_size >= 1000 else {}

    def observe(self, batch: Batch) -> Tensor:
        """One step on the mean cross-entropy of current and replayed images, in one pass; returns that loss."""
        frozen = "frozen-replay" in self.context.protocol
        # All random draws of the step, made on the host and sent to the device in one copy.
        memory = self.draw_replay(transform=not frozen) if len(self.buffer) else None
        second = self.draw_second_view(len(batch) + (0 if memory is None else len(memory)), self.options.second_view)
        view, memory, second = self.context.send((batch.draw_view(), memory, second))
        images, labels = batch.augment(view), batch.labels
        if memory is not None:
            replayed, replayed_labels = self.replay(memory)
            images, labels = join(images, replayed), torch.cat([labels, replayed_labels])
        if second is not None:
            images = join(images, self.second_view(images, second))
            labels = labels.repeat(2)
        loss = F.cross_entropy(self.network(images), labels)
        self.record_confidence(batch)
        self.step(loss)
        self.remember(batch, batch.augmented if frozen else None)
        return loss.detach()
