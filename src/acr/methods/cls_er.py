"""Complementary Learning Systems based Experience Replay (CLS-ER).

Beside the network in training there are two copies of it whose weights follow slowly: a plastic one, renewed often, and
a stable one, renewed less often. A step is ER's, and on the replayed images it also holds the logits to those of
whichever copy is surer of the true class. The stable copy answers. Arani, Sarfraz and Zonooz, "Learning Fast, Learning
Slow: A General Continual Learning Method based on Complementary Learning System", ICLR 2022.

As in the authors' program, only the weights are averaged. The running averages of batch norm in the copies come from
their own passes over replayed images, in training mode, and the replayed images pass through the network in training
twice: alone for the consistency, and with the current ones for the cross-entropy.

Notation: θ are the weights, θ_P and θ_S those of the plastic and the stable copy; h are logits.

Measure it: ``acr run --method cls-er --dataset split-cifar100``
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from acr.config import MethodOptions, RunConfig
from acr.data.views import join
from acr.memory.policies import Reservoir
from acr.methods.bases import MemoryMethod
from acr.methods.method import Batch, Context
from acr.networks import Network


class CLSEROptions(MethodOptions):
    """Options of CLS-ER."""

    sources: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("consistency_weight", "plastic_frequency", "stable_frequency"), "the authors' program"),
        **dict.fromkeys(("plastic_decay", "stable_decay"), "the authors' program, in proportion to the epochs"),
    }

    consistency_weight: float = Field(0.1, ge=0)
    """Weight of the distance from the copies' logits (λ)."""
    plastic_frequency: float = Field(0.9, ge=0, le=1)
    """Probability that a step renews the plastic copy (r_P)."""
    stable_frequency: float = Field(0.7, ge=0, le=1)
    """Probability that a step renews the stable copy (r_S)."""
    plastic_decay: float | None = Field(None, ge=0, lt=1)
    """How much of the plastic copy a renewal keeps (α_P); 0.999 for 50 epochs per task, in proportion for others."""
    stable_decay: float | None = Field(None, ge=0, lt=1)
    """How much of the stable copy a renewal keeps (α_S); 0.999 for 50 epochs per task, in proportion for others."""


TINY = {"learning_rate": 0.05, "consistency_weight": 0.1, "plastic_frequency": 0.08}
TINY_BY_SIZE: Mapping[int, Mapping[str, Any]] = {
    200: {**TINY, "stable_frequency": 0.04},
    500: {**TINY, "stable_frequency": 0.05},
    5120: {**TINY, "stable_frequency": 0.07},
}
PUBLISHED: Mapping[str, Mapping[int, Mapping[str, Any]]] = {
    "split-cifar10": {
        200: {"consistency_weight": 0.15, "plastic_frequency": 0.3, "stable_frequency": 0.1},
        500: {"consistency_weight": 0.15, "plastic_frequency": 0.9, "stable_frequency": 0.1},
        5120: {"consistency_weight": 0.15, "plastic_frequency": 1.0, "stable_frequency": 0.8},
    },
    # The program has none for its Sequential CIFAR-100; these are those of its GCIL-CIFAR-100 with uniform classes.
    "split-cifar100": {
        200: {"consistency_weight": 0.15, "plastic_frequency": 0.7, "stable_frequency": 0.6},
        500: {"consistency_weight": 0.15, "plastic_frequency": 0.9, "stable_frequency": 0.6},
        1000: {"consistency_weight": 0.15, "plastic_frequency": 0.8, "stable_frequency": 0.6},
    },
    "split-tiny-imagenet": TINY_BY_SIZE,
    "split-mini-imagenet": TINY_BY_SIZE,  # not in the program; as many steps per task as Tiny-ImageNet
}
"""Settings of the authors' program (its best arguments), by data set and buffer size; its decays are all 0.999."""


