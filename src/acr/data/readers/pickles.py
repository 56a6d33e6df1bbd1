"""Reading the pickles in which CIFAR is published, without ever executing what a pickle asks for.

A pickle is a small program that may call any function it can name. This reader knows six names, and none of them is the
real function: each is a stand-in that accepts what an array of plain numbers needs and nothing else. Everything else is
refused, in an error that names it, before it is called.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Callable
from typing import IO, Any, NoReturn

import numpy as np

from acr.errors import InputError


def load(file: IO[bytes] | bytes, where: str) -> Any:
    """The content of a pickle made of numpy arrays, lists, tuples, dicts, sets, bytes, text and numbers.

    Text from Python 2 is returned as bytes. ``where`` names the file in errors.
    """
    stream = io.BytesIO(file) if isinstance(file, bytes) else file
    try:
        return _without_stand_ins(_Unpickler(stream, encoding="bytes").load(), 0)
    except _Refused as error:
        raise InputError(
            f"{where} is refused: {error}. A data set has no need for that; do not trust this file."
        ) from error
    except Exception as error:  # a damaged pickle can fail in any way
        why = f"{type(error).__name__}: {error}"
        raise InputError(f"{where} is not a valid pickle ({why}). Download it again.") from error


class _Refused(Exception):
    pass


class _DType:
    """Stands in for ``numpy.dtype``: plain numbers, booleans and byte strings of a fixed width."""

    def __init__(self, code: Any, *_: Any) -> None:
        text = code.decode("ascii") if isinstance(code, bytes) else code
        if not isinstance(text, str) or not re.fullmatch(r"[<>|=]?(b1|[iu][1248]|f[248]|[SU][0-9]{1,5})", text):
            raise _Refused(f"it holds an array of type {code!r}")
        self.dtype = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        text = order.decode("ascii") if isinstance(order, bytes) else order
        if text not in ("<", ">", "|", "=") or not isinstance(text, str):
            raise _Refused(f"it holds an array with the byte order {order!r}")
        if any(part is not None for part in state[2:5]):
            raise _Refused("it holds an array of records")
        self.dtype = self.dtype.newbyteorder(text)  # type: ignore[arg-type]


class _Array:
    """Stands in for an array until its state is known."""

    value: np.ndarray[Any, Any] | None = None

    def __setstate__(self, state: Any) -> None:
        try:
            _, shape, dtype, fortran, content = state
        except (TypeError, ValueError):
            raise _Refused("it holds an array in an unknown form") from None
        self.value = _array(content, dtype, shape, "F" if fortran else "C")


class _Name:
    """What a pickle gets for a name that is known: it can be called, but not changed in any way."""

    __slots__ = ("_function",)
    _function: Callable[..., Any]

    def __init__(self, function: Callable[..., Any]) -> None:
        object.__setattr__(self, "_function", function)

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise _Refused("it tries to change a function")

    def __setstate__(self, state: Any) -> NoReturn:
        raise _Refused("it tries to change a function")


def _ndarray(*_: Any) -> NoReturn:
    raise _Refused("it makes an array in an unusual way")


def _reconstruct(kind: Any, *_: Any) -> _Array:
    if kind is not _KNOWN["numpy", "ndarray"]:
        raise _Refused("it makes an array of an unknown class")
    return _Array()


def _from_buffer(content: Any, dtype: Any, shape: Any, order: Any = "C") -> _Array:
    array = _Array()
    array.value = _array(content, dtype, shape, order)
    return array


def _scalar(dtype: Any, content: Any) -> Any:
    return _array(content, dtype, (), "C")[()]


def _array(content: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray[Any, Any]:
    if not isinstance(content, (bytes, bytearray)) or not isinstance(dtype, _DType) or order not in ("C", "F"):
        raise _Refused("it holds an array that is not made of plain numbers")
    if not isinstance(shape, tuple) or not all(isinstance(n, int) and n >= 0 for n in shape) or len(shape) > 8:
        raise _Refused(f"it holds an array of shape {shape!r}")
    if len(content) != math.prod(shape) * dtype.dtype.itemsize:
        raise _Refused("it holds an array whose shape does not fit its content")
    return np.frombuffer(content, dtype.dtype).reshape(shape, order=order)


def _encode(text: Any, encoding: Any = "latin1", *_: Any) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", b"latin1", b"latin-1"):
        raise _Refused("it encodes text in an unusual way")
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], _Name] = {
    ("numpy", "ndarray"): _Name(_ndarray),
    ("numpy", "dtype"): _Name(_DType),
    ("_codecs", "encode"): _Name(_encode),
}
for _core in ("numpy.core", "numpy._core"):  # the name before and after numpy 2
    _KNOWN[_core + ".multiarray", "_reconstruct"] = _Name(_reconstruct)
    _KNOWN[_core + ".multiarray", "scalar"] = _Name(_scalar)
    _KNOWN[_core + ".numeric", "_frombuffer"] = _Name(_from_buffer)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise _Refused(f"it asks for {module}.{name}") from None

    def persistent_load(self, pid: Any) -> NoReturn:
        raise _Refused("it refers to objects outside itself")


def _without_stand_ins(value: Any, depth: int) -> Any:
    """The content with arrays in place of their stand-ins; anything that is not plain data is refused."""
    if depth > 20:
        raise _Refused("it is nested too deeply")
    if isinstance(value, _Array):
        if value.value is None:
            raise _Refused("it holds an array without content")
        return value.value
    if isinstance(value, dict):
        return {key: _without_stand_ins(item, depth + 1) for key, item in value.items()}
    if type(value) in (list, tuple):
        if all(type(item) in (int, bytes, str, float) for item in value):  # the usual long lists of labels and names
            return value
        return type(value)(_without_stand_ins(item, depth + 1) for item in value)
    if value is None or isinstance(value, (bytes, bytearray, str, int, float, complex, set, frozenset, np.generic)):
        return value
    raise _Refused(f"it holds a {type(value).__name__}")
