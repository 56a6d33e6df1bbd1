"""Averaged Replay (AVER): the method of this project.

It takes ACR's steps: two views of the current and of a replayed batch in one pass, and a memory in exact balance of
tasks and classes. Four things are different. The memory holds eight compressed colour images in the room of one (Wang
et al., ICLR 2022, did so with JPEG), and all images are learned as compression leaves them. Within a class the stored
images are random ones: a memory that holds many images has no need of those at the boundary, and they are not typical.
The loss is the mean of ACR's proxy-based contrastive loss and of cross-entropy over all outputs. And the network that
answers has averaged weights: the mean over the steps of training, in which a step counts half as much after a share of
a task that grows with the number of tasks: 0.07 for each so far, and one half at most.

    L = (1/N) Σ_i [ ½ log Σ_{c: n_c>0} n_c · exp(s_ic) + ½ log Σ_c exp(s_ic) − s_{i,y_i} ],   s_ic = f̂_i·ŵ_c/τ

The first term contrasts a sample with the classes of its batch, each as often as it occurs there, so that the many new
images do not push down the scores of old classes. The second contrasts it with all classes. A step costs what ACR's
costs, without ACR's pass for the confidence; the average costs one more copy of the weights.

What was tried, on held-out images, and what it brought: ``docs/research.md``.

Measure it: ``acr run --method aver --dataset split-cifar100``
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor

from acr.config import MethodOptions
from acr.methods.acr import ACR, ProxyOptions
from acr.methods.bases import PolicyName
from acr.values import AUTO


class AverOptions(ProxyOptions):
    """Options of AVER: those of ACR."""

    sources: ClassVar[Mapping[str, str]] = {
        "policy": "measured on held-out images: docs/research.md",
        **dict.fromkeys(
            ("temperature", "denominator", "passes", "confidence_from", "first_view", "second_view"), "ACR"
        ),
    }

    policy: PolicyName = "balanced-random"
    """Which samples the memory keeps."""


class Aver(ACR):
    """ACR's step with another loss, a dense memory of random samples in balance, and averaged weights."""

    name = "aver"
    label = "AVER"
    summary = "Averaged Replay: ACR's steps with cross-entropy added, a dense memory, averaged weights answer"
    Options: ClassVar[type[MethodOptions]] = AverOptions
    settings_source = "measured on held-out images: docs/research.md"
    options: AverOptions

    @classmethod
    def settings_for(cls, dataset: str, buffer_size: int) -> Mapping[str, Any]:
        """The same two rules for all data sets."""
        return {"average_weights": AUTO, "images_per_place": AUTO}

    def loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The mean of the proxy-based contrastive loss and the cross-entropy over all outputs; a scalar."""
        return (super().loss(embeddings, labels) + F.cross_entropy(self.network.head(embeddings), labels)) / 2
