import numpy as np
import pytest
import torch

from acr.data.images import DataSet, ImageSet
from acr.data.stream import TaskStream, order_classes, task_sizes
from acr.errors import InputError
from acr.testing import toy_data


def odd_labels():
    """A data set whose labels are 3, 17 and 900."""
    data = toy_data(classes=3)
    values = np.array([3, 17, 900])
    return DataSet("odd", *(ImageSet(s.images, values[s.labels]) for s in (data.train, data.test)), data.mean, data.std)


def test_iterates_slices_and_counts(blob_data):
    stream = TaskStream.split(blob_data, tasks=2)
    assert len(stream) == 2
    assert [task.classes for task in stream] == [(0, 1), (2, 3)]
    assert stream[-1].classes == (2, 3)
    assert len(stream[:1]) == 1
    assert stream[:1].classes == (0, 1)
    assert [len(task) for task in stream] == [48, 48]
    with pytest.raises(IndexError):
        stream[2]


def test_label_values_are_kept():
    stream = TaskStream.split(odd_labels(), classes_per_task=[1, 2], class_order=[900, 3, 17])
    assert [task.classes for task in stream] == [(900,), (3, 17)]
    assert stream.classes == (3, 17, 900)
    assert [task.columns for task in stream] == [(2,), (0, 1)]
    assert set(stream[0].targets.tolist()) == {2}
    assert set(stream[0].train.labels[stream[0].positions]) == {900}


def test_a_task_holds_its_own_samples_only(blob_data):
    stream = TaskStream.split(blob_data, tasks=4)
    everything = torch.cat([task.images() for task in stream])
    assert len(everything) == len(blob_data.train)
    for task, positions in zip(stream, stream.test_positions, strict=True):
        assert set(blob_data.train.labels[task.positions]) == set(task.classes)
        assert set(blob_data.test.labels[positions]) == set(task.classes)
    picked = stream[1].images(torch.tensor([5, 0]))
    assert torch.equal(picked, stream[1].images()[[5, 0]])


def test_merged(blob_data):
    merged = TaskStream.split(blob_data, tasks=2).merged()
    assert len(merged) == 1
    assert len(merged[0]) == len(blob_data.train)


def test_random_order_is_a_function_of_its_seed():
    classes = list(range(20))
    assert order_classes(classes, "random:3") == order_classes(classes, "random:3")
    assert order_classes(classes, "random:3") != order_classes(classes, "random:4")
    assert sorted(order_classes(classes, "random:3")) == classes


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: task_sizes(10, 11, None), "cannot make 11 tasks"),
        (lambda: task_sizes(10, 3, None), "do not divide"),
        (lambda: task_sizes(10, 2, [3, 3, 4]), "do not agree"),
        (lambda: task_sizes(10, None, [9, 9]), "needs 18 classes"),
        (lambda: task_sizes(10, None, [0, 5]), "at least one class"),
        (lambda: order_classes([0, 1], "shuffled"), "random:SEED"),
        (lambda: order_classes([0, 1], [0, 5]), "does not have"),
        (lambda: order_classes([0, 1], [0, 0]), "twice"),
        (lambda: TaskStream(toy_data(), [[0], [77]]), r"no training images of the classes \[77\]"),
        (lambda: TaskStream(toy_data(), [[0], []]), "at least one class"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(InputError, match=words):
        call()
