"""Labels of any kind: each hashable value is one output of the network, and comes back as it was given."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import DataConversionWarning

from acr.errors import InputError, shown

PLAIN: tuple[type, ...] = (str, int, float, bool)
"""Types of which numpy makes arrays that give the values back."""
MOST_NESTED = 20
"""How deeply tuples in a label may be nested if it is to be saved."""


class Labels:
    """The classes learned so far, in the order of the network's outputs."""

    def __init__(self, values: Iterable[Hashable] = ()) -> None:
        self.values = tuple(values)
        self._column = {value: column for column, value in enumerate(self.values)}

    def __len__(self) -> int:
        return len(self.values)

    def __contains__(self, label: object) -> bool:
        return label in self._column

    def array(self) -> npt.NDArray[Any]:
        """The labels as an array, one per output."""
        return as_array(self.values)

    def with_new(self, labels: Iterable[Hashable]) -> Labels:
        """These labels followed by those that are not among them yet: sorted if they can be, else as they come."""
        new: list[Any] = [label for label in dict.fromkeys(labels) if label not in self]
        with suppress(TypeError):  # labels of several kinds have no order; theirs is the order of arrival
            new.sort()
        return Labels((*self.values, *new))

    def columns(self, labels: Sequence[Hashable]) -> npt.NDArray[np.int64]:
        """The output of each label. A label that was never learned is an error."""
        unknown = list(dict.fromkeys(label for label in labels if label not in self))
        if unknown:
            some = ", ".join(shown(label) for label in unknown[:5])
            more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
            raise InputError(
                f"The classifier has not learned the class{'es' if len(unknown) > 1 else ''} {some}{more}. "
                f"It knows {len(self)} classes: {', '.join(shown(v) for v in self.values[:5])}"
                f"{', ...' if len(self) > 5 else ''}."
            )
        return np.array([self._column[label] for label in labels], dtype=np.int64)


def check_one_each(images: int, labels: int) -> None:
    """Refuse images and labels of different numbers."""
    if images != labels:
        raise InputError(f"There are {images} images but {labels} labels; each image needs one label.")


def to_labels(labels: Any) -> list[Hashable]:
    """One hashable label per image, from a list, an array, a tensor or a column of a table.

    Numbers and text of numpy become Python's, so that equal labels are equal whatever they were stored in.
    """
    if labels is None:
        raise InputError("There are no labels: the classifier requires y to be passed, but the target y is None.")
    if hasattr(labels, "__array__") and not hasattr(labels, "detach"):
        labels = np.asarray(labels)
    if isinstance(labels, (str, bytes)) or not hasattr(labels, "__len__"):
        raise InputError(f"Labels must be a list or an array with one label per image; got {shown(labels)}.")
    if hasattr(labels, "detach"):
        labels = labels.detach().cpu().numpy()
    if isinstance(labels, np.ndarray) and labels.ndim == 2 and labels.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected: its rows are taken as labels.",
            DataConversionWarning,
            3,
        )
        labels = labels[:, 0]
    if isinstance(labels, np.ndarray) and labels.ndim != 1:
        raise InputError(f"Labels must be one per image; got an array of shape {labels.shape}.")
    found: list[Hashable] = []
    for place, label in enumerate(labels.tolist() if isinstance(labels, np.ndarray) else labels):
        value = label.item() if isinstance(label, np.generic) or hasattr(label, "detach") else label
        try:
            hash(value)
        except TypeError:
            raise InputError(
                f"Label {place} is {shown(value)}, which cannot be a label: use text, numbers or tuples of them."
            ) from None
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            raise InputError(f"Label {place} is {shown(value)}: an image without a label cannot be learned from.")
        found.append(value)
    return found


def as_array(values: Sequence[Hashable]) -> npt.NDArray[Any]:
    """Labels as a one-dimensional array: of numbers or text where all are of one such type, else of objects."""
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and kinds <= set(PLAIN):
        array = np.array(values)
        if array.tolist() == list(values):  # whole numbers of more than 64 bits would not come back
            return array
    objects = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        objects[place] = value
    return objects


def to_json(label: Hashable) -> Any:
    """A label as JSON, with its type: text, numbers, bytes, and tuples of these can be saved."""
    kind = type(label)
    if kind in PLAIN:
        if kind is int:
            return {"int": str(label)}  # of any size
        return {kind.__name__: label}
    if isinstance(label, bytes):
        return {"bytes": label.hex()}
    if kind is tuple:
        assert isinstance(label, tuple)
        return {"tuple": [to_json(part) for part in label]}
    raise InputError(
        f"The label {shown(label)} cannot be saved: only text, numbers, bytes and tuples of them can. "
        f"Use str(label) or repr(label) as the label if the classifier is to be saved."
    )


def to_plain(label: Hashable) -> Any:
    """A label for people and programs that read JSON: text, numbers and truth values as they are, the rest as text."""
    return label if isinstance(label, PLAIN) else str(label)


def from_json(content: Any, depth: int = 0) -> Hashable:
    """The inverse of :func:`to_json`; a ``ValueError`` for anything else."""
    if not isinstance(content, dict) or len(content) != 1 or depth > MOST_NESTED:
        raise ValueError("not a label")
    ((kind, value),) = content.items()
    if kind == "tuple" and isinstance(value, list):
        return tuple(from_json(part, depth + 1) for part in value)
    if kind == "int" and isinstance(value, str):
        return int(value)
    if kind == "bytes" and isinstance(value, str):
        return bytes.fromhex(value)
    if kind == "float" and isinstance(value, (int, float)):
        return float(value)
    if kind in ("str", "bool") and type(value).__name__ == kind:
        return value
    raise ValueError("not a label")


def check_can_be_saved(labels: Iterable[Hashable]) -> str:
    """Why a classifier with these labels could not be saved; empty if it can."""
    try:
        for label in labels:
            to_json(label)
    except InputError as error:
        return str(error)
    return ""
