"""Adaptive Contrastive Replay (ACR).

A proxy-based contrastive loss trains encoder and classifier together on two views of the current batch and of a replay
batch; the memory holds, in exact balance over tasks and classes, the samples whose confidence varied most over the
first E epochs of their task: those at the boundary between classes.

The file follows Algorithm 1 of the paper. Where the paper's text and its released program differ and neither is wrong,
an option chooses: ``denominator``, ``passes``, ``confidence_from``, ``first_view``, ``second_view``; the defaults are
the program's, which produced the printed numbers. One thing differs from the program unless ``--protocol published``
asks for it: the second view is made from the image, not from bytes that wrapped around.

Measure it: ``acr run --method acr --dataset split-cifar100``
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from acr.config import MethodOptions
from acr.data.views import join
from acr.losses import proxy_contrastive_loss
from acr.methods.bases import PolicyName, ReplayMethod, ReplayOptions, SecondView
from acr.methods.method import Batch, Context
from acr.networks import Network, ProxyHead


class ACROptions(ReplayOptions):
    """Options of ACR."""

    policy: PolicyName = "challenging"
    """What the memory keeps."""
    temperature: float = 0.09
    """Temperature τ of the loss and of the scores."""
    denominator: Literal["counted", "set"] = "counted"
    """Whether a class counts in the loss as often as it occurs in the batch, or once."""
    passes: Literal["separate", "joint"] = "separate"
    """Current and memory images through the network one after the other, or in one pass (one batch norm for both)."""
    confidence_from: Literal["plain-view", "training-view"] = "plain-view"
    """Confidence from an extra pass over the plain images, or from the training pass over the first view."""
    first_view: Literal["crop-flip", "plain"] = "crop-flip"
    """The first view of a current image."""
    second_view: SecondView = "strong"
    """The second view of every image: resized crop with colour jitter, crop (and flip), or none."""


class ACR(ReplayMethod):
    """Algorithm 1."""

    name = "acr"
    label = "ACR"
    summary = "Adaptive Contrastive Replay: proxy loss, boundary samples, exact balance"
    Options: ClassVar[type[MethodOptions]] = ACROptions
    head = "proxy"
    options: ACROptions

    def __init__(self, network: Network, options: ACROptions, context: Context) -> None:
        super().__init__(network, options, context)
        assert isinstance(network.head, ProxyHead)
        network.head.temperature = options.temperature

    def proxies(self) -> Tensor:
        """One learned vector a class."""
        assert isinstance(self.network.head, ProxyHead)
        return self.network.head.proxies

    def observe(self, batch: Batch) -> Tensor:
        """One step: two views of the current batch and of a replay batch, loss, confidence, update."""
        groups = [(batch.plain if self.options.first_view == "plain" else batch.augmented, batch.labels)]
        if len(self.buffer):
            groups.append(self.retrieve())
        groups = [self.with_second_view(images, labels, part) for part, (images, labels) in enumerate(groups)]

        if self.options.passes == "separate":
            embeddings = torch.cat([self.network.features(images) for images, _ in groups])
        else:
            embeddings = self.network.features(join(*(images for images, _ in groups)))
        labels = torch.cat([labels for _, labels in groups])
        temperature, denominator = self.options.temperature, self.options.denominator
        loss = proxy_contrastive_loss(embeddings, labels, self.proxies(), temperature, denominator)

        self.record_confidence(batch, self.training_confidence(embeddings, batch))  # of the model before its update
        self.step(loss)
        self.remember(batch)
        return loss.detach()

    def with_second_view(self, images: Tensor, labels: Tensor, part: int) -> tuple[Tensor, Tensor]:
        """Images followed by a second view of each, made from the first."""
        kind = self.options.second_view
        if kind == "none":
            return images, labels
        return join(images, self.second_view(images, kind, part)), labels.repeat(2)

    def training_confidence(self, embeddings: Tensor, batch: Batch) -> Tensor | None:
        """Confidence from the training pass, where that is wanted (the paper's z[:b])."""
        if self.options.confidence_from == "plain-view":
            return None
        with torch.no_grad():
            probability = self.network.head(embeddings[: len(batch)]).softmax(1)
        return probability.gather(1, batch.labels[:, None]).squeeze(1)
