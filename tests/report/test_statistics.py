import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from acr.report.statistics import estimate, holm, paired_p


def test_interval_by_hand():
    # t(0.975, 4) = 2.776445; sd of 1..5 is sqrt(2.5)
    value = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert value.mean == pytest.approx(3.0)
    assert value.half == pytest.approx(2.7764451 * math.sqrt(2.5) / math.sqrt(5))
    assert math.isnan(estimate([1.0]).half)
    assert estimate([1.0, math.nan]).n == 1
    assert not estimate([]).known


def test_interval_and_paired_test_by_hand():
    values = [29.0, 31.0, 30.5]
    assert estimate(values).half == pytest.approx(4.303 * np.std(values, ddof=1) / math.sqrt(3), rel=1e-3)
    assert math.isnan(estimate([1.0]).half)
    ours, theirs = {0: 30.0, 1: 31.0, 2: 35.0, 9: 1.0}, {0: 29.0, 1: 28.0, 2: 33.0, 7: 5.0}
    d = np.array([1.0, 3.0, 2.0])  # the seeds both have
    t = d.mean() / (d.std(ddof=1) / math.sqrt(3))
    assert paired_p(ours, theirs) == pytest.approx(2 * stats.t.sf(t, 2))
    assert paired_p(ours, theirs) == pytest.approx(stats.ttest_rel([30, 31, 35], [29, 28, 33]).pvalue)
    assert math.isnan(paired_p({0: 1.0}, {0: 2.0}))
    assert math.isnan(paired_p({0: 0.1 + 0.2, 1: 1.3}, {0: 0.3, 1: 1.3}))  # rounding is no spread


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_holm_is_bonferroni_in_every_group_that_a_hypothesis_belongs_to(values):
    # Holm's correction is the closed test whose local tests are Bonferroni's: the largest of |S| min p over groups S.
    numbers = range(len(values))
    groups = [group for size in range(1, len(values) + 1) for group in combinations(numbers, size)]
    expected = [max(min(1.0, len(g) * min(values[j] for j in g)) for g in groups if number in g) for number in numbers]
    assert holm(values) == pytest.approx(expected)


def test_holm_leaves_out_what_was_not_tested():
    assert holm([0.01, math.nan, 0.02])[::2] == pytest.approx([0.02, 0.02])
    assert math.isnan(holm([0.01, math.nan, 0.02])[1])
    assert holm([]) == []
