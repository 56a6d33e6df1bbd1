import copy

import pytest
import torch
import torch.nn.functional as F
from method_learning import Learning

from acr.methods.derpp import logit_distance
from acr.runs.resolve import make_config


def test_the_loss_is_the_formula():
    learning = Learning("derpp")
    learning.run(1, 0, 3)
    method, batch = learning.method, learning.batch()
    network = copy.deepcopy(method.network).train()
    first, second = method.draw(), method.draw(None, "second")
    assert not torch.equal(first, second)
    loss = F.cross_entropy(network(batch.augmented), batch.labels)
    loss = loss + 0.1 * F.mse_loss(network(method.replayed(first)[0]), method.buffer.column("logits")[first])
    images, labels = method.replayed(second, "second")
    loss = loss + 0.5 * F.cross_entropy(network(images), labels)
    torch.testing.assert_close(learning.step(), loss.detach())


def test_the_logits_of_the_time_are_stored():
    learning = Learning("derpp", buffer_size=8)
    network = copy.deepcopy(learning.method.network).train()
    batch = learning.batch()
    learning.step()
    torch.testing.assert_close(learning.method.buffer.column("logits"), network(batch.augmented).detach())
    assert torch.equal(learning.method.buffer.images, batch.plain)


def test_outputs_added_later_do_not_count_for_older_samples():
    learning = Learning("derpp", buffer_size=8)
    learning.step()
    method = learning.method
    method.network.head.grow(6)
    method.optimizer = method.make_optimizer(method.network)
    learning.step()
    logits = method.buffer.column("logits")
    assert logits.shape == (8, 6)
    assert logits[:, :4].isfinite().all()
    state = method.state_dict()
    again = Learning("derpp", buffer_size=8).method
    again.network.head.grow(6)
    again.optimizer = again.make_optimizer(again.network)
    again.load_state_dict(state)
    torch.testing.assert_close(again.buffer.column("logits"), logits, equal_nan=True)
    stored = torch.tensor([[1.0, 2.0, float("nan")]])
    now = torch.tensor([[2.0, 4.0, 9.0]], requires_grad=True)
    distance = logit_distance(now, stored)
    distance.backward()
    torch.testing.assert_close(distance.detach(), torch.tensor((1 + 4) / 3))
    assert now.grad[0, 2] == 0


@pytest.mark.parametrize(
    ("dataset", "buffer_size", "expected"),
    [
        ("split-cifar100", 500, (0.03, 0.1, 0.5)),
        ("split-cifar100", 2000, (0.03, 0.1, 0.5)),
        ("split-tiny-imagenet", 500, (0.03, 0.2, 0.5)),
        ("split-tiny-imagenet", 2000, (0.03, 0.2, 0.5)),
        ("split-tiny-imagenet", 5120, (0.03, 0.1, 0.5)),
        ("split-mini-imagenet", 1000, (0.03, 0.2, 0.5)),
        ("split-cifar10", 200, (0.03, 0.1, 0.5)),
        ("split-cifar10", 500, (0.03, 0.2, 0.5)),
    ],
)
def test_rate_and_weights_are_those_its_authors_tuned(dataset, buffer_size, expected):
    config = make_config({"method": "derpp", "dataset": dataset, "buffer_size": buffer_size})
    assert (config.learning_rate, config.options.alpha, config.options.beta) == expected
