"""Labels of any kind come back as they were given, through arrays and through JSON."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from acr.errors import InputError
from acr.learner.labels import Labels, as_array, check_can_be_saved, from_json, to_json, to_labels

SIMPLE = st.one_of(
    st.text(), st.integers(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.binary()
)
LABELS = st.recursive(SIMPLE, lambda inner: st.tuples(inner, inner) | st.tuples(inner), max_leaves=5)


def same(a, b):
    """Equal and of the same type, inside tuples too: 1, 1.0 and True are equal in Python."""
    return type(a) is type(b) and (all(map(same, a, b)) and len(a) == len(b) if isinstance(a, tuple) else a == b)


@given(LABELS)
def test_a_label_survives_json(label):
    assert same(from_json(json.loads(json.dumps(to_json(label)))), label)


@given(st.lists(LABELS, min_size=1, unique=True))
def test_labels_survive_an_array(labels):
    array = as_array(labels)
    assert array.shape == (len(labels),)
    assert all(same(a, b) for a, b in zip(array.tolist(), labels, strict=True))


@given(st.lists(LABELS, unique=True), st.lists(LABELS))
def test_old_outputs_stay_where_they_are(first, later):
    before = Labels(first)
    after = before.with_new(later)
    assert after.values[: len(before)] == before.values
    assert set(after.values) == {*first, *later}
    assert len(set(after.values)) == len(after)
    assert [after.values[column] for column in after.columns(later)] == later


def test_new_labels_are_sorted_where_they_can_be():
    assert Labels(["z"]).with_new(["b", "a", "z"]).values == ("z", "a", "b")
    assert Labels().with_new(["b", 1, "a"]).values == ("b", 1, "a")  # text and numbers have no order


@pytest.mark.parametrize(
    "labels",
    [["a", "b"], np.array(["a", "b"]), np.array(["a", "b"], dtype=object), ("a", "b"), np.array([["a"], ["b"]])],
)
@pytest.mark.filterwarnings("ignore:A column-vector")
def test_text_in_any_container(labels):
    found = to_labels(labels)
    assert found == ["a", "b"]
    assert {type(label) for label in found} == {str}


@pytest.mark.parametrize(
    "labels", [[1, 2], np.array([1, 2], np.uint8), torch.tensor([1, 2]), [np.int64(1), torch.tensor(2)]]
)
def test_numbers_in_any_container(labels):
    found = to_labels(labels)
    assert found == [1, 2]
    assert {type(label) for label in found} == {int}


def test_tuples_stay_tuples():
    assert to_labels([("a", 1), ("b", 2)]) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("cat", "one label per image"),
        (3, "one label per image"),
        (np.zeros((2, 2)), "shape (2, 2)"),
        ([["a"], ["b"]], "Label 0 is ['a'], which cannot be a label"),
        ([1.0, float("nan")], "Label 1 is nan"),
        (["a", None], "Label 1 is None"),
    ],
)
def test_what_cannot_be_a_label_is_named(labels, said):
    with pytest.raises(InputError) as error:
        to_labels(labels)
    assert said in str(error.value)


def test_unknown_labels_are_named():
    with pytest.raises(InputError, match=r"not learned the class 'bird'\. It knows 2 classes: 'cat', 'dog'\."):
        Labels(["cat", "dog"]).columns(["cat", "bird", "bird"])


def test_labels_that_cannot_be_saved():
    assert check_can_be_saved(["a", (1, b"x")]) == ""
    assert "cannot be saved" in check_can_be_saved([frozenset({1})])


@pytest.mark.parametrize(
    "forged", [None, [], {}, {"str": 1}, {"int": "x"}, {"a": 1, "b": 2}, {"object": "x"}, {"bool": 1}]
)
def test_what_is_not_a_label_is_refused(forged):
    with pytest.raises(ValueError):  # noqa: PT011
        from_json(forged)


def test_labels_nested_without_end_are_refused():
    forged = {"str": "x"}
    for _ in range(100):
        forged = {"tuple": [forged]}
    with pytest.raises(ValueError, match="not a label"):
        from_json(forged)
