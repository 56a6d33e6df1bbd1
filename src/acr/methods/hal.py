"""Hindsight Anchor Learning (HAL).

Each class seen has an anchor: an image made to be the one that the network would forget most. A step trains like ER and
is kept from moving the predictions for the anchors: the squared change that a plain step would cause is added to the
loss. Chaudhry, Gordo, Dokania, Torr and Lopez-Paz, "Using Hindsight to Anchor Past Knowledge in Continual Learning",
AAAI 2021.

As in the paper's comparison, the memory is a reservoir (a ring with an equal part for each task was intended, but the
reservoir produced the printed numbers), and forgetting is simulated by a step on a memory batch. The plain step is
taken on a copy of the parameters only. Anchors are not real images, so passes over them do not update the running
averages of batch norm. ``policy`` offers other memories.

Notation: θ are the parameters, h_θ(x) the logits, f_θ(x) the embedding, η the learning rate.

Measure it: ``acr run --method hal --dataset split-cifar100``
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call, vmap

from acr.config import MethodOptions, Precision, RunConfig
from acr.data.stream import Task
from acr.errors import is_out_of_memory
from acr.methods.bases import ReplayMethod, ReplayOptions
from acr.methods.maths.hindsight import hindsight_loss
from acr.methods.method import Batch, Context
from acr.networks import Network

Parameters = dict[str, Tensor]


class HALOptions(ReplayOptions):
    """Options of HAL."""

    sources: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("anchor_weight", "mean_decay", "embedding_weight", "anchor_steps"),
        "the launcher of the paper's released program",
    )

    anchor_weight: float = Field(0.1, ge=0)
    """Weight of the anchor term in the loss (λ)."""
    mean_decay: float = Field(0.5, ge=0, lt=1)
    """How slowly the mean embedding of a task follows its batches (β)."""
    embedding_weight: float = Field(0.1, ge=0)
    """Weight that keeps an anchor near the mean embedding of its task (γ)."""
    anchor_steps: int = Field(100, ge=1)
    """Number of gradient steps that make an anchor."""


class HAL(ReplayMethod):
    """Experience replay that does not move the predictions for the anchors."""

    name = "hal"
    label = "HAL"
    summary = "HAL: replay that holds the predictions for one learned anchor per class in place"
    precisions: ClassVar[Collection[Precision]] = ("32", "bf16-mixed")  # it takes trial steps with its own gradients
    Options: ClassVar[type[MethodOptions]] = HALOptions
    settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {  # the paper's
        "split-cifar100": {"anchor_weight": 0.1, "mean_decay": 0.3, "embedding_weight": 0.1},
        "split-mini-imagenet": {"anchor_weight": 0.1, "mean_decay": 0.5, "embedding_weight": 0.1},
        "split-tiny-imagenet": {"anchor_weight": 0.1, "mean_decay": 0.5, "embedding_weight": 0.1},
    }
    options: HALOptions

    def __init__(self, network: Network, options: HALOptions, context: Context) -> None:
        super().__init__(network, options, context)
        self.anchors: dict[int, Tensor] = {}
        """One image per class seen, C x H x W, in order of arrival; on the scale 0..1 but not limited to it."""
        self.mean_embedding = torch.zeros((), device=context.device)
        """φ: the running mean of the current task's embeddings, one value per feature."""

    @classmethod
    def shortened(cls, config: RunConfig) -> tuple[MethodOptions, float]:
        """Options with at most four steps per anchor, and how many times more the full number is."""
        options = config.options
        assert isinstance(options, HALOptions)
        steps = min(4, options.anchor_steps)
        return options.model_copy(update={"anchor_steps": steps}), options.anchor_steps / steps

    @property
    def rate(self) -> float:
        """The current learning rate η."""
        return float(self.optimizer.param_groups[0]["lr"])

    def begin_task(self, task: Task) -> None:
        """Reset the mean embedding: φ = 0 at the start of each task."""
        super().begin_task(task)
        self.mean_embedding = torch.zeros((), device=self.context.device)

    def observe(self, batch: Batch) -> Tensor:
        """One step on current and replayed images with the anchor term; returns the cross-entropy without that term."""
        # ∇CE on current and replayed images, in one pass. It also defines the plain step θ̂ = θ − η∇CE.
        images, labels = self.with_replay(batch)
        loss = F.cross_entropy(self.network(images), labels)
        self.record_confidence(batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        # Add ∇ λ·mean(d²), with d = h_θ̂(anchors) − h_θ(anchors) and the first term constant. The optimiser then takes
        # one step, θ ← θ − η(∇CE + ∇ λ·mean(d²)); without anchors it takes the plain step θ ← θ̂.
        if self.anchors:
            anchors = torch.stack(list(self.anchors.values()))
            held = self.options.anchor_weight * hindsight_loss(self.network, anchors, self.rate)
            held.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        # φ ← βφ + (1−β)·mean f_θ(x¹), with the updated θ, in training mode.
        with torch.no_grad():
            decay, embedding = self.options.mean_decay, self.network.features(batch.augmented).mean(0)
            self.mean_embedding = decay * self.mean_embedding + (1 - decay) * embedding
        self.remember(batch)
        return loss.detach()

    def end_task(self, task: Task) -> None:
        """Make an anchor for every class of the task."""
        super().end_task(task)
        self.network.train()
        now = {name: value.detach() for name, value in self.network.named_parameters()}
        after = self.after_replay_step(now)
        self.anchors |= self.make_anchors(task.columns, now, after)

    def after_replay_step(self, parameters: Parameters) -> Parameters:
        """θ_M = θ_t − η∇CE(memory batch): a step on replayed samples, which stands in for later training."""
        leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
        averages = {name: value.clone() for name, value in self.network.named_buffers()}
        images, labels = self.retrieve()
        loss = F.cross_entropy(functional_call(self.network, {**leaves, **averages}, (images,)), labels)
        slopes = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        return {name: value - self.rate * slopes[name] for name, value in parameters.items()}

    def make_anchors(self, columns: tuple[int, ...], now: Parameters, after: Parameters) -> dict[int, Tensor]:
        """One anchor e per class c: an image near the mean embedding φ whose loss the step to θ_M raises most.

        It minimises −CE_{θ_M}(e, c) + CE_{θ_t}(e, c) + γ‖f_{θ_t}(e) − φ‖² by gradient steps on the normalised image,
        starting from e ~ U[0, 1].

        Args:
            columns: output columns of the classes of the task.
            now: θ_t, the parameters by name.
            after: θ_M, likewise.

        Returns the anchors by output column, C x H x W each, with the normalisation undone. They stay on the device.
        """
        device, generator = self.context.device, self.context.generator
        noise = [torch.rand(self.context.image_shape, generator=generator("anchor", column)) for column in columns]
        images = torch.stack(noise).to(device, self.network.mean.dtype, non_blocking=True)
        targets = torch.tensor(columns).to(device, non_blocking=True)
        for _ in range(self.options.anchor_steps):
            images = images.detach().requires_grad_()
            embeddings, logits = self.each_alone(now, images)
            _, logits_after = self.each_alone(after, images)
            # A sum over the anchors: each is a batch of its own, so each gets the gradient of its own objective.
            loss = F.cross_entropy(logits, targets, reduction="sum")
            loss = loss - F.cross_entropy(logits_after, targets, reduction="sum")
            loss = loss + self.options.embedding_weight * (embeddings - self.mean_embedding).square().sum()
            (slopes,) = torch.autograd.grad(loss, [images])
            images = images - self.rate * slopes  # e ← e − η∇_e, with no projection to the image range
        pixels = (images * self.network.std + self.network.mean).detach()
        return dict(zip(columns, pixels, strict=True))

    def each_alone(self, parameters: Parameters, images: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings (n x features) and scores (n x K) of normalised images in training mode, each a batch of one.

        All images pass through the network together, but each with its own batch norm statistics and running averages.
        """
        body = _Body(self.network)
        values = {f"network.{name}": value for name, value in parameters.items()}
        averages = {
            f"network.{name}": value.expand(len(images), *value.shape).clone()
            for name, value in self.network.named_buffers()
        }

        def alone(averages: Parameters, image: Tensor) -> tuple[Tensor, Tensor]:
            embedding, logits = functional_call(body, {**values, **averages}, (image[None],))
            return embedding[0], logits[0]

        try:
            return vmap(alone, randomness="different")(averages, images)  # dropout draws for each image
        except RuntimeError as error:  # a layer that cannot be mapped over networks: the images one after the other
            if is_out_of_memory(error):
                raise
            each = [{name: value[i] for name, value in averages.items()} for i in range(len(images))]
            found = [alone(own, image) for own, image in zip(each, images, strict=True)]
            return torch.stack([embedding for embedding, _ in found]), torch.stack([logits for _, logits in found])

    def side_memory_bytes(self) -> int:
        """Bytes of the anchors."""
        return sum(anchor.numel() * anchor.element_size() for anchor in self.anchors.values())

    def state_dict(self) -> dict[str, Any]:
        """As in the base class, with the anchors and the mean embedding."""
        anchors = [[column, anchor] for column, anchor in self.anchors.items()]
        return {**super().state_dict(), "anchors": anchors, "mean_embedding": self.mean_embedding}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        super().load_state_dict(state)
        device = self.context.device
        self.anchors = {int(column): anchor.to(device, copy=True) for column, anchor in state["anchors"]}
        self.mean_embedding = state["mean_embedding"].to(device, copy=True)


class _Body(nn.Module):
    """Maps normalised images to embeddings and scores."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        embedding = self.network.encoder(images)
        return embedding, self.network.head(embedding)
