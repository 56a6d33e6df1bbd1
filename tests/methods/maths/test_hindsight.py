from __future__ import annotations

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F

from acr.methods.maths.hindsight import hindsight_loss

RATE, STRENGTH = 0.2, 0.1


@pytest.mark.parametrize("track", [False, True])
def test_equals_a_step_taken_and_taken_back(make_network, make_batch, track) -> None:
    (images, labels), (anchors, _) = make_batch(6, 1), make_batch(5, 2)
    network = make_network().train()
    explicit = deepcopy(network)

    F.cross_entropy(network(images), labels).backward()
    buffers = {name: value.clone() for name, value in network.named_buffers()}
    (STRENGTH * hindsight_loss(network, anchors, RATE, track_statistics=track)).backward()
    torch.optim.SGD(network.parameters(), lr=RATE).step()

    optimiser = torch.optim.SGD(explicit.parameters(), lr=RATE)
    F.cross_entropy(explicit(images), labels).backward()
    start = [p.detach().clone() for p in explicit.parameters()]
    first = [p.grad.clone() for p in explicit.parameters()]
    optimiser.step()  # forth, to see the anchors from there ...
    with torch.no_grad():
        after = explicit(anchors)
        for p, old in zip(explicit.parameters(), start, strict=True):
            p.copy_(old)  # ... and back
    optimiser.zero_grad()
    (STRENGTH * (after - explicit(anchors)).square().mean()).backward()
    optimiser.step()
    with torch.no_grad():
        for p, gradient in zip(explicit.parameters(), first, strict=True):
            p -= RATE * gradient

    for (name, p), q in zip(network.named_parameters(), explicit.parameters(), strict=True):
        torch.testing.assert_close(p, q, msg=name)
    for name, value in network.named_buffers():
        torch.testing.assert_close(value, explicit.get_buffer(name) if track else buffers[name])


def test_without_gradients_there_is_no_hindsight(make_network, make_batch) -> None:
    assert hindsight_loss(make_network().train(), make_batch(3)[0], RATE).item() == 0
