"""HAL's hindsight: how much the coming step would move the predictions for the anchors.

Chaudhry, Gordo, Dokania, Torr and Lopez-Paz, "Using hindsight to anchor past knowledge in continual learning", AAAI
2021.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call


def hindsight_loss(
    network: nn.Module, anchors: Tensor, learning_rate: float, *, track_statistics: bool = False
) -> Tensor:
    """mean(d²) with d = h_θ̂(anchors) − h_θ(anchors), where θ̂ = θ − η∇L is θ after a plain step.

    Call it while `.grad` holds ∇L, the gradient of the batch's loss (a missing one counts as zero). The first term of d
    is a constant. Adding the gradient of λ times this value to ∇L makes the combined step one ordinary step:

        loss.backward()
        (strength * hindsight_loss(network, anchors, learning_rate)).backward()
        optimiser.step()

    The model is neither copied nor changed: only the parameters of θ̂ are new tensors. Batch norm runs over all anchors
    together, in the network's current mode.

    Args:
        network: maps the anchors to logits h_θ.
        anchors: one image per class, n x C x H x W.
        learning_rate: η of the plain step.
        track_statistics: let both passes update batch norm's running averages, as in a program that takes the step and
            undoes it. By default they do not, because the network is evaluated with these averages and anchors are not
            real images.

    Returns a scalar, the mean over anchors and classes.
    """
    buffers = dict(network.named_buffers())

    def logits(parameters: dict[str, Tensor]) -> Tensor:
        state = buffers if track_statistics else {name: b.clone() for name, b in buffers.items()}
        return functional_call(network, {**parameters, **state}, (anchors,))

    # h_θ̂(anchors), with θ̂ = θ − η∇L and no gradient of its own.
    with torch.no_grad():
        after = logits({n: p if p.grad is None else p - learning_rate * p.grad for n, p in network.named_parameters()})
    # mean(d²), with the gradient flowing through h_θ(anchors) only.
    return (after - logits(dict(network.named_parameters()))).square().mean()
