import numpy as np
import pytest
import torch

from acr.data.stream import TaskStream
from acr.evaluation.counts import accuracy_matrix
from acr.evaluation.evaluator import count, evaluate
from acr.evaluation.scenarios import StoredImages
from acr.testing import toy_data

# Six outputs, three tasks of two; tasks 0 and 1 have been seen.
SCORES = torch.tensor(
    [
        [5.0, 1, 0, 0, 9, 0],  # class 0: best of the seen is 0 (right), best of all is 4 (wrong)
        [1.0, 0, 2, 0, 0, 0],  # class 0: seen says 2 (wrong), inside its task 0 (right)
        [0.0, 3, 0, 0, 0, 0],  # class 1: right by any measure
        [4.0, 0, 1, 3, 0, 0],  # class 2: seen says 0; inside its task 3: wrong by any measure
        [0.0, 0, 0, 2, 0, 1],  # class 3: right by any measure
    ]
)
TARGETS = torch.tensor([0, 0, 1, 2, 3])
TASKS = torch.tensor([0, 0, 0, 1, 1])


def test_counts_by_hand():
    counts = count(SCORES, TARGETS, TASKS, [(0, 1), (2, 3)], [0, 1, 2, 3])
    assert counts.total == [[2, 1], [1, 1]]
    assert counts.correct == {"seen": [[1, 1], [0, 1]], "all": [[0, 1], [0, 1]], "task": [[2, 1], [0, 1]]}
    assert counts.confusion == [[2, 1], [1, 1]]
    assert sum(counts.calibration["count"]) == 5
    assert sum(counts.calibration["correct"]) == 3


def test_calibration_bins_add_up():
    scores = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    targets = torch.zeros(200, dtype=torch.int64)
    right = scores.argmax(1) == targets
    bins = count(scores, targets, torch.zeros(200, dtype=torch.int64), [range(5)], range(5)).calibration
    confidence = scores.softmax(1).max(1).values
    assert sum(bins["confidence"]) == pytest.approx(float(confidence.sum()), rel=1e-5)
    inside = (confidence >= 7 / 15) & (confidence < 8 / 15)
    assert bins["count"][7] == int(inside.sum())
    assert bins["correct"][7] == int(right[inside].sum())


def test_a_perfect_and_a_constant_model():
    data = toy_data(classes=4)
    stream = TaskStream.split(data, tasks=2, class_order=[3, 1, 0, 2])
    scenario = StoredImages("clean", data.test.images)
    lookup = {image.tobytes(): int(label) for image, label in zip(data.test.images, data.test.labels, strict=True)}

    def perfect(images):
        return torch.stack([torch.eye(4)[lookup[image.numpy().tobytes()]] for image in images])

    stages = [evaluate(perfect, scenario, stream, stage) for stage in range(2)]
    matrix = accuracy_matrix(stages)
    np.testing.assert_array_equal(matrix, [[1, np.nan], [1, 1]])

    constant = accuracy_matrix([evaluate(lambda x: torch.eye(4)[[1] * len(x)], scenario, stream, 1)] * 2)
    np.testing.assert_array_equal(constant[1], [0.5, 0])


def test_stages_not_measured_are_nan():
    assert np.isnan(accuracy_matrix([None, None])).all()
