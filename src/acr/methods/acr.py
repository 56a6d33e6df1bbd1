"""Adaptive Contrastive Replay (ACR).

A proxy-based contrastive loss trains encoder and classifier together, on two views of the current batch and of a replay
batch. The memory is exactly balanced over tasks and classes. Within a class it keeps the samples whose confidence
varied most over the first E epochs of their task: those at the boundary between classes.

Algorithm 1 of the paper. The step numbers are this file's own, in the order in which the steps run:

    for each task t, for each epoch e, for each batch (x, y) of b samples:
         1  x¹ ← the first view of x
         2  m¹ ← a random batch of the memory, if the memory is not empty
         3  x² ← A(x¹), m² ← A(m¹), where A is a random augmentation
         4  z ← f([x¹, x², m¹, m²]), the embeddings
         5  Γ_e ← softmax(s(x))_y for each sample of the batch, in the first E epochs of the task
         6  L ← the proxy-based contrastive loss of z
         7  θ ← θ − η ∇L
    at the end of task t:
         8  share the B places of the memory evenly over the t tasks, then over the classes of each task
         9  prune each old class to its quota; the samples with the lowest σ² leave
        10  sort the samples of task t by decreasing σ², the variance of Γ_1..Γ_E
        11  insert them in this order, each one while its class is below its quota

Steps 1 to 7 are ``ACR.observe`` below; steps 8 to 11 are ``Balanced.end_task`` in ``acr.memory.policies``.

Where the paper's text and its released program differ, an option chooses, and ``--variant paper-text`` or ``--variant
released`` sets all of them at once. The defaults are the program's except for the passes: the text sends current and
memory images through the network together, the program one after the other, and together is better by several points
wherever it was measured (``docs/methods/acr.md``). ``--protocol published`` brings the program's separate passes back
(the quirk ``separate-passes``), and its second views, made from bytes that wrapped around (``wrapped-views``).

Measure it: ``acr run --method acr --dataset split-cifar100``
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import model_validator
from torch import Tensor

from acr.config import MethodOptions, RunConfig
from acr.data.views import join
from acr.losses import proxy_contrastive_loss
from acr.methods.bases import PolicyName, ReplayMethod, ReplayOptions
from acr.methods.method import Batch, Context
from acr.methods.second_views import SecondView, SecondViewDraws
from acr.networks import Network, ProxyHead
from acr.protocols import Protocol

Variant = Literal["paper-text", "released"]
VARIANTS: Mapping[Variant, Mapping[str, str]] = {
    "paper-text": {
        "denominator": "set",
        "passes": "joint",
        "confidence_from": "training-view",
        "first_view": "plain",
        "second_view": "crop-flip",
    },
    "released": {
        "denominator": "counted",
        "passes": "separate",
        "confidence_from": "plain-view",
        "first_view": "crop-flip",
        "second_view": "strong",
    },
}
"""What the paper's text says and what its released program does, where the two differ."""


class ProxyOptions(ReplayOptions):
    """Options of a method that takes ACR's steps."""

    sources: ClassVar[Mapping[str, str]] = {
        "temperature": "the paper and its released program",
        "denominator": "the released program; the text says set",
        "passes": "the paper's text, and measured: docs/methods/acr.md",
        "confidence_from": "the released program; the text says training-view",
        "first_view": "the released program; the text says plain",
        "second_view": "the released program; the text says crop-flip",
    }

    temperature: float = 0.09
    """Temperature τ of the loss and of the scores."""
    denominator: Literal["counted", "set"] = "counted"
    """Whether a class counts in the loss as often as it occurs in the batch, or once."""
    passes: Literal["joint", "separate"] | None = None
    """Whether current and memory images pass through the network together, or one after the other; together by default,
    and separately under the quirk separate-passes."""
    confidence_from: Literal["plain-view", "training-view"] = "plain-view"
    """Take confidence from an extra pass over the plain images, or from the training pass over the first view."""
    first_view: Literal["crop-flip", "plain"] = "crop-flip"
    """First view of a current image."""
    second_view: SecondView = "strong"
    """Second view of every image: resized crop with colour jitter, crop (and flip), or none."""


