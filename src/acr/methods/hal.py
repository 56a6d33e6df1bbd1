"""Hindsight Anchor Learning (HAL).

Each class seen has an anchor: an image made so that the network would forget it most. A step trains as ER does and is
held back from moving the predictions for the anchors: the squared change that a plain step would bring is added to the
loss. Chaudhry, Gordo, Dokania, Torr and Lopez-Paz, "Using Hindsight to Anchor Past Knowledge in Continual Learning",
AAAI 2021.

As in the paper's comparison the memory is a reservoir (a ring of equal parts for the tasks was intended, but the
reservoir was measured), and the forgetting an anchor is made for is that of a step on a memory batch. The plain step
is taken on a copy of the parameters only, and the passes over anchors, which are no real images, leave the running
averages of batch norm alone. ``policy`` offers other memories.

Measure it: ``acr run --method hal --dataset split-cifar100``
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call, vmap

from acr.config import MethodOptions, RunConfig
from acr.data.stream import Task
from acr.methods.bases import ReplayMethod, ReplayOptions
from acr.methods.maths.hindsight import hindsight_loss
from acr.methods.method import Batch, Context
from acr.networks import Network

Parameters = dict[str, Tensor]


class HALOptions(ReplayOptions):
    """Options of HAL."""

    anchor_weight: float = Field(0.1, ge=0)
    """Weight of the anchors in the loss (λ)."""
    mean_decay: float = Field(0.5, ge=0, lt=1)
    """How slowly the mean embedding of a task follows its batches (β)."""
    embedding_weight: float = Field(0.1, ge=0)
    """How near the mean embedding an anchor is kept (γ)."""
    anchor_steps: int = Field(100, ge=1)
    """Steps that make an anchor."""


class HAL(ReplayMethod):
    """Experience replay that does not move the predictions for the anchors."""

    name = "hal"
    label = "HAL"
    summary = "HAL: replay, and predictions for one learned anchor a class held in place"
    Options: ClassVar[type[MethodOptions]] = HALOptions
    options: HALOptions

    def __init__(self, network: Network, options: HALOptions, context: Context) -> None:
        super().__init__(network, options, context)
        self.anchors: dict[int, Tensor] = {}
        """One image for every class seen, in the order of arrival, on the scale of pixels but not bound to 0..1."""
        self.mean_embedding = torch.zeros(())
        """φ: the running mean of the current task's embeddings."""

    @classmethod
    def shortened(cls, config: RunConfig) -> tuple[MethodOptions, float]:
        """A few steps for an anchor."""
        options = config.options
        assert isinstance(options, HALOptions)
        steps = min(4, options.anchor_steps)
        return options.model_copy(update={"anchor_steps": steps}), options.anchor_steps / steps

    @property
    def rate(self) -> float:
        """The learning rate of now."""
        return float(self.optimizer.param_groups[0]["lr"])

    def begin_task(self, task: Task) -> None:
        """A new mean embedding."""
        super().begin_task(task)
        self.mean_embedding = torch.zeros(())

    def observe(self, batch: Batch) -> Tensor:
        """One step on current and replayed images, with the anchors' gradient added to theirs."""
        images, labels = self.with_replay(batch)
        loss = F.cross_entropy(self.network(images), labels)
        self.record_confidence(batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.anchors:
            anchors = torch.stack(list(self.anchors.values())).to(self.context.device)
            held = self.options.anchor_weight * hindsight_loss(self.network, anchors, self.rate)
            held.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        with torch.no_grad():
            decay, embedding = self.options.mean_decay, self.network.features(batch.augmented).mean(0).cpu()
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
        """θ_M: the parameters after one step on a memory batch, which stands for what the next task will do."""
        leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
        averages = {name: value.clone() for name, value in self.network.named_buffers()}
        images, labels = self.retrieve()
        loss = F.cross_entropy(functional_call(self.network, {**leaves, **averages}, (images,)), labels)
        slopes = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        return {name: value - self.rate * slopes[name] for name, value in parameters.items()}

    def make_anchors(self, columns: tuple[int, ...], now: Parameters, after: Parameters) -> dict[int, Tensor]:
        """For each class climb the loss that a memory step brings back, near the task's mean embedding.

        Steps are taken on the normalised image, from uniform noise.
        """
        device, generator = self.context.device, self.context.generator
        noise = [torch.rand(self.context.image_shape, generator=generator("anchor", column)) for column in columns]
        images = torch.stack(noise).to(device, self.network.mean.dtype)
        targets = torch.tensor(columns, device=device)
        phi = self.mean_embedding.to(device)
        for _ in range(self.options.anchor_steps):
            images = images.detach().requires_grad_()
            embeddings, logits = self.each_alone(now, images)
            _, logits_after = self.each_alone(after, images)
            loss = F.cross_entropy(logits, targets, reduction="sum")
            loss = loss - F.cross_entropy(logits_after, targets, reduction="sum")
            loss = loss + self.options.embedding_weight * (embeddings - phi).square().sum()
            (slopes,) = torch.autograd.grad(loss, [images])
            images = images - self.rate * slopes
        pixels = (images * self.network.std + self.network.mean).detach().cpu()
        return dict(zip(columns, pixels, strict=True))

    def each_alone(self, parameters: Parameters, images: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings and scores of normalised images in training mode, each as a batch of its own.

        All go through the network together, but with batch norms (and running averages) of their own.
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

        return vmap(alone)(averages, images)

    def side_memory_bytes(self) -> int:
        """The anchors."""
        return sum(anchor.numel() * anchor.element_size() for anchor in self.anchors.values())

    def state_dict(self) -> dict[str, Any]:
        """Also the anchors and the mean embedding."""
        anchors = [[column, anchor] for column, anchor in self.anchors.items()]
        return {**super().state_dict(), "anchors": anchors, "mean_embedding": self.mean_embedding}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to a saved state."""
        super().load_state_dict(state)
        self.anchors = {int(column): anchor.clone() for column, anchor in state["anchors"]}
        self.mean_embedding = state["mean_embedding"].clone()


class _Body(nn.Module):
    """Normalised image to embedding and scores."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        embedding = self.network.encoder(images)
        return embedding, self.network.head(embedding)