class CLSER(MemoryMethod):
    """Experience replay with two slow copies of the weights."""

    name = "cls-er"
    label = "CLS-ER"
    summary = "CLS-ER: replay that is held to two averaged copies of the network; the slower one answers"
    no_average = "its stable copy, which answers, has averaged weights already"
    Options: ClassVar[type[MethodOptions]] = CLSEROptions
    settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # Tasks of 180 steps: the frequencies and decays of the program's Sequential MNIST, with the weight of CIFAR-10.
        # Chosen on held-out images: results/digits_search_cls_er.csv.
        "split-digits": {
            "consistency_weight": 0.15,
            "plastic_frequency": 1.0,
            "stable_frequency": 0.9,
            "plastic_decay": 0.99,
            "stable_decay": 0.99,
        },
    }
    settings_source = "the authors' program; on split-digits measured: results/digits_search_cls_er.csv"
    options: CLSEROptions

    def __init__(self, network: Network, options: CLSEROptions, context: Context) -> None:
        super().__init__(network, options, context)
        self.options = with_decays(options, context.epochs)
        self.plastic, self.stable = self.copy_network("plastic"), self.copy_network("stable")
        self.steps = 0
        """Number of steps taken in the run."""

    @classmethod
    def settings_for(cls, dataset: str, buffer_size: int) -> Mapping[str, Any]:
        """The settings of the authors' program for the largest buffer that is not larger than this one."""
        by_size = PUBLISHED.get(dataset)
        if by_size is None:
            return super().settings_for(dataset, buffer_size)
        return by_size[max((size for size in by_size if size <= buffer_size), default=min(by_size))]

    @classmethod
    def complete_config(cls, config: RunConfig) -> RunConfig:
        """Record the decays that apply."""
        assert isinstance(config.options, CLSEROptions)
        return config.model_copy(update={"options": with_decays(config.options, config.epochs)})

    def copy_network(self, purpose: str) -> Network:
        """A second network with the weights of the first, which gets no gradient."""
        copy = self.context.build_network(purpose)
        copy.load_state_dict(self.network.state_dict())
        return copy.train().requires_grad_(False)

    def observe(self, batch: Batch) -> Tensor:
        """One step on L = CE(x, x_m) + λ·mean‖h(x_m) − target(x_m)‖², then the copies follow; returns L."""
        # All random draws of the step, made on the host and sent to the device in one copy.
        memory = self.draw_replay() if len(self.buffer) else None
        view, memory = self.context.send((batch.draw_view(), memory))
        images, labels = batch.augment(view), batch.labels
        held: Tensor | float = 0.0
        if memory is not None:
            replayed, replayed_labels = self.replay(memory)
            target = self.copies_logits(replayed, replayed_labels)
            held = self.options.consistency_weight * F.mse_loss(self.network(replayed), target)
            images, labels = join(images, replayed), torch.cat([labels, replayed_labels])
        loss = F.cross_entropy(self.network(images), labels) + held
        self.step(loss)
        draws = self.context.generator("policy")
        Reservoir().observe(self.buffer, batch.plain, batch.labels_on_host, batch.task, draws)
        self.renew_copies()
        return loss.detach()

    @torch.no_grad()
    def copies_logits(self, images: Tensor, labels: Tensor) -> Tensor:
        """For each image the logits of the copy that gives its class the higher probability, n x K."""
        # In training mode: this pass also updates the running averages that the copies' batch norms answer with.
        stable, plastic = self.stable.train()(images), self.plastic(images)
        own = labels[:, None]
        surer = stable.softmax(1).gather(1, own) > plastic.softmax(1).gather(1, own)
        return torch.where(surer, stable, plastic)

    @torch.no_grad()
    def renew_copies(self) -> None:
        """θ_P ← α θ_P + (1−α) θ with probability r_P, and θ_S likewise; α = min(1 − 1/(steps + 1), α_P or α_S)."""
        self.steps += 1
        options, draws = self.options, torch.rand(2, generator=self.context.generator("averaging")).tolist()
        assert options.plastic_decay is not None
        assert options.stable_decay is not None
        for copy, draw, frequency, decay in (
            (self.plastic, draws[0], options.plastic_frequency, options.plastic_decay),
            (self.stable, draws[1], options.stable_frequency, options.stable_decay),
        ):
            if draw < frequency:
                kept = min(1 - 1 / (self.steps + 1), decay)
                for mean, parameter in zip(copy.parameters(), self.network.parameters(), strict=True):
                    mean.lerp_(parameter, 1 - kept)

    def logits(self, images: Tensor) -> Tensor:
        """Scores of the stable copy, n x K."""
        return self.stable.eval()(images)

    def predictor(self) -> Network:
        """The stable copy."""
        return self.stable.eval()

    def embed(self, images: Tensor) -> Tensor:
        """Embeddings by the stable copy."""
        return self.stable.eval().features(images)

    def state_dict(self) -> dict[str, Any]:
        """As in the base class, with both copies and the number of steps."""
        copies = {"plastic": dict(self.plastic.state_dict()), "stable": dict(self.stable.state_dict())}
        return {**super().state_dict(), **copies, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        super().load_state_dict(state)
        self.plastic.load_state_dict(state["plastic"])
        self.stable.load_state_dict(state["stable"])
        self.steps = int(state["steps"])


def with_decays(options: CLSEROptions, epochs: int) -> CLSEROptions:
    """The options with decays that are not given filled in: 0.999 for 50 epochs, so that the copies follow over the
    same share of a task whatever its length.

    >>> [with_decays(CLSEROptions(), epochs).stable_decay for epochs in (50, 5, 1)]
    [0.999, 0.99, 0.95]
    """
    usual = round(1 - 0.001 * 50 / epochs, 9)
    given = {"plastic_decay": options.plastic_decay, "stable_decay": options.stable_decay}
    return options.model_copy(update={name: usual if value is None else value for name, value in given.items()})
