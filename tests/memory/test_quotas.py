import pytest
from hypothesis import given
from hypothesis import strategies as st

from acr.errors import InputError
from acr.memory import balanced_quotas


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        (1, [500]),
        (2, [250, 250]),
        (3, [166, 167, 167]),
        (6, [84, 84, 83, 83, 83, 83]),
        (8, [63] * 4 + [62] * 4),
        (9, [55] * 4 + [56] * 5),
    ],
)
def test_task_quotas_of_the_paper(tasks, expected):
    assert [sum(row) for row in balanced_quotas(500, [10] * tasks)] == expected


@pytest.mark.parametrize(
    ("capacity", "tasks", "per_task", "per_class", "final"),
    [
        (500, 10, 10, 500, {5}), (1000, 10, 10, 500, {10}), (2000, 10, 10, 500, {20}),
        (500, 5, 20, 500, {5}), (1000, 5, 20, 500, {10}), (2000, 5, 20, 500, {20}),
        (500, 10, 20, 500, {2, 3}), (1000, 10, 20, 500, {5}), (2000, 10, 20, 500, {10}),
    ],
)  # fmt: skip
def test_the_nine_configurations_stay_balanced_at_every_stage(capacity, tasks, per_task, per_class, final):
    previous: list[list[int]] = []
    for stage in range(1, tasks + 1):
        available = [*previous, [per_class] * per_task]
        quotas = balanced_quotas(capacity, [per_task] * stage, previous, available)
        totals = [sum(row) for row in quotas]
        everything = [n for row in quotas for n in row]
        assert sum(totals) == capacity
        assert max(totals) - min(totals) <= 1
        assert max(everything) - min(everything) <= 1
        previous = quotas
    assert {n for row in previous for n in row} == final


streams = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=5), min_size=1, max_size=6)


@given(st.integers(0, 120), streams)
def test_invariants_of_any_stream(capacity, stream):
    """Unequal tasks, rare classes, memories smaller than the number of classes: three laws hold at every stage."""
    held: list[list[int]] = []
    for stage, arriving in enumerate(stream):
        available = [*held, arriving]
        quotas = balanced_quotas(capacity, [len(row) for row in available], held, available)
        assert [len(row) for row in quotas] == [len(row) for row in available]
        assert sum(map(sum, quotas)) == min(capacity, sum(map(sum, available)))
        for old, new in zip(available, quotas, strict=True):
            assert all(0 <= b <= a for a, b in zip(old, new, strict=True)), f"a class grew at stage {stage}"
        held = quotas


@given(st.integers(0, 400), st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_with_plenty_of_samples_nothing_differs_by_more_than_one(capacity, classes):
    quotas = balanced_quotas(capacity, classes)
    totals = [sum(row) for row in quotas]
    assert max(totals) - min(totals) <= 1
    assert all(max(row) - min(row) <= 1 for row in quotas)


def test_refusals():
    with pytest.raises(InputError, match="capacity"):
        balanced_quotas(-1, [2])
    with pytest.raises(InputError, match="class or more"):
        balanced_quotas(3, [2, 0])
    with pytest.raises(InputError, match="previous"):
        balanced_quotas(3, [2, 2], previous=[[1, 1, 1]])
