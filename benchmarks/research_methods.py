"""Variants of replay with averaged weights, tried in research.py. What earned its place is acr/methods/aver.py.

Every variant takes ACR's steps (two views of current and replayed images in one pass, boundary samples in exact
balance) and differs from its neighbours in one option. The averaged network exists from the first step on, so that an
option may use it as a teacher or as a judge of confidence.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from acr.config import MethodOptions
from acr.data.views import join
from acr.losses import class_counts, proxy_contrastive_loss
from acr.methods.bases import PolicyName, ReplayMethod, ReplayOptions, own_class_confidence
from acr.methods.method import Batch, Context, Method
from acr.networks import Network, ProxyHead
from acr.networks.averaging import WeightAverage


class LabOptions(ReplayOptions):
    """What the variants differ in."""

    policy: PolicyName = "challenging"
    loss: Literal["proxy", "ce", "balanced", "cosine", "sum", "linear-sum"] = "proxy"
    """proxy: ACR's; ce: cross-entropy over all outputs; balanced: the same with log n_c added to the scores, n_c the
    images of class c in the batch; cosine: cross-entropy of cosines over the temperature; sum: proxy and cosine;
    linear-sum: ce and balanced."""
    asymmetric: bool = False
    """In the cross-entropy, current images are classified among the classes of their batch only, as in ER-ACE."""
    distil: float = 0.0
    """Weight of the squared distance of replayed images' scores from the averaged network's."""
    confidence_from_average: bool = False
    """Boundary samples are those whose confidence varies in the averaged network."""
    mix: bool = False
    """Second views are mixed with first views, with a uniform share per image: AugMix with one chain."""
    views: int = 2
    current_views: int | None = None
    """Views of current images, if not as many as of replayed ones."""
    temperature: float = 0.09


class Lab(ReplayMethod):
    """One step for all variants."""

    name = "lab"
    Options: ClassVar[type[MethodOptions]] = LabOptions
    options: LabOptions
    teacher: WeightAverage

    def __init__(self, network: Network, options: LabOptions, context: Context) -> None:
        super().__init__(network, options, context)
        if isinstance(network.head, ProxyHead):
            network.head.temperature = options.temperature

    def observe(self, batch: Batch) -> Tensor:
        """One step; returns the loss."""
        o = self.options
        memory = self.draw_replay() if len(self.buffer) else None
        counts = [o.current_views or o.views, o.views]
        sizes = [len(batch)] if memory is None else [len(batch), len(memory)]
        draws = [
            [self.draw_second_view(n, "strong", part + 2 * view) for view in range(views - 1)]
            for part, (n, views) in enumerate(zip(sizes, counts, strict=False))
        ]
        groups = [(batch.augment(batch.draw_view()), batch.labels)]
        if memory is not None:
            groups.append(self.replay(memory))
        images, labels = [], []
        for part, ((first, own), more) in enumerate(zip(groups, draws, strict=True)):
            views = [first, *(self.mixed(first, self.second_view(first, d), part) for d in more)]
            images.append(join(*views))
            labels.append(own.repeat(len(views)))
        current, answers = len(images[0]), torch.cat(labels)
        embeddings = self.network.features(join(*images))
        if self.confidence is not None and batch.epoch < self.confidence.epochs:
            judge = self.teacher.network if o.confidence_from_average and self.teacher.total else self.network
            self.record_confidence(batch, own_class_confidence(judge, batch.plain, batch.labels))
        loss = self.loss(embeddings, answers, current)
        if o.distil and memory is not None:
            with torch.no_grad():
                target = self.teacher.network(images[1])
            loss = loss + o.distil * F.mse_loss(self.network.head(embeddings[current:]), target)
        self.step(loss)
        self.remember(batch)
        return loss.detach()

    def mixed(self, first: Tensor, second: Tensor, part: int) -> Tensor:
        """The second view, or a mixture of both."""
        if not self.options.mix:
            return second
        share = torch.rand(len(first), 1, 1, 1, generator=self.context.generator("mix", part))
        return (share * first + (1 - share) * second).round().to(torch.uint8)

    def loss(self, embeddings: Tensor, labels: Tensor, current: int) -> Tensor:
        """The mean loss of all images."""
        kind = self.options.loss
        if self.options.asymmetric and self.context.task > 0 and current < len(labels):
            share = current / len(labels)
            new = self.loss_of("cosine", embeddings[:current], labels[:current], labels[:current])
            old = self.loss_of("cosine", embeddings[current:], labels[current:])
            contrast = self.loss_of("proxy", embeddings, labels) if kind == "sum" else 0.0
            return contrast + share * new + (1 - share) * old
        if kind == "sum":
            return self.loss_of("proxy", embeddings, labels) + self.loss_of("cosine", embeddings, labels)
        if kind == "linear-sum":
            return self.loss_of("ce", embeddings, labels) + self.loss_of("balanced", embeddings, labels)
        return self.loss_of(kind, embeddings, labels)

    def loss_of(self, kind: str, embeddings: Tensor, labels: Tensor, among: Tensor | None = None) -> Tensor:
        """The mean loss of one kind; ``among``: labels whose classes are the only ones to choose from."""
        if kind == "proxy" and isinstance(self.network.head, ProxyHead):
            return proxy_contrastive_loss(embeddings, labels, self.network.head.proxies, self.options.temperature)
        scores = self.network.head(embeddings)
        if among is not None:
            scores = scores + class_counts(among, self.network.num_classes, scores.dtype).clamp(max=1).log()
        if kind == "balanced":
            scores = scores + class_counts(labels, self.network.num_classes, scores.dtype).log()
        return F.cross_entropy(scores, labels)


class ProxyLab(Lab):
    """Variants whose scores are cosines."""

    name = "proxy-lab"
    head = "proxy"


def lab_class(options: dict[str, object]) -> type[Method]:
    """The class of a variant: its loss decides the head."""
    return ProxyLab if options.get("loss", "proxy") in ("proxy", "cosine", "sum") else Lab
