"""What each training sample does to old and new tasks, as MetaSP measures it, and what MetaSP makes of it.

Sun, Lyu, Shang, Feng and Wan, "Exploring example influence in continual learning", NeurIPS 2022. With ε a weight on
each of the M samples of a batch, one virtual step is θ'(ε) = θ - η ∇ 1/M Σ (1 + ε_i) ℓ_i(θ), and a sample's influence
on a validation set V is ∂ℓ̄(V; θ')/∂ε_i at ε = 0. A negative influence means that more of the sample would help.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, jvp

Batch = tuple[Tensor, Tensor]


class Influences(NamedTuple):
    """The influence of M samples on two validation sets, and those sets' mean losses after the virtual step."""

    stability: Tensor
    plasticity: Tensor
    stability_loss: Tensor
    plasticity_loss: Tensor


def influences(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    stability: Batch,
    plasticity: Batch,
    learning_rate: float,
) -> Influences:
    """Influences of the batch's samples on a sample of the memory (stability) and of the current task (plasticity).

    Since ∂θ'/∂ε_i = -(η/M) ∇ℓ_i(θ), the influence is -(η/M) ⟨∇ℓ_i(θ), ∇ℓ̄(V; θ')⟩: the derivative of all ℓ_i along one
    direction, v = ∇ℓ̄(V; θ'). So a forward-mode derivative (`torch.func.jvp`) along v gives the influences of all
    samples at once, and the virtual step needs no graph of itself. On a ResNet-18 of width 16 and 32, with 64 samples
    and twice 50 for validation, that took .6 to .9 of the time of double backward through one shared virtual step, .5
    to .75 of that through a virtual step of its own for each set (ranges over runs on a busy machine), and at width
    32 half the additional memory. Finite differences took about .75 of its time, but with the one step size tried were
    off by .1 to .2 of the largest influence in single precision.

    Batch norm is used in the mode that the network is in; in training mode a sample's loss depends on its whole batch,
    as it does in training. Parameters, gradients and running averages stay as they are.
    """
    parameters = {name: p.detach() for name, p in network.named_parameters()}

    def losses(values: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        buffers = {name: b.clone() for name, b in network.named_buffers()}  # written to by batch norm
        return F.cross_entropy(functional_call(network, {**values, **buffers}, (images,)), labels, reduction="none")

    def gradient(values: dict[str, Tensor], images: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in values.items()}
            loss = losses(leaves, images, labels).mean()
            found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
        return dict(zip(leaves, found, strict=True)), loss.detach()

    with torch.no_grad():
        step, _ = gradient(parameters, images, labels)
        virtual = {name: value - learning_rate * step[name] for name, value in parameters.items()}
        found, means = [], []
        for validation in (stability, plasticity):
            direction, mean = gradient(virtual, *validation)
            slopes = jvp(lambda values: losses(values, images, labels), (parameters,), (direction,))[1]
            found.append(slopes * (-learning_rate / len(images)))
            means.append(mean)
    return Influences(found[0], found[1], means[0], means[1])


def normalise(influence: Tensor, loss: Tensor | float) -> Tensor:
    """Influences of length ℓ̄(V), so that those on different sets are comparable; zeros stay zeros."""
    return influence * (loss / influence.norm().clamp_min(torch.finfo(influence.dtype).tiny))


def pareto_weights(stability: Tensor, plasticity: Tensor) -> tuple[float, Tensor]:
    """γ* that makes γ g_S + (1-γ) g_P shortest, and that vector g*: what serves both aims (Désidéri 2012).

    Where one end of [0, 1] is best γ* stops just short of it, at .999 or .001, so that no aim is given up wholly.
    """
    inner = float(stability @ plasticity)
    square_s, square_p = float(stability @ stability), float(plasticity @ plasticity)
    if inner >= square_s:
        gamma = 0.999
    elif inner >= square_p:
        gamma = 0.001
    else:
        gamma = (square_p - inner) / (square_s + square_p - 2 * inner)
    return gamma, gamma * stability + (1 - gamma) * plasticity


def loss_weights(combined: Tensor) -> Tensor:
    """The weights (1 - g*)/Σ(1 - g*) of the samples' losses; equal ones where that sum is not positive."""
    helpful = 1 - combined
    total = helpful.sum()
    return helpful / total if total > 0 else torch.full_like(combined, 1 / len(combined))


def kmeans_pick(pixels: Tensor, scores: Tensor, clusters: int, seed: int) -> Tensor:
    """From each k-means cluster of the samples the one with the smallest score: diverse and helpful at once.

    `pixels` is samples x anything. Where there are no more samples than clusters all are picked; equal samples fall
    into one cluster, and then fewer than `clusters` come back.
    """
    from sklearn.cluster import KMeans  # takes a second, which looking at the list of methods should not
    from sklearn.exceptions import ConvergenceWarning

    samples = len(pixels)
    if samples <= clusters:
        return torch.arange(samples)
    flat = pixels.reshape(samples, -1).cpu().numpy().astype(np.float32)
    model = KMeans(clusters, init="random", n_init=1, max_iter=100, random_state=seed % 2**32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct samples than clusters
        members = model.fit_predict(flat)
    # By cluster and within it by score: the first of each cluster is its best; the lowest index where two are equal.
    order = np.lexsort((np.arange(samples), scores.cpu().numpy(), members))
    _, first = np.unique(members[order], return_index=True)
    return torch.from_numpy(order[first].astype(np.int64))
