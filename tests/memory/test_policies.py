import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acr.errors import InputError
from acr.memory import Buffer, ConfidenceTable
from acr.memory.policies import POLICIES, Balanced, make_policy


def draws(seed=0):
    return torch.Generator().manual_seed(seed)


def numbered(n, start=0):
    """Images that carry their own number."""
    values = torch.arange(start, start + n)
    return torch.stack([values // 256, values % 256], 1).to(torch.uint8).view(n, 1, 1, 2)


def numbers(buffer):
    pairs = buffer.images.view(len(buffer), 2).long()
    return (pairs[:, 0] * 256 + pairs[:, 1]).tolist()


def table_of(values):
    table = ConfidenceTable(len(values), len(values[0]))
    for epoch in range(len(values[0])):
        column = torch.tensor([row[epoch] for row in values])
        table.record(epoch, torch.arange(len(values)), column)
    return table


def buffer_for(policy, capacity):
    return Buffer(capacity, (1, 1, 2), policy.columns)


def test_reservoir_is_uniform():
    """Each of 60 samples offered in batches is stored equally often (chi-square)."""
    n, capacity, rounds = 60, 12, 2500
    counts = torch.zeros(n)
    batches = {start: numbered(min(7, n - start), start) for start in range(0, n, 7)}
    for seed in range(rounds):
        policy, buffer = make_policy("reservoir"), Buffer(capacity, (1, 1, 2))
        for start, batch in batches.items():
            policy.observe(buffer, batch, torch.zeros(len(batch), dtype=torch.int64), 0, draws(seed * 100 + start))
        assert len(buffer) == capacity
        assert buffer.seen == n
        stored = numbers(buffer)
        assert len(set(stored)) == capacity
        counts[stored] += 1
    expected = rounds * capacity / n
    # Without replacement the counts vary less than a multinomial's: scale by (1 - capacity/n).
    chi_square = float(((counts - expected) ** 2 / (expected * (1 - capacity / n))).sum())
    assert chi_square < 98.3  # 0.999 quantile with 59 degrees of freedom


def test_reservoir_fills_in_order():
    policy, buffer = make_policy("reservoir"), Buffer(10, (1, 1, 2))
    policy.observe(buffer, numbered(4), torch.arange(4), 0, draws())
    policy.observe(buffer, numbered(4, 4), torch.arange(4, 8), 1, draws())
    assert buffer.labels.tolist() == list(range(8))
    assert buffer.tasks.tolist() == [0] * 4 + [1] * 4


CONFIDENCE = [[0.5, 0.5], [0.125, 0.875], [0.25, 0.3125], [0.875, 0.875], [0.375, 0.625], [0.125, 0.1875]]
#   mean         .5           .5              .28             .875            .5              .16
#   variance      0           .14             .001             0              .016            .001


@pytest.mark.parametrize(("name", "expected"), [("challenging", [1, 4, 2]), ("hard", [5, 2, 0]), ("easy", [3, 0, 1])])
def test_orders_of_the_confidence_policies(name, expected):
    """One class, three places; equal values: the lower index first."""
    policy = make_policy(name)
    buffer = buffer_for(policy, 3)
    policy.end_task(buffer, numbered(6), torch.zeros(6, dtype=torch.int64), 0, draws(), table_of(CONFIDENCE))
    assert numbers(buffer) == expected
    assert buffer.column("confidence_mean").tolist() == pytest.approx([sum(CONFIDENCE[i]) / 2 for i in expected])


def test_ties_go_to_the_lowest_index():
    policy = make_policy("challenging")
    buffer = buffer_for(policy, 4)
    policy.end_task(buffer, numbered(9), torch.zeros(9, dtype=torch.int64), 0, draws(), table_of([[0.3, 0.7]] * 9))
    assert numbers(buffer) == [0, 1, 2, 3]


def test_pruning_drops_the_lowest_variance_first():
    policy = make_policy("challenging")
    buffer = buffer_for(policy, 4)
    labels = torch.tensor([0, 1, 0, 1])
    policy.end_task(buffer, numbered(4), labels, 0, draws(), table_of([[0, 0.1], [0, 0.2], [0, 0.3], [0, 0.4]]))
    assert numbers(buffer) == [3, 2, 1, 0]  # by falling variance, classes interleaved
    policy.end_task(buffer, numbered(4, 10), labels + 2, 1, draws(), table_of([[0, 0.5], [0, 0.1], [0, 0.9], [0, 0]]))
    assert numbers(buffer) == [3, 2, 12, 11]
    assert buffer.labels.tolist() == [1, 0, 2, 3]
    assert buffer.tasks.tolist() == [0, 0, 1, 1]


def test_a_class_that_comes_again_is_a_part_of_its_own():
    policy = make_policy("balanced-random")
    buffer = buffer_for(policy, 6)
    for task in range(3):
        policy.end_task(buffer, numbered(8, 10 * task), torch.tensor([0, 1] * 4), task, draws(task))
    assert torch.bincount(buffer.tasks).tolist() == [2, 2, 2]
    assert torch.bincount(buffer.labels).tolist() == [3, 3]


streams = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), streams, st.sampled_from([n for n, p in POLICIES.items() if issubclass(p, Balanced)]))
def test_balanced_policies_on_any_stream(capacity, stream, name):
    """The memory is full whenever it can be, never over, holds only what was offered, and survives a save."""
    policy = make_policy(name)
    buffer = buffer_for(policy, capacity)
    offered, first_label = 0, 0
    for task, sizes in enumerate(stream):
        labels = torch.cat([torch.full((n,), first_label + c) for c, n in enumerate(sizes)])
        before = set(numbers(buffer))
        table = table_of(torch.rand(len(labels), 2, generator=draws(task)).tolist())
        held = len(buffer)
        policy.end_task(buffer, numbered(len(labels), offered), labels, task, draws(task), table)
        now = numbers(buffer)
        assert len(now) == len(set(now)) == min(capacity, held + len(labels))
        assert {n for n in now if n < offered} <= before
        offered, first_label = offered + len(labels), first_label + len(sizes)
        saved, policy = policy.state_dict(), make_policy(name)
        policy.load_state_dict(saved)


def test_one_confidence_epoch_means_a_random_order():
    policy = make_policy("challenging")
    buffer = buffer_for(policy, 5)
    policy.end_task(buffer, numbered(50), torch.zeros(50, dtype=torch.int64), 0, draws(3), table_of([[0.5]] * 50))
    assert numbers(buffer) != [0, 1, 2, 3, 4]


def test_unknown_policy():
    with pytest.raises(InputError, match="Did you mean 'reservoir'"):
        make_policy("reservor")
