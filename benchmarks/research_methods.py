"""Variants of replay with averaged weights, tried in research.py. What earned its place is acr/methods/aver.py.

Every variant takes ACR's steps (two views of current and replayed images in one pass, boundary samples in exact
balance) and differs from its neighbours in one option. The averaged network exists from the first step on, so that an
option may use it as a teacher or as a judge of confidence.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from dataclasses import replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from acr.config import MethodOptions
from acr.data.stream import Task
from acr.data.views import join
from acr.losses import class_counts, unit
from acr.methods.bases import PolicyName, ReplayMethod, ReplayOptions, own_class_confidence
from acr.methods.method import Batch, Context, Method
from acr.networks import Network, ProxyHead
from acr.networks.averaging import WeightAverage
from acr.randomness import generator


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
    keep: float = 0.0
    """Weight of distillation on current images: the scores of old classes stay those of the averaged network."""
    frozen: bool = False
    """The network to keep to is the averaged one as it was when the task began, not as it is by now."""
    contrast: float = 0.0
    """Weight of the supervised contrastive loss between the embeddings of a batch (Khosla et al. 2020)."""
    imprint: bool = False
    """The proxies of a task's classes begin as the mean embeddings of their images (Qi et al. 2018), in the averaged
    networks, too."""
    restart: bool = False
    """Every task after the first begins with the averaged weights in place of the trained ones."""
    teacher: str = "0.2t"
    """Half-life of the average that the variant uses while it learns."""
    cutmix: Literal["none", "second", "replayed"] = "none"
    """Which views have a rectangle of another image, whose label counts for its share of the area: none, second views,
    or both views of replayed images."""
    strong_replay: bool = False
    """The first view of a replayed image is a strong one, too."""
    confidence_from_average: bool = False
    """Boundary samples are those whose confidence varies in the averaged network."""
    mix: bool = False
    """Second views are mixed with first views, with a uniform share per image: AugMix with one chain."""
    views: int = 2
    current_views: int | None = None
    """Views of current images, if not as many as of replayed ones."""
    norm: Literal["batch", "group"] = "batch"
    """Layers that normalise: over the batch, or over groups of four channels of each image (Wu and He 2018)."""
    temperature: float = 0.09
    turn: float = 0.0
    """Probability that a second view is turned by 90, 180 or 270 degrees. A class turned by an angle is a class of its
    own, with a proxy of its own that no answer uses (Zhu et al. 2021; Lee et al. 2020)."""
    dark: float = 0.0
    """Weight of the divergence of replayed images' probabilities from those that the averaged network gave when the
    image was stored, among the classes of that time (DER's idea, Buzzega et al. 2020)."""
    fair: bool = False
    """Replayed images count as much in the loss as their tasks among all tasks so far, not as their number."""
    coded: float = 1.0
    """Share of current images that are seen as the memory will give them back, if it compresses its images. Where it is
    less than one, the loop gives them as they are."""


class Lab(ReplayMethod):
    """One step for all variants."""

    name = "lab"
    Options: ClassVar[type[MethodOptions]] = LabOptions
    options: LabOptions
    teacher: WeightAverage
    averages: Collection[WeightAverage]
    judge: Network
    old: list[int]

    def __init__(self, network: Network, options: LabOptions, context: Context) -> None:
        if options.norm == "group":
            group_norms(network)
        if options.turn:
            assert isinstance(network.head, ProxyHead)
            network.turned = torch.nn.Parameter(
                more_proxies(network.head.proxies, 3, generator(context.seed, "turned"))
            )
        super().__init__(network, options, context)
        if isinstance(network.head, ProxyHead):
            network.head.temperature = options.temperature
        self.stored_scores: dict[bytes, Tensor] = {}

    def begin_task(self, task: Task) -> None:
        """Begin with the averaged weights, if that is what the variant does."""
        super().begin_task(task)
        new = set(task.targets.tolist())
        self.old = [column for column in self.context.seen if column not in new]
        self.judge = deepcopy(self.teacher.network) if self.options.frozen else self.teacher.network
        if self.options.imprint and self.old:
            for network in (self.network, *(average.network for average in self.averages)):
                imprint(network, task.images(), task.targets)
        if self.options.restart and self.teacher.total:
            self.network.load_state_dict(self.teacher.network.state_dict())

    def observe(self, batch: Batch) -> Tensor:
        """One step; returns the loss."""
        o = self.options
        if 0 < o.coded < 1 and self.context.codec is not None:
            chosen = torch.rand(len(batch), 1, 1, 1, generator=self.context.generator("coded")) < o.coded
            batch = replace(batch, plain=torch.where(chosen, self.context.codec.as_stored(batch.plain), batch.plain))
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
        images, labels, pasted, share = [], [], [], 0.0
        for part, ((first, own), more) in enumerate(zip(groups, draws, strict=True)):
            views = [first, *(self.mixed(first, self.second_view(first, d), part) for d in more)]
            if o.strong_replay and part:
                views[0] = self.second_view(first, self.draw_second_view(len(first), "strong", part + 2 * o.views))
            partners = [own] * len(views)
            for number in range(len(views)):
                if (o.cutmix == "replayed" and part) or (o.cutmix == "second" and number):
                    views[number], partners[number], share = self.patched(views[number], own, part)
            answers_of = [own] * len(views)
            if o.turn:
                views[1], answers_of[1] = self.turned(views[1], own, part)
            images.append(join(*views))
            labels.append(torch.cat(answers_of))
            pasted.append(torch.cat(partners))
        current, answers = len(images[0]), torch.cat(labels)
        embeddings = self.network.features(join(*images))
        if self.confidence is not None and batch.epoch < self.confidence.epochs:
            judge = self.teacher.network if o.confidence_from_average and self.teacher.total else self.network
            self.record_confidence(batch, own_class_confidence(judge, batch.plain, batch.labels))
        loss = self.loss(embeddings, answers, current)
        if share:
            loss = (1 - share) * loss + share * self.loss(embeddings, torch.cat(pasted), current)
        if o.contrast:
            loss = loss + o.contrast * contrast(embeddings, answers)
        if o.distil and memory is not None:
            with torch.no_grad():
                target = self.teacher.network(images[1])
            loss = loss + o.distil * F.mse_loss(self.network.head(embeddings[current:]), target)
        if o.dark and memory is not None:
            loss = loss + o.dark * self.forgotten(memory.slots, embeddings[current:])
        if o.keep and self.old:
            share = len(self.old) / len(self.context.seen)
            loss = loss + o.keep * share * self.departure(images[0][: len(batch)], embeddings[: len(batch)])
        self.step(loss)
        self.remember(batch)
        return loss.detach()

    def end_task(self, task: Task) -> None:
        """Rebuild the memory, and note what the averaged network says of the images that are new in it."""
        super().end_task(task)
        if self.options.dark:
            known, self.stored_scores = self.stored_scores, {}
            seen = torch.full((self.network.num_classes,), -torch.inf)
            seen[torch.tensor(sorted(self.context.seen))] = 0
            with torch.no_grad():
                for image in self.buffer.images:
                    name = image.numpy().tobytes()
                    scores = known[name] if name in known else self.teacher.network(image[None])[0] + seen
                    self.stored_scores[name] = scores

    def forgotten(self, slots: Tensor, embeddings: Tensor) -> Tensor:
        """KL(stored || own probabilities) among the classes of the time of storing, the mean over images."""
        stored = torch.stack([self.stored_scores[self.buffer.images[slot].numpy().tobytes()] for slot in slots])
        stored = stored.repeat(len(embeddings) // len(slots), 1)
        own = self.network.head(embeddings).masked_fill(stored == -torch.inf, -torch.inf).log_softmax(1)
        target = stored.log_softmax(1)
        return (target.exp() * (target - own).nan_to_num(0.0)).sum(1).mean()

    def turned(self, images: Tensor, labels: Tensor, part: int) -> tuple[Tensor, Tensor]:
        """Some images turned by a random right angle, and the classes that this makes of them."""
        draws = self.context.generator("turn", part)
        angles = torch.randint(1, 4, (len(images),), generator=draws)
        angles[torch.rand(len(images), generator=draws) >= self.options.turn] = 0
        views = torch.stack([image.rot90(int(k), (1, 2)) for image, k in zip(images, angles, strict=True)])
        return views, labels + self.network.num_classes * angles

    def departure(self, images: Tensor, embeddings: Tensor, temperature: float = 2.0) -> Tensor:
        """T² KL(averaged network's || own probabilities among old classes at temperature T), the mean over images."""
        with torch.no_grad():
            target = self.judge(images)[:, self.old] / temperature
        own = self.network.head(embeddings)[:, self.old] / temperature
        return temperature**2 * F.kl_div(
            own.log_softmax(1), target.log_softmax(1), reduction="batchmean", log_target=True
        )

    def mixed(self, first: Tensor, second: Tensor, part: int) -> Tensor:
        """The second view, or a mixture of both."""
        if not self.options.mix:
            return second
        share = torch.rand(len(first), 1, 1, 1, generator=self.context.generator("mix", part))
        return (share * first + (1 - share) * second).round().to(torch.uint8)

    def patched(self, images: Tensor, labels: Tensor, part: int) -> tuple[Tensor, Tensor, float]:
        """Images with a rectangle of others, the others' labels, and the rectangle's share of the area."""
        draws = self.context.generator("cutmix")
        height, width = images.shape[2:]
        ratio, top, left = torch.rand(3, generator=draws).tolist()
        rows, columns = (round(side * ratio**0.5) for side in (height, width))
        y, x = round(top * (height - rows)), round(left * (width - columns))
        others = torch.randperm(len(images), generator=self.context.generator("cutmix", part))
        images = images.clone()
        images[:, :, y : y + rows, x : x + columns] = images[others, :, y : y + rows, x : x + columns]
        return images, labels[others], rows * columns / (height * width)

    def loss(self, embeddings: Tensor, labels: Tensor, current: int) -> Tensor:
        """The mean loss of all images."""
        kind = self.options.loss
        if self.options.fair and current < len(labels):
            new, kinds = 1 / (self.context.task + 1), {"sum": ("proxy", "cosine")}.get(kind, (kind,))
            weights = torch.full((len(labels),), (1 - new) / (len(labels) - current))
            weights[:current] = new / current
            return sum(((weights * self.losses_of(k, embeddings, labels)).sum() for k in kinds), torch.zeros(()))
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
        return self.losses_of(kind, embeddings, labels, among).mean()

    def losses_of(self, kind: str, embeddings: Tensor, labels: Tensor, among: Tensor | None = None) -> Tensor:
        """The loss of every image."""
        scores = self.network.head(embeddings)
        if self.options.turn:
            scores = torch.cat([scores, unit(embeddings) @ unit(self.network.turned).T / self.options.temperature], 1)
        outputs = scores.shape[1]
        if among is not None:
            scores = scores + class_counts(among, outputs, scores.dtype).clamp(max=1).log()
        if kind in ("balanced", "proxy"):  # cosines of the batch's classes, corrected for their images, are ACR's loss
            scores = scores + class_counts(labels, outputs, scores.dtype).log()
        return F.cross_entropy(scores, labels, reduction="none")


class ProxyLab(Lab):
    """Variants whose scores are cosines."""

    name = "proxy-lab"
    head = "proxy"


def group_norms(network: torch.nn.Module) -> None:
    """Replace every batch norm below a module by a group norm."""
    for name, child in network.named_children():
        if isinstance(child, torch.nn.BatchNorm2d):
            setattr(network, name, torch.nn.GroupNorm(child.num_features // 4, child.num_features))
        else:
            group_norms(child)


def more_proxies(proxies: Tensor, times: int, draws: torch.Generator) -> Tensor:
    """So many times as many proxies, initialised like those of a head."""
    features = proxies.shape[1]
    return (2 * torch.rand(times * len(proxies), features, generator=draws) - 1) / features**0.5


def contrast(embeddings: Tensor, labels: Tensor, temperature: float = 0.1) -> Tensor:
    """−(1/N) Σ_i (1/|P_i|) Σ_{p in P_i} log exp(z_i·z_p/τ) / Σ_{a≠i} exp(z_i·z_a/τ), P_i the others of i's class."""
    unit = F.normalize(embeddings, dim=1)
    itself = torch.eye(len(unit), dtype=torch.bool)
    scores = (unit @ unit.T / temperature).masked_fill(itself, -torch.inf)
    same = (labels[:, None] == labels) & ~itself
    return -(scores.log_softmax(1).masked_fill(~same, 0).sum(1) / same.sum(1).clamp(min=1)).mean()


@torch.no_grad()
def imprint(network: Network, images: Tensor, labels: Tensor) -> None:
    """Point the proxies of these labels' classes in the mean direction of their images' embeddings."""
    assert isinstance(network.head, ProxyHead)
    was_training = network.training
    network.eval()
    unit = F.normalize(torch.cat([network.features(part) for part in images.split(500)]), dim=1)
    network.train(was_training)
    for label in labels.unique():
        mean = F.normalize(unit[labels == label].mean(0), dim=0)
        network.head.proxies[label] = mean * network.head.proxies[label].norm()


def lab_class(options: dict[str, object]) -> type[Method]:
    """The class of a variant: its loss decides the head."""
    return ProxyLab if options.get("loss", "proxy") in ("proxy", "cosine", "sum") else Lab
