"""Supervised Contrastive Replay (SCR).

No classifier is trained. A contrastive loss, on the output of a small projection, pulls images of one class together
and pushes others apart; to classify, an image is given the class whose stored images have the nearest mean embedding.
Without a classifier there is none that could lean towards new classes. Mai, Li, Kim and Sanner, "Supervised Contrastive
Replay: Revisiting the Nearest Class Mean Classifier in Online Class-Incremental Continual Learning", CVPR Workshops
2021.

As in the authors' program, the two views of an image are the image itself and a strong view of it, each view of current
and replayed images has a pass of its own, the projection has one hidden layer and 128 outputs, and the memory is a
reservoir. That program takes no step while the memory is empty, that is on the first batch of a run; this trains on the
current batch alone. It gives a class without stored images a random mean; here such a class is never predicted.

Measure it: ``acr run --method scr --dataset split-cifar100``
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from acr.config import MethodOptions
from acr.data.views import join
from acr.losses import supervised_contrastive_loss, unit
from acr.memory.policies import Reservoir
from acr.methods.bases import MemoryMethod
from acr.methods.method import Batch, Context
from acr.networks import LinearHead, Network
from acr.randomness import keyed_global

PART = 500
"""Number of stored images that pass through the network at once when the class means are computed."""
NO_MEAN = -1e4
"""Score of a class that has no stored image: finite, and below any other."""


class SCROptions(MethodOptions):
    """Options of SCR."""

    sources: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("temperature", "second_view", "projection_size"), "the authors' program"
    )

    temperature: float = Field(0.07, gt=0)
    """Temperature τ of the loss and of the scores."""
    second_view: Literal["strong", "crop-flip"] = "strong"
    """Second view of every image: resized crop with colour jitter, or crop (and flip)."""
    projection_size: int = Field(128, ge=1)
    """Number of outputs of the projection."""


class SCR(MemoryMethod):
    """A contrastive loss, and the nearest class mean. The score of class c is s_c(x) = cos(f(x), μ_c)/τ."""

    name = "scr"
    label = "SCR"
    summary = "SCR: a supervised contrastive loss, and the nearest class mean of the memory"
    Options: ClassVar[type[MethodOptions]] = SCROptions
    options: SCROptions

    def __init__(self, network: Network, options: SCROptions, context: Context) -> None:
        super().__init__(network, options, context)
        assert isinstance(network.head, LinearHead)  # neither trained nor used; it knows the number of features
        self.features = network.head.in_features
        draws = context.generator("projection")
        self.projection = make_projection(self.features, options.projection_size, draws)
        self.projection.to(network.mean)  # its device and its type
        self.optimizer.add_param_group({"params": list(self.projection.parameters())})
        self._means: tuple[Network, Tensor] | None = None
        """The class means for the present weights and memory, K x features, and the network that embedded the images;
        None until they are needed."""

    def observe(self, batch: Batch) -> Tensor:
        """One step on the contrastive loss of two views of the current and a replayed batch; returns that loss."""
        # All random draws of the step, made on the host and sent to the device in one copy.
        memory = self.draw_replay(transform=False) if len(self.buffer) else None
        n = len(batch) + (0 if memory is None else len(memory))
        memory, second = self.context.send((memory, self.draw_second_view(n, self.options.second_view)))
        images, labels = batch.plain, batch.labels
        if memory is not None:
            replayed, replayed_labels = self.replay(memory)
            images, labels = join(images, replayed), torch.cat([labels, replayed_labels])
        embeddings = [self.network.features(view) for view in (images, self.second_view(images, second))]
        projections = self.projection(torch.cat(embeddings))
        loss = supervised_contrastive_loss(projections, labels.repeat(2), self.options.temperature)
        self.step(loss)
        self._means = None
        draws = self.context.generator("policy")
        Reservoir().observe(self.buffer, batch.plain, batch.labels_on_host, batch.task, draws)
        return loss.detach()

    def logits(self, images: Tensor) -> Tensor:
        """Cosines of the embeddings and the class means over τ, n x K; the nearest mean has the highest score."""
        if self._means is None or self._means[0] is not self.network:
            self._means = self.network, self.class_means()
        return nearest_mean_scores(self.network.features(images), self._means[1], self.options.temperature)

    def predictor(self) -> nn.Module:
        """Embeddings compared with the class means, in one module."""
        self.network.eval()
        return NearestMean(self.network, self.class_means(), self.options.temperature)

    def keep_in_memory(self, slots: Tensor) -> None:
        """As in the base class; the class means follow from what is left."""
        super().keep_in_memory(slots)
        self._means = None

    @torch.no_grad()
    def class_means(self) -> Tensor:
        """μ_c, the mean of the unit embeddings of the stored images of class c at unit length, K x features.

        Zeros for a class without stored images. The network must be in evaluation mode.
        """
        if not len(self.buffer):
            return self.network.mean.new_zeros(self.network.num_classes, self.features)
        parts = torch.split(self.buffer.images, PART)
        embeddings = torch.cat([unit(self.network.features(part)) for part in parts])
        # A product with the indicators of the classes: unlike adding row by row, the same sum every time on any device.
        member = self.context.send(F.one_hot(self.buffer.labels, self.network.num_classes).T.to(embeddings.dtype))
        return F.normalize(member @ embeddings, dim=1)

    def state_dict(self) -> dict[str, Any]:
        """As in the base class, with the projection."""
        return {**super().state_dict(), "projection": dict(self.projection.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        super().load_state_dict(state)
        self.projection.load_state_dict(state["projection"])
        self._means = None


class NearestMean(nn.Module):
    """From images to scores, with class means that stay as they are."""

    def __init__(self, network: Network, means: Tensor, temperature: float) -> None:
        super().__init__()
        self.network = network
        self.temperature = temperature
        self.register_buffer("means", means)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of all classes, n x K."""
        assert isinstance(self.means, Tensor)
        return nearest_mean_scores(self.network.features(images), self.means, self.temperature)


def nearest_mean_scores(embeddings: Tensor, means: Tensor, temperature: float) -> Tensor:
    """Cosines of n embeddings and K class means over the temperature, n x K; classes without a mean come last."""
    scores = unit(embeddings) @ means.T / temperature
    return scores.masked_fill(means.square().sum(1) == 0, NO_MEAN)


def make_projection(features: int, outputs: int, generator: torch.Generator) -> nn.Sequential:
    """Two linear layers with a ReLU between them, ``features`` to ``features`` to ``outputs`` values.

    All weights and biases are uniform on ±1/√features, as PyTorch initialises linear layers, drawn from ``generator``.
    """
    with keyed_global("projection"):  # layers initialise themselves from the global generator, which is kept as it was
        projection = nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, outputs))
    for parameter in projection.parameters():
        draws = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data = ((2 * draws - 1) / features**0.5).to(parameter.dtype)
    return projection
