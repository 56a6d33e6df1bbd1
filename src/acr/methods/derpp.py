"""Dark Experience Replay++ (DER++).

Each image is stored with the logits that the network gave it at that time. A step adds two terms to the loss on the
current batch: the squared distance between present and stored logits on one replay batch, and the cross-entropy on a
second one. Buzzega, Boschini, Porrello, Abati and Calderara, "Dark Experience for General Continual Learning", NeurIPS
2020.

As in the original, the squared distance is averaged over samples and outputs, each batch has a pass of its own, and
the memory is a reservoir of plain images with the logits of their augmented view at insertion. Where outputs are added
later, stored logits are compared only on the outputs that existed when they were stored.

Measure it: ``acr run --method derpp --dataset split-cifar100``
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from acr.config import MethodOptions
from acr.memory.policies import Reservoir
from acr.methods.bases import MemoryMethod
from acr.methods.method import Batch

TUNED_ALPHA: Mapping[str, Mapping[int, float]] = {
    "split-cifar10": {0: 0.1, 500: 0.2},
    "split-cifar100": {0: 0.1},
    "split-mini-imagenet": {0: 0.2, 5120: 0.1},  # not tuned there: Tiny-ImageNet's
    "split-tiny-imagenet": {0: 0.2, 5120: 0.1},
}
"""α by data set and by the size of the memory from which it holds."""


class DERppOptions(MethodOptions):
    """Options of DER++."""

    sources: ClassVar[Mapping[str, str]] = {
        "alpha": "Mammoth, the authors' own program: CIFAR-100",
        "beta": "Mammoth, the authors' own program: CIFAR-100",
    }

    alpha: float = Field(0.1, ge=0)
    """Weight of the distance from the stored logits (α)."""
    beta: float = Field(0.5, ge=0)
    """Weight of the replayed cross-entropy (β)."""


class DERpp(MemoryMethod):
    """Replay of labels and of stored logits."""

    name = "derpp"
    label = "DER++"
    summary = "DER++: replay of labels and of the logits stored with them"
    Options: ClassVar[type[MethodOptions]] = DERppOptions
    settings_source = "Mammoth, the authors' own program: utils/best_args.py"
    options: DERppOptions
    device_columns: ClassVar[Collection[str]] = ("logits",)

    @classmethod
    def settings_for(cls, dataset: str, buffer_size: int) -> Mapping[str, Any]:
        """The authors' settings; between the sizes of memory that they tuned for, those of the next smaller one."""
        if dataset not in TUNED_ALPHA:
            return {}
        alpha = TUNED_ALPHA[dataset]
        return {"learning_rate": 0.03, "alpha": alpha[max(size for size in alpha if size <= buffer_size)], "beta": 0.5}

    def buffer_columns(self) -> dict[str, tuple[int, ...]]:
        """The logits at insertion, one per output."""
        return {"logits": (self.network.num_classes,)}

    def observe(self, batch: Batch) -> Tensor:
        """One step on L = CE(x, y) + α·mean‖h(x_m) − stored logits‖² + β·CE(x_m', y_m'); returns L.

        x_m and x_m' are two independent replay batches.
        """
        if self.buffer.column("logits").shape[1] < self.network.num_classes:
            self.buffer.widen("logits", self.network.num_classes)
        # All random draws of the step, made on the host and sent to the device in one copy.
        memory = None
        if len(self.buffer):
            memory = self.draw_replay(), self.draw_replay(self.draw(None, "second"), "second")
        view, memory = self.context.send((batch.draw_view(), memory))
        # CE(x, y) on the current batch; its logits are stored with the batch below.
        logits = self.network(batch.augment(view))
        loss = F.cross_entropy(logits, batch.labels)
        if memory is not None:
            # α times the mean square of h(x_m) − stored logits, which holds the network to its former outputs.
            first, second = memory
            images, _ = self.replay(first)
            stored = self.buffer.column("logits").index_select(0, first.slots)
            loss = loss + self.options.alpha * logit_distance(self.network(images), stored)
            # β·CE(x_m', y_m') on a second replay batch.
            images, labels = self.replay(second)
            loss = loss + self.options.beta * F.cross_entropy(self.network(images), labels)
        self.step(loss)
        draws = self.context.generator("policy")
        labels = batch.labels_on_host
        Reservoir().observe(self.buffer, batch.plain, labels, batch.task, draws, logits=logits.detach())
        return loss.detach()


def logit_distance(logits: Tensor, stored: Tensor) -> Tensor:
    """Mean square of logits − stored, both n x K; outputs added since the logits were stored (NaN) count as 0."""
    return torch.where(stored.isnan(), 0.0, logits - stored.nan_to_num()).square().mean()
