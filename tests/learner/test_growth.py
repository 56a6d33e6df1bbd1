"""A method with more outputs knows what the one before knew, and nothing else is stretched."""

import torch
from torch import nn

from acr.learner.growth import Growth, load_grown


def test_old_values_stay_in_front_and_new_ones_are_the_new_methods():
    old, new = torch.arange(6.0).view(3, 2), -torch.ones(5, 2)
    grown = Growth(3, 5).of_tensor(old, new)
    assert torch.equal(grown[:3], old)
    assert torch.equal(grown[3:], new[3:])
    assert torch.equal(new, -torch.ones(5, 2))  # nothing is written into the new method's own tensor


def test_only_places_of_classes_grow():
    growth = Growth(3, 5)
    old = torch.ones(4, 4)
    assert growth.of_tensor(old, torch.zeros(5, 4)) is old  # 4 is not the number of classes
    assert growth.of_tensor(torch.ones(()), torch.zeros(3)).shape == ()
    assert growth.of({"a": [old, 1], "b": "x"}, {"a": [old, 2]}) == {"a": [old, 1], "b": "x"}
    both = growth.of_tensor(torch.ones(3, 3), torch.zeros(5, 5))
    assert both.sum() == 9


def test_momentum_of_old_outputs_is_kept_and_new_outputs_have_none(small, visit):
    model = small(method="er").partial_fit(*visit(0, 1))
    known = model._knowledge
    method = known.copy_of_method()
    method.optimizer = torch.optim.SGD(method.network.parameters(), lr=0.1, momentum=0.9)
    method.network(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).sum().backward()
    method.optimizer.step()
    weight = method.network.head.weight
    momentum = method.optimizer.state[weight]["momentum_buffer"].clone()

    model.partial_fit(*visit(2))
    larger = model._knowledge.copy_of_method()
    larger.optimizer = torch.optim.SGD(larger.network.parameters(), lr=0.1, momentum=0.9)
    load_grown(larger, method.state_dict(), before=2)
    assert isinstance(larger.network.head, nn.Linear)
    found = larger.optimizer.state[larger.network.head.weight]["momentum_buffer"]
    assert found.shape[0] == 3
    torch.testing.assert_close(found[:2], momentum)
    assert not found[2].any()
    torch.testing.assert_close(larger.network.head.weight[:2], weight)
