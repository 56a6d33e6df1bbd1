import contextlib
import io
import pickle
import pickletools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from acr.data.readers import pickles
from acr.errors import InputError

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.binary(min_size=1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.binary(min_size=1), inner, max_size=4),
    max_leaves=12,
)


class Runs:
    """Unpickled by the ordinary reader, this creates a file."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> object:
        return self.call


@settings(max_examples=50, deadline=None)
@given(value=PLAIN, protocol=st.integers(2, 5))
def test_plain_values_come_back(value: object, protocol: int) -> None:
    assert pickles.load(pickle.dumps(value, protocol=protocol), "here") == value


@settings(max_examples=50, deadline=None)
@given(
    array=hnp.arrays(
        hnp.integer_dtypes(endianness="?")
        | hnp.unsigned_integer_dtypes(endianness="?")
        | hnp.floating_dtypes(endianness="?", sizes=(32, 64)),
        hnp.array_shapes(max_dims=3, max_side=4),
        elements=st.integers(0, 100),
    ),
    protocol=st.integers(0, 5),
    fortran=st.booleans(),
)
def test_arrays_come_back(array: np.ndarray, protocol: int, fortran: bool) -> None:
    array = np.asfortranarray(array) if fortran else array
    back = pickles.load(pickle.dumps({b"data": array, b"n": array.ravel()[0]}, protocol=protocol), "here")
    np.testing.assert_array_equal(back[b"data"], array)
    assert back[b"data"].dtype == array.dtype
    assert back[b"n"] == array.ravel()[0]


def test_text_of_python_2_comes_as_bytes() -> None:
    assert pickles.load(b"(dp0\nS'labels'\np1\n(lp2\nI3\nas.", "here") == {b"labels": [3]}


def test_a_pickle_that_runs_code_is_refused_and_named(tmp_path: Path) -> None:
    target = tmp_path / "ran"
    attacks = {
        "system": Runs(__import__("os").system, f"touch {target}"),
        "eval": Runs(eval, f"open({str(target)!r}, 'w')"),
        "open": Runs(open, str(target), "w"),
        "getattr": Runs(getattr, target, "touch"),
        "memmap": Runs(np.memmap, str(target), "uint8", "w+", 0, 10),
    }
    for name, attack in attacks.items():
        for protocol in range(6):
            with pytest.raises(InputError, match=name):
                pickles.load(pickle.dumps({b"data": attack}, protocol=protocol), "evil")
    assert not target.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04\x8c\x05numpy\x8c\x07ndarray\x93)R.",  # calls ndarray
        b"\x80\x02cnumpy\nndarray\n}(X\x01\x00\x00\x00aK\x01ub.",  # changes what a name stands for
        b"\x80\x02cnumpy\nndarray\nN}(X\x09\x00\x00\x00_functionK\x01u\x86b.",
        b"\x80\x02cnumpy\ndtype\n(X\x02\x00\x00\x00O8tR.",  # objects
        b"\x80\x02Pid\n.".replace(b"\x80\x02", b""),  # a persistent id
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR.",  # an array without state
    ],
)
def test_what_is_not_plain_data_is_refused(content: bytes) -> None:
    with pytest.raises(InputError):
        pickles.load(content, "evil")
    assert isinstance(pickles.load(pickle.dumps(np.zeros(2)), "fine"), np.ndarray)


def test_an_array_of_objects_is_refused() -> None:
    with pytest.raises(InputError, match="refused"):
        pickles.load(pickle.dumps(np.array([1, "a"], dtype=object), protocol=2), "odd")


def test_a_size_that_is_not_the_contents_is_refused() -> None:
    content = pickle.dumps(np.zeros(3, np.uint8), protocol=2)
    position = next(p for op, arg, p in pickletools.genops(content) if op.name == "BININT1" and arg == 3)
    with pytest.raises(InputError, match="whose shape does not fit its content"):
        pickles.load(content[:position] + b"K\xff" + content[position + 2 :], "odd")


@settings(max_examples=100, deadline=None)
@given(cut=st.integers(0, 300), noise=st.binary(min_size=1, max_size=4), at=st.integers(0, 300))
def test_damage_is_an_input_error_or_harmless(cut: int, noise: bytes, at: int) -> None:
    content = pickle.dumps({b"data": np.arange(60, dtype=np.uint8).reshape(6, 10), b"labels": [1, 2]}, protocol=2)
    for damaged in (content[:cut], content[:at] + noise + content[at + len(noise) :]):
        with contextlib.suppress(InputError):
            pickles.load(io.BytesIO(damaged), "damaged")
