"""The influence of each training sample on old and new tasks, as MetaSP measures it, and how MetaSP uses it.

Sun, Lyu, Shang, Feng and Wan, "Exploring example influence in continual learning", NeurIPS 2022. With ε_i an extra
weight on sample i of the M samples of a batch, one virtual step is θ'(ε) = θ − η∇(1/M) Σ(1+ε_i)ℓ_i(θ). The influence of
sample i on a validation set V is ∂ℓ̄(V; θ')/∂ε_i at ε = 0. It is negative if a larger weight on the sample would help.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, jvp

from acr.errors import is_out_of_memory
from acr.methods.maths.gradients import sum_dtype

Batch = tuple[Tensor, Tensor]
"""Images and labels."""


class Influences(NamedTuple):
    """The influence of M samples on two validation sets, and the mean losses of these sets after the virtual step."""

    stability: Tensor
    """g_S, M values."""
    plasticity: Tensor
    """g_P, M values."""
    stability_loss: Tensor
    """ℓ̄(V_S; θ'), a scalar."""
    plasticity_loss: Tensor
    """ℓ̄(V_P; θ'), a scalar."""


def influences(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    stability: Batch,
    plasticity: Batch,
    learning_rate: float,
) -> Influences:
    """The influence of each sample of a batch on a set V_S of stored and a set V_P of current samples.

    Since ∂θ'/∂ε_i = −(η/M)∇ℓ_i(θ), the influence is −(η/M)⟨∇ℓ_i(θ), ∇ℓ̄(V; θ')⟩: the derivative of all ℓ_i along one
    direction, v = ∇ℓ̄(V; θ'). So one forward-mode derivative (`torch.func.jvp`) along v gives the influences of all
    samples, and the virtual step needs no graph. On a ResNet-18 of width 16 and 32, with 64 samples and twice 50 for
    validation, this took .6 to .9 of the time of a double backward pass through one shared virtual step, .5 to .75 of
    that through a separate virtual step for each set (ranges over runs on a busy machine), and at width 32 half the
    additional memory. Finite differences took about .75 of its time, but were off by .1 to .2 of the largest influence
    in single precision, with the one step size that was tried. Layers without a forward-mode derivative (fused
    attention) are differentiated by one backward pass per sample instead.

    Batch norm runs in the network's current mode; in training mode a sample's loss depends on its whole batch, as it
    does in training. Parameters, gradients and running averages are not changed. Nothing waits for the device.

    Args:
        network: maps images to logits.
        images: the M images of the batch.
        labels: their M classes.
        stability: images and labels of V_S.
        plasticity: images and labels of V_P.
        learning_rate: η of the virtual step.
    """
    parameters = {name: p.detach() for name, p in network.named_parameters()}

    def losses(values: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        buffers = {name: b.clone() for name, b in network.named_buffers()}  # batch norm writes to them
        return F.cross_entropy(functional_call(network, {**values, **buffers}, (images,)), labels, reduction="none")

    def gradient(values: dict[str, Tensor], images: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in values.items()}
            loss = losses(leaves, images, labels).mean()
            found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
        return dict(zip(leaves, found, strict=True)), loss.detach()

    with torch.no_grad():
        # θ' = θ − η∇(1/M) Σ ℓ_i(θ): the virtual step at ε = 0, shared by both sets.
        step, _ = gradient(parameters, images, labels)
        virtual = {name: value - learning_rate * step[name] for name, value in parameters.items()}
        found, means = [], []
        for validation in (stability, plasticity):
            # v = ∇ℓ̄(V; θ') and ℓ̄(V; θ').
            direction, mean = gradient(virtual, *validation)
            # ⟨∇ℓ_i(θ), v⟩ for all i, and from it g_i = −(η/M)⟨∇ℓ_i(θ), v⟩.
            try:
                slopes = jvp(lambda values: losses(values, images, labels), (parameters,), (direction,))[1]
            except RuntimeError as error:  # a layer without a forward-mode derivative, such as fused attention
                if is_out_of_memory(error):
                    raise
                slopes = _slopes_one_by_one(lambda values: losses(values, images, labels), parameters, direction)
            found.append(slopes * (-learning_rate / len(images)))
            means.append(mean)
    return Influences(found[0], found[1], means[0], means[1])


def _slopes_one_by_one(
    losses: Callable[[dict[str, Tensor]], Tensor], parameters: dict[str, Tensor], direction: dict[str, Tensor]
) -> Tensor:
    """⟨∇ℓ_i(θ), v⟩ for all i, by one backward pass per sample through one graph: slower, for layers of any kind."""
    with torch.enable_grad():
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        of_samples = losses(leaves).unbind()
    slopes = []
    for loss in of_samples:
        found = torch.autograd.grad(loss, list(leaves.values()), retain_graph=True, allow_unused=True)
        parts = zip(found, direction.values(), strict=True)
        slopes.append(sum(((g * v).sum() for g, v in parts if g is not None), start=loss.new_zeros(())))
    return torch.stack(slopes)


def normalise(influence: Tensor, loss: Tensor | float) -> Tensor:
    """g·ℓ̄(V)/‖g‖₂, so that the influences on different sets are comparable; zeros stay zeros.

    ``influence`` is g, one value per sample, and ``loss`` is ℓ̄(V).
    """
    return influence * (loss / influence.norm().clamp_min(torch.finfo(influence.dtype).tiny))


def pareto_weights(stability: Tensor, plasticity: Tensor) -> tuple[Tensor, Tensor]:
    """γ* = argmin over [0, 1] of ‖γ g_S + (1−γ) g_P‖², and g* = γ*g_S + (1−γ*)g_P (Désidéri 2012).

    ``stability`` is g_S and ``plasticity`` is g_P, one value per sample each. Where an end of [0, 1] is best, γ* stops
    just short of it, at .999 or .001, so that neither aim is given up entirely. γ* is a scalar on the device of the
    influences; it is not read.
    """
    dtype = sum_dtype(stability.device)
    inner = (stability @ plasticity).to(dtype)
    square_s, square_p = (stability @ stability).to(dtype), (plasticity @ plasticity).to(dtype)
    # γ* = (‖g_P‖² − ⟨g_S,g_P⟩)/(‖g_S‖² + ‖g_P‖² − 2⟨g_S,g_P⟩) inside the interval; if ⟨g_S,g_P⟩ ≥ ‖g_S‖² the best γ is
    # 1 or more, and if ⟨g_S,g_P⟩ ≥ ‖g_P‖² it is 0 or less.
    gamma = (square_p - inner) / (square_s + square_p - 2 * inner)
    gamma = gamma.masked_fill(inner >= square_p, 0.001).masked_fill(inner >= square_s, 0.999)
    return gamma, gamma * stability + (1 - gamma) * plasticity


def loss_weights(combined: Tensor) -> Tensor:
    """The weights w = (1−g*)/Σ(1−g*) of the samples' losses, given g*; equal ones if that sum is not positive."""
    helpful = 1 - combined
    total = helpful.sum()
    return torch.where(total > 0, helpful / total, torch.full_like(combined, 1 / len(combined)))


def kmeans_pick(pixels: Tensor, scores: Tensor, clusters: int, seed: int) -> Tensor:
    """From each k-means cluster, the sample with the smallest score: diverse and helpful at once.

    Args:
        pixels: the samples, n x anything; they are clustered by Euclidean distance.
        scores: g* of each sample, n values.
        clusters: number of clusters.
        seed: of the random initial centres.

    It runs on the host, with scikit-learn, and waits for the device twice: for the pixels and for the scores.

    Returns the rows of the chosen samples, on the host: all if there are no more samples than clusters, and fewer than
    `clusters` if samples are equal, because these fall into one cluster.
    """
    from sklearn.cluster import KMeans  # takes a second to import, which listing the methods should not
    from sklearn.exceptions import ConvergenceWarning

    samples = len(pixels)
    if samples <= clusters:
        return torch.arange(samples)
    flat = pixels.reshape(samples, -1).cpu().numpy().astype(np.float32)
    model = KMeans(clusters, init="random", n_init=1, max_iter=100, random_state=seed % 2**32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct samples than clusters
        members = model.fit_predict(flat)
    # Sorted by cluster, then score, then index: the first row of each cluster is its best; ties go to the lower index.
    order = np.lexsort((np.arange(samples), scores.cpu().numpy(), members))
    _, first = np.unique(members[order], return_index=True)
    return torch.from_numpy(order[first].astype(np.int64))
