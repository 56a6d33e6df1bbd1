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
    """The mean square of h(anchors; θ̂) - h(anchors; θ), where θ̂ is θ after a plain step with the present gradients.

    Call it when `.grad` holds the gradient of the batch's loss (none counts as zero). The first term is a constant.
    The gradient of λ times this, added to the one that is there, makes the combined step one ordinary step:

        loss.backward()
        (strength * hindsight_loss(network, anchors, learning_rate)).backward()
        optimiser.step()

    θ̂ exists only as the tensors that differ: the model is neither copied nor changed. Batch norm runs in the mode that
    the network is in, over all anchors together. Anchors are no real images; so batch norm's running averages, by which
    the network is evaluated, do not see them unless `track_statistics` lets both passes write there, as a program does
    that takes the step and takes it back.
    """
    buffers = dict(network.named_buffers())

    def logits(parameters: dict[str, Tensor]) -> Tensor:
        state = buffers if track_statistics else {name: b.clone() for name, b in buffers.items()}
        return functional_call(network, {**parameters, **state}, (anchors,))

    with torch.no_grad():
        after = logits({n: p if p.grad is None else p - learning_rate * p.grad for n, p in network.named_parameters()})
    return (after - logits(dict(network.named_parameters()))).square().mean()
