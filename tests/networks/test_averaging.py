"""Averaged weights: the mean that is promised, and nothing else."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from acr.networks import resnet18
from acr.networks.averaging import WeightAverage
from acr.values import HalfLife


def values_of(network):
    tensors = [*network.parameters(), *(b for b in network.buffers() if b.is_floating_point())]
    return torch.cat([tensor.flatten() for tensor in tensors])


def trained(network, seed):
    """Other weights and other running averages, as a step would leave them."""
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in network.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(torch.randn(tensor.shape, generator=draws, dtype=tensor.dtype))
            else:
                tensor.add_(1)


@given(
    half_life=st.floats(0.05, 50),
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=3),
    unit=st.sampled_from(["", "t", "auto"]),
)
def test_it_is_the_weighted_mean_of_all_steps(half_life, sizes, unit):
    network = torch.nn.BatchNorm1d(3).double()
    average = WeightAverage(copy.deepcopy(network), HalfLife(half_life, unit))
    seen, weights = [], []
    for task, steps in enumerate(sizes):
        for step in range(steps):
            share = {"": 1 / steps, "t": 1, "auto": min(task + 1, 0.5 / half_life)}[unit]
            decay = 0.5 ** (1 / (half_life * share * steps))
            trained(network, 100 * task + step)
            average.update(network, steps, task + 1)
            seen.append(values_of(network).clone())
            weights = [weight * decay for weight in weights] + [1.0]
    w = torch.tensor(weights, dtype=torch.float64)
    expected = (w[:, None] * torch.stack(seen)).sum(0) / w.sum()
    # Every update rounds once or twice; the values are of the order of the number of steps.
    torch.testing.assert_close(values_of(average.network), expected, rtol=1e-12, atol=1e-12)


def test_the_first_step_is_taken_as_it_is_and_the_initial_weights_do_not_count():
    network = resnet18(2, 2, "linear", 1)
    average = WeightAverage(copy.deepcopy(network), HalfLife.parse("1000"))
    trained(network, 0)
    average.update(network, 10, 1)
    assert torch.equal(values_of(average.network), values_of(network))


def test_counts_are_not_averaged_and_the_mean_of_a_constant_is_that_constant():
    network = resnet18(2, 2, "linear", 1)
    average = WeightAverage(copy.deepcopy(network), HalfLife.parse("3"))
    before = {n: b.clone() for n, b in average.network.named_buffers() if not b.is_floating_point()}
    assert before
    for step in range(5):
        trained(network.head, step)
        average.update(network, 10, 1)
    assert all(torch.equal(average.network.get_buffer(name), value) for name, value in before.items())
    assert torch.equal(average.network.mean, network.mean)
    assert torch.equal(average.network.std, network.std)


def test_it_gets_no_gradient_and_stays_in_evaluation_mode():
    network = resnet18(2, 2, "linear", 1).train()
    average = WeightAverage(copy.deepcopy(network), HalfLife.parse("3"))
    assert not average.network.training
    assert not any(parameter.requires_grad for parameter in average.network.parameters())
    assert all(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.parametrize("half_life", ["0.5t", "auto"])
def test_a_saved_average_goes_on_as_if_nothing_had_happened(half_life):
    network = resnet18(2, 2, "linear", 1)
    one = WeightAverage(copy.deepcopy(network), HalfLife.parse(half_life))
    for step in range(3):
        trained(network, step)
        one.update(network, 10, 1)
    other = WeightAverage(resnet18(2, 2, "linear", 1), HalfLife.parse(half_life))
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for step in range(3, 6):
        trained(network, step)
        one.update(network, 10, 1)
        other.update(network, 10, 1)
    assert torch.equal(values_of(one.network), values_of(other.network))


@pytest.mark.parametrize(
    "text", ["", "t", "0", "0t", "-1", "1e3", "0.5T", "half", "0.5tt", "autot", "0.07auto", "1 t", "inf", "nan", "٣"]
)
def test_what_is_no_half_life_is_refused(text):
    with pytest.raises(ValueError, match=r"0\.2t"):
        HalfLife.parse(text)


@pytest.mark.parametrize(("tasks", "steps"), [(1, 7), (2, 14), (5, 35), (7, 49), (8, 50), (100, 50)])
def test_the_rule_grows_with_the_number_of_tasks_up_to_half_a_task(tasks, steps):
    assert HalfLife.parse("auto").steps(of_the_task=100, tasks=tasks) == pytest.approx(steps)
    assert str(HalfLife.parse("auto")) == "auto"
