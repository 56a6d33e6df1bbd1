"""CLS-ER against its formulas: the consistency, the renewal of the copies, and who answers."""

import copy

import pytest
import torch
import torch.nn.functional as F
from method_learning import Learning

from acr.runs.resolve import make_config

OPTIONS = {"consistency_weight": 0.7, "plastic_frequency": 1.0, "stable_frequency": 1.0, "plastic_decay": 0.5,
           "stable_decay": 0.9}  # fmt: skip


def parameters(network):
    return [parameter.detach().clone() for parameter in network.parameters()]


def test_a_step_is_that_of_er_held_to_the_surer_copy():
    learning = Learning("cls-er", options=OPTIONS)
    learning.run(1, 0, 2)
    method, batch = learning.method, learning.batch()
    network, plastic, stable = (copy.deepcopy(net) for net in (method.network, method.plastic, method.stable))
    images, labels = method.retrieve()
    target = []
    for p, s, label in zip(plastic(images), stable(images), labels, strict=True):
        target.append(s if s.softmax(0)[label] > p.softmax(0)[label] else p)
    chosen = torch.stack(target)
    assert not torch.equal(chosen, plastic(images))
    assert not torch.equal(chosen, stable(images))
    consistency = (network(images) - chosen).square().mean()
    logits = network(torch.cat([batch.augmented, images]))
    expected = F.cross_entropy(logits, torch.cat([batch.labels, labels])) + 0.7 * consistency
    torch.testing.assert_close(learning.step(), expected.detach())


def test_the_copies_follow_by_running_means_that_start_as_plain_means():
    learning = Learning("cls-er", options=OPTIONS)
    method = learning.method
    stable = parameters(method.network)
    for step, decay in enumerate((1 / 2, 2 / 3, 3 / 4, 4 / 5), 1):  # min(1 − 1/(step + 1), 0.9)
        before = parameters(method.plastic)
        learning.step()
        now = parameters(method.network)
        stable = [decay * mean + (1 - decay) * value for mean, value in zip(stable, now, strict=True)]
        for found, mean in zip(method.stable.parameters(), stable, strict=True):
            torch.testing.assert_close(found, mean)
        for found, mean, value in zip(method.plastic.parameters(), before, now, strict=True):
            torch.testing.assert_close(found, 0.5 * mean + 0.5 * value)
        assert method.steps == step


def test_a_copy_is_renewed_as_often_as_its_frequency_says():
    rare = {**OPTIONS, "stable_frequency": 0.0, "plastic_frequency": 0.5}
    learning = Learning("cls-er", options=rare, epochs=4)
    first, renewed, steps = parameters(learning.method.stable), 0, 0
    while not learning.done:
        before = parameters(learning.method.plastic)
        learning.step()
        renewed += not all(map(torch.equal, before, parameters(learning.method.plastic)))
        steps += 1
    assert all(map(torch.equal, first, parameters(learning.method.stable)))
    assert 0.3 < renewed / steps < 0.7


def test_the_stable_copy_answers_with_its_own_batch_norm():
    learning = Learning("cls-er", options=OPTIONS)
    learning.run(1, 0, 2)
    method, images = learning.method, learning.task.images()[:5]
    stable = copy.deepcopy(method.stable).eval()
    with torch.no_grad():
        torch.testing.assert_close(method.logits(images), stable(images))
        assert not torch.allclose(method.logits(images), method.network.eval()(images))
    own = method.stable.encoder.bn.running_mean
    assert not torch.equal(own, method.network.encoder.bn.running_mean)
    assert own.abs().sum() > 0
    method.network.train()
    learning.step()
    assert method.stable.training


def test_the_copies_survive_a_restart():
    learning = Learning("cls-er", options=OPTIONS)
    learning.run(1, 0, 2)
    other = Learning("cls-er", options=OPTIONS).method
    other.load_state_dict(copy.deepcopy(learning.method.state_dict()))
    for name in ("plastic", "stable"):
        for key, value in getattr(learning.method, name).state_dict().items():
            assert torch.equal(value, getattr(other, name).state_dict()[key]), (name, key)
    assert other.steps == learning.method.steps > 0


@pytest.mark.parametrize(
    ("dataset", "size", "weight", "plastic", "stable", "rate"),
    [("split-cifar10", 100, 0.15, 0.3, 0.1, 0.1), ("split-cifar10", 500, 0.15, 0.9, 0.1, 0.1),
     ("split-cifar100", 2000, 0.15, 0.8, 0.6, 0.1), ("split-tiny-imagenet", 1000, 0.1, 0.08, 0.05, 0.05)],
)  # fmt: skip
def test_the_settings_of_the_authors_are_in_force(dataset, size, weight, plastic, stable, rate):
    config = make_config({"method": "cls-er", "dataset": dataset, "buffer_size": size})
    options = config.options
    assert (options.consistency_weight, options.plastic_frequency, options.stable_frequency) == (
        weight,
        plastic,
        stable,
    )
    assert (options.plastic_decay, options.stable_decay, config.learning_rate) == (0.999, 0.999, rate)


def test_decays_are_in_proportion_to_the_epochs_unless_given():
    few = make_config({"method": "cls-er", "dataset": "split-cifar100", "epochs": 5, "stable_decay": 0.9}).options
    assert (few.plastic_decay, few.stable_decay) == (0.99, 0.9)
