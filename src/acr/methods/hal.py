"""Hindsight Anchor Learning (HAL).

Each class seen has an anchor: an image made so that the network would forget it most. A step trains as ER does and is
held back from moving the predictions for the anchors: the squared change that a plain step would bring is added to the
loss. Chaudhry, Gordo, Dokania, Torr and Lopez-Paz, "Using Hindsight to Anchor Past Knowledge in Continual Learning",
AAAI 2021, equations 5 and 7.

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
from torch import Tensor
from torch.func import functional_call

from acr.config import MethodOptions
from acr.data.stream import Task
from acr.methods.hindsight import hindsight_loss
from acr.methods.method import Batch, Context
from acr.methods.replay import ReplayMethod, ReplayOptions
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
    summary = "HAL: replay, and predictions for one learned anchor a class held in place"
    Options: ClassVar[type[MethodOptions]] = HALOptions
    options: HALOptions

    def __init__(self, network: Network, options: HALOptions, context: Context) -> None:
        super().__init__(network, options, context)
        self.anchors: dict[int, Tensor] = {}
        """One image for every class seen, in the order of arrival, on the scale of pixels but not bound to 0..1."""
        self.mean_embedding = torch.zeros(())
        """φ: the running mean of the current task's embeddings."""

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
        for column in task.columns:
            self.anchors[column] = self.make_anchor(column, now, after).cpu()

    def after_replay_step(self, parameters: Parameters) -> Parameters:
        """θ_M: the parameters after one step on a memory batch, which stands for what the next task will do."""
        leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
        images, labels = self.retrieve()
        loss = F.cross_entropy(self.spare(leaves, images), labels)
        slopes = torch.autograd.grad(loss, list(leaves.values()))
        return {
            name: value - self.rate * slope for (name, value), slope in zip(parameters.items(), slopes, strict=True)
        }

    def spare(self, parameters: Parameters, images: Tensor) -> Tensor:
        """The scores of a network with these parameters, whose batch norms have running averages of their own."""
        averages = {name: value.clone() for name, value in self.network.named_buffers()}
        return functional_call(self.network, {**parameters, **averages}, (images,))

    def make_anchor(self, column: int, now: Parameters, after: Parameters) -> Tensor:
        """Climb the loss that a memory step brings back, near the task's mean embedding.

        Steps are taken on the normalised image, from uniform noise, one image at a time in training mode.
        """
        mean, std, options = self.network.mean[0], self.network.std[0], self.options
        noise = torch.rand(self.context.image_shape, generator=self.context.generator("anchor", column))
        image, target = noise.to(self.context.device), torch.tensor([column], device=self.context.device)
        phi = self.mean_embedding.to(self.context.device)
        for _ in range(options.anchor_steps):
            image = image.detach().requires_grad_()
            pixels = (image * std + mean)[None]
            embedding, logits = self.embed(now, pixels)
            loss = F.cross_entropy(logits, target) - F.cross_entropy(self.spare(after, pixels), target)
            loss = loss + options.embedding_weight * (embedding - phi).square().sum()
            (slope,) = torch.autograd.grad(loss, [image])
            image = image - self.rate * slope
        return (image * std + mean).detach()

    def embed(self, parameters: Parameters, images: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings and scores in one pass of :meth:`spare`."""
        embeddings: list[Tensor] = []
        hook = self.network.head.register_forward_pre_hook(lambda module, inputs: embeddings.append(inputs[0]))
        try:
            logits = self.spare(parameters, images)
        finally:
            hook.remove()
        return embeddings[0], logits

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
