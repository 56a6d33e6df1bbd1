import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acr import metrics
from acr.errors import InputError

NAN = float("nan")
MATRIX = [[0.9, NAN, NAN], [0.8, 0.7, NAN], [0.3, 0.75, 0.6]]


def test_by_hand():
    assert metrics.average_accuracy(MATRIX) == pytest.approx((0.3 + 0.75 + 0.6) / 3)
    assert metrics.backward_transfer(MATRIX) == pytest.approx(((0.3 - 0.9) + (0.75 - 0.7)) / 2)
    assert metrics.forgetting(MATRIX) == pytest.approx(((0.9 - 0.3) + (0.7 - 0.75)) / 2)
    assert metrics.stage_accuracy(MATRIX).tolist() == pytest.approx([0.9, 0.75, 0.55])
    assert metrics.stage_backward_transfer(MATRIX).tolist()[1:] == pytest.approx([-0.1, -0.275])
    assert math.isnan(metrics.stage_backward_transfer(MATRIX)[0])
    assert metrics.average_incremental_accuracy(MATRIX) == pytest.approx((0.9 + 0.75 + 0.55) / 3)
    assert metrics.final_transfer(MATRIX).tolist() == pytest.approx([-0.6, 0.05])


def test_one_task_has_no_transfer():
    assert math.isnan(metrics.backward_transfer([[0.5]]))
    assert math.isnan(metrics.forgetting([[0.5]]))
    assert metrics.average_accuracy([[0.5]]) == 0.5


def test_joint_training_has_accuracy_but_no_transfer():
    matrix = [[NAN, NAN], [0.9, 0.8]]
    assert metrics.average_accuracy(matrix) == pytest.approx(0.85)
    assert math.isnan(metrics.backward_transfer(matrix))
    assert math.isnan(metrics.forgetting(matrix))


@given(st.integers(1, 6), st.integers(0, 10**6))
def test_relations(tasks, seed):
    """Definitions hang together: the last stage is the whole, forgetting is at least minus the transfer."""
    matrix = np.tril(np.random.default_rng(seed).random((tasks, tasks)))
    matrix[np.triu_indices(tasks, 1)] = np.nan
    assert metrics.stage_accuracy(matrix)[-1] == pytest.approx(metrics.average_accuracy(matrix))
    if tasks > 1:
        assert metrics.stage_backward_transfer(matrix)[-1] == pytest.approx(metrics.backward_transfer(matrix))
        assert metrics.forgetting(matrix) >= -metrics.backward_transfer(matrix) - 1e-12
    assert metrics.average_accuracy(100 * matrix) == pytest.approx(100 * metrics.average_accuracy(matrix))


def test_coefficient_of_variation():
    assert metrics.coefficient_of_variation([5, 5, 5]) == 0
    assert metrics.coefficient_of_variation([2, 3] * 100) == pytest.approx(20)
    assert math.isnan(metrics.coefficient_of_variation([0, 0]))


def test_random_hundreds_of_a_class_have_a_cv_near_thirty_percent():
    """100 random samples of each task of 10 classes, 10 a class on average: the paper's GEM, near 30 %."""
    rng = np.random.default_rng(0)
    values = []
    for _ in range(20):
        tasks = [rng.choice(5000, 100, replace=False) // 500 for _ in range(10)]
        values.append(metrics.coefficient_of_variation([np.sum(t == c) for t in tasks for c in range(10)]))
    assert 27 < np.mean(values) < 32


def test_refuses_what_is_no_matrix():
    for wrong in ([], [1.0], [[1.0, 2.0]]):
        with pytest.raises(InputError, match="T x T"):
            metrics.average_accuracy(wrong)