class ACROptions(ProxyOptions):
    """Options of ACR."""

    sources: ClassVar[Mapping[str, str]] = {"policy": "the paper", "variant": "no preset"}

    policy: PolicyName = "challenging"
    """Which samples the memory keeps."""
    variant: Variant | None = None
    """Preset of the five options on which the paper's text and its released program differ; each can still be given."""

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Replace a preset by its values, so that a config records what was done, whichever way it was asked for."""
        for name, preset in VARIANTS.items():
            if values.get("variant") == name:
                return {**preset, **values, "variant": None}
        return values


class ACR(ReplayMethod):
    """Algorithm 1. The score of class c is s_c(x) = (f̂·ŵ_c)/τ, with w_c the learned proxy of the class."""

    name = "acr"
    label = "ACR"
    summary = "Adaptive Contrastive Replay: proxy loss, boundary samples, exact balance"
    Options: ClassVar[type[MethodOptions]] = ACROptions
    head = "proxy"
    options: ProxyOptions

    def __init__(self, network: Network, options: ProxyOptions, context: Context) -> None:
        super().__init__(network, options, context)
        assert isinstance(network.head, ProxyHead)
        network.head.temperature = options.temperature
        self.passes = passes(options, context.protocol)

    @classmethod
    def complete_config(cls, config: RunConfig) -> RunConfig:
        """Record the passes that the protocol implies, beside what every replay method records."""
        config = super().complete_config(config)
        assert isinstance(config.options, ProxyOptions)
        in_force = {"passes": passes(config.options, config.protocol_in_force())}
        return config.model_copy(update={"options": config.options.model_copy(update=in_force)})

    def proxies(self) -> Tensor:
        """One learned vector per class, K x features."""
        assert isinstance(self.network.head, ProxyHead)
        return self.network.head.proxies

    def observe(self, batch: Batch) -> Tensor:
        """Steps 1 to 7 of Algorithm 1 for one batch; returns the loss before the update, a scalar."""
        # All random draws of the step are made here, on the host, and go to the device in one copy.
        memory = self.draw_replay() if len(self.buffer) else None
        sizes = [len(batch)] if memory is None else [len(batch), len(memory)]
        seconds = [self.draw_second_view(n, self.options.second_view, part) for part, n in enumerate(sizes)]
        view, memory, seconds = self.context.send((batch.draw_view(), memory, seconds))

        # Algorithm 1, step 1: the first view x¹ of the current batch.
        first_view = batch.plain if self.options.first_view == "plain" else batch.augment(view)
        groups = [(first_view, batch.labels)]

        # Algorithm 1, step 2: the replay batch m¹, drawn uniformly without replacement, in a random view. The memory is
        # filled at the end of a task, so the first task has no replay (only the reservoir policy stores earlier).
        if memory is not None:
            groups.append(self.replay(memory))

        # Algorithm 1, step 3: the second views x² = A(x¹) and m² = A(m¹), made from the first views and not from the
        # stored images. A batch of b images becomes 2b, or 4b with a replay batch of the same size.
        groups = [self.with_second_view(*group, draws) for group, draws in zip(groups, seconds, strict=True)]

        # Algorithm 1, step 4: the embeddings z, in the order x¹, x², m¹, m². In a joint pass batch norm computes its
        # statistics over current and memory images together; in separate passes each has its own.
        images, labels = [images for images, _ in groups], torch.cat([labels for _, labels in groups])
        first_pass, *later_passes = [join(*images)] if self.passes == "joint" else images
        embeddings = self.network.features(first_pass)

        # Algorithm 1, step 5: the confidence Γ_e of the current samples in the first E epochs, before the update. With
        # separate passes it is read between them, as in the released program: batch norm's running averages include
        # the current images by then, but not yet the memory's.
        self.record_confidence(batch, self.training_confidence(embeddings, batch))
        embeddings = torch.cat([embeddings, *map(self.network.features, later_passes)])

        # Algorithm 1, step 6: the loss of all embeddings.
        loss = self.loss(embeddings, labels)

        # Algorithm 1, step 7: θ ← θ − η ∇L, encoder and proxies together.
        self.step(loss)

        # Only the reservoir policy stores samples here; the balanced ones wait for steps 8 to 11 in `end_task`.
        self.remember(batch)
        return loss.detach()

    def loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """L = (1/N) Σ_i [ log Σ_{c: n_c>0} n_c · exp(f̂_i·ŵ_c/τ) − f̂_i·ŵ_{y_i}/τ ], a scalar.

        n_c is the number of the N embeddings that belong to class c (1 with denominator "set").
        """
        temperature, denominator = self.options.temperature, self.options.denominator
        return proxy_contrastive_loss(embeddings, labels, self.proxies(), temperature, denominator)

    def with_second_view(self, images: Tensor, labels: Tensor, draws: SecondViewDraws) -> tuple[Tensor, Tensor]:
        """First views followed by their second views (2n images), and their labels repeated; no draws: as they are."""
        if draws is None:
            return images, labels
        return join(images, self.second_view(images, draws)), labels.repeat(2)

    def training_confidence(self, embeddings: Tensor, batch: Batch) -> Tensor | None:
        """Γ_e of the b current samples from the training pass, if the option asks for it; otherwise None."""
        if self.options.confidence_from == "plain-view":
            return None
        with torch.no_grad():
            probability = self.network.head(embeddings[: len(batch)]).softmax(1)  # the paper's z[:b]: x¹ comes first
        return probability.gather(1, batch.labels[:, None]).squeeze(1)


def passes(options: ProxyOptions, protocol: Protocol) -> Literal["joint", "separate"]:
    """How current and memory images pass through the network: as the option says, or else as the protocol does it."""
    return options.passes or ("separate" if "separate-passes" in protocol else "joint")
