"""Proxy-based Contrastive Replay (PCR).

The loss that ACR builds on, with a plain memory: every sample of the current and the replayed batch is contrasted with
the proxies of the classes that occur in them, and the memory is a reservoir. Lin, Zhang, Feng, Li and Ye, "PCR:
Proxy-based Contrastive Replay for Online Class-Incremental Continual Learning", CVPR 2023.

    L = (1/N) Σ_i [ log Σ_{c: n_c>0} n_c · exp(f̂_i·ŵ_c/τ) − f̂_i·ŵ_{y_i}/τ ]

It is ACR's step with other options. As in the authors' program, the two views of an image are the image itself and a
strong view of it, for current and for replayed images, τ is 0.09, and a class counts as often as it occurs.

Three things differ from that program. It sends current and replayed images through the network one after the other
(``passes`` separate); here they go together, as in ACR, so that the two methods do not differ by their batch norm. It
takes no step while the memory is empty, that is on the first batch of a run, while this trains on the current batch
alone. And it was made for one epoch per task; here a task has as many as the run says.

Measure it: ``acr run --method pcr --dataset split-cifar100``
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import Tensor

from acr.config import MethodOptions
from acr.methods.acr import ACR, ProxyOptions
from acr.methods.bases import ReplayDraws


class PCROptions(ProxyOptions):
    """Options of PCR: those of ACR, with other defaults."""

    sources: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("policy", "temperature", "denominator", "first_view", "second_view"), "the authors' program"),
        "passes": "ACR's, so that the two do not differ by it; the authors' program has separate ones",
        "confidence_from": "ACR's; the reservoir needs none",
    }

    first_view: Literal["crop-flip", "plain"] = "plain"
    """First view of a current or replayed image."""


class PCR(ACR):
    """ACR's loss, two views of every image, and a reservoir."""

    name = "pcr"
    label = "PCR"
    summary = "PCR: the proxy-based contrastive loss with a reservoir memory"
    Options: ClassVar[type[MethodOptions]] = PCROptions
    options: PCROptions

    def draw_replay(self, slots: Tensor | None = None, *more: int | str, transform: bool = True) -> ReplayDraws:
        """The draws of a replay batch; with the first view ``plain``, its images are replayed as they are stored."""
        return super().draw_replay(slots, *more, transform=transform and self.options.first_view != "plain")
