"""Reading the pickles in which CIFAR is published, without ever executing what a pickle asks for.

A pickle is a small program that may call any function it can name. This reader knows six names, and none of them is the
real function: each is a stand-in that accepts what an array of plain numbers needs and nothing else. Everything else is
refused, in an error that names it, before it is called.

A pickle can also ask for more than it holds, which Python's faster reader, written in C, grants: room for a memo of
2**31 entries, a dict key that contains itself 2**60 times over and takes that long to hash. So this is a subclass of
the slower reader: it reserves nothing in advance, keys are plain, and containers may not unfold without bound.
"""

from __future__ import annotations

import io
import math
import pickle
import re
import struct
from collections.abc import Callable, Sequence
from typing import IO, Any, ClassVar, NoReturn

import numpy as np

from acr.errors import InputError

MOST_KEYS = 10_000
"""Keys of dicts and members of sets in all; the dicts of CIFAR have five. Keys of equal hash take quadratic time."""
MOST_ITEMS = 10_000_000
"""Items that a pickle may unfold to, where containers occur more than once."""
DEEPEST = 20
"""Levels of containers inside each other."""
PLAIN = (bytes, bytearray, str, int, float, complex, set, frozenset, np.generic)


def load(file: IO[bytes] | bytes, where: str) -> Any:
    """The content of a pickle made of numpy arrays, lists, tuples, dicts, sets, bytes, text and numbers.

    Text from Python 2 is returned as bytes. ``where`` names the file in errors.
    """
    stream = io.BytesIO(file) if isinstance(file, bytes) else file
    try:
        return _Plain().convert(_Unpickler(stream, encoding="bytes").load())
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
            raise _Refused(f"it holds an array of type {_brief(code)}")
        self.dtype = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        text = order.decode("ascii") if isinstance(order, bytes) else order
        if text not in ("<", ">", "|", "=") or not isinstance(text, str):
            raise _Refused(f"it holds an array with the byte order {_brief(order)}")
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
    if not isinstance(shape, tuple) or len(shape) > 8 or not all(type(n) is int and 0 <= n < 1 << 48 for n in shape):
        raise _Refused(f"it holds an array of shape {_brief(shape)}")
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


def _brief(value: Any) -> str:
    """A value for a message. Containers are not shown: written out, one may be of any length."""
    return repr(value)[:40] if isinstance(value, (str, bytes, int, float)) else f"a {type(value).__name__}"


_Slow: Any = pickle._Unpickler
"""Python's reader in Python; what its type stubs leave out of it is used below."""


class _Unpickler(_Slow):
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(_Slow.dispatch)
    _keys_left = MOST_KEYS

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _KNOWN[module, name]
        except (KeyError, TypeError):
            raise _Refused(f"it asks for {_brief(module)}.{_brief(name)}".replace("'", "")) from None

    def persistent_load(self, pid: Any) -> NoReturn:
        raise _Refused("it refers to objects outside itself")

    def _check_keys(self, keys: Sequence[Any]) -> None:
        """Refuse keys that are not plain, and too many of them."""
        self._keys_left -= len(keys)
        if self._keys_left < 0:
            raise _Refused(f"its dicts and sets have more than {MOST_KEYS:,} keys")
        for key in keys:
            if key is not None and type(key) not in (str, bytes, int, float, bool):
                raise _Refused(f"it has {_brief(key)} as a key")

    def _extension(self) -> NoReturn:
        raise _Refused("it refers to objects outside itself")

    def _plain_item(self) -> None:
        self._check_keys(self.stack[-2:-1])
        _Slow.load_setitem(self)

    def _plain_items(self) -> None:
        self._check_keys(self.stack[0::2])
        _Slow.load_setitems(self)

    def _plain_dict(self) -> None:
        self._check_keys(self.stack[0::2])
        _Slow.load_dict(self)

    def _plain_members(self) -> None:
        self._check_keys(self.stack)
        _Slow.load_additems(self)

    def _plain_frozenset(self) -> None:
        self._check_keys(self.stack)
        _Slow.load_frozenset(self)

    def _bytes_that_can_change(self) -> None:
        """As the original, which however reserves what the pickle claims before it looks whether that much follows."""
        (size,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(size)))

    dispatch[pickle.SETITEM[0]] = _plain_item
    dispatch[pickle.SETITEMS[0]] = _plain_items
    dispatch[pickle.DICT[0]] = _plain_dict
    dispatch[pickle.ADDITEMS[0]] = _plain_members
    dispatch[pickle.FROZENSET[0]] = _plain_frozenset
    dispatch[pickle.BYTEARRAY8[0]] = _bytes_that_can_change
    for _code in (pickle.EXT1, pickle.EXT2, pickle.EXT4):
        dispatch[_code[0]] = _extension


class _Plain:
    """Puts arrays in place of their stand-ins, and refuses what is not plain data.

    A container that occurs in many places is converted once; all of them together may unfold to ``MOST_ITEMS``.
    """

    def __init__(self) -> None:
        self.done: dict[int, tuple[Any, int]] = {}

    def convert(self, value: Any) -> Any:
        """The content of a pickle as plain data."""
        return self._convert(value, 0)[0]

    def _convert(self, value: Any, depth: int) -> tuple[Any, int]:
        """The value, and the number of items that it unfolds to."""
        if depth > DEEPEST:
            raise _Refused("it is nested too deeply")
        if isinstance(value, _Array):
            if value.value is None:
                raise _Refused("it holds an array without content")
            return value.value, 1
        if not isinstance(value, (dict, list, tuple)):
            if value is None or isinstance(value, PLAIN):
                return value, 1
            raise _Refused(f"it holds a {type(value).__name__}")
        if id(value) not in self.done:
            # The content of the pickle stays alive while it is converted, so that no two containers have one id.
            self.done[id(value)] = self._container(value, depth)
        return self.done[id(value)]

    def _container(self, value: Any, depth: int) -> tuple[Any, int]:
        members = value.values() if isinstance(value, dict) else value
        if all(type(item) in (int, bytes, str, float) for item in members):  # the usual long lists of labels and names
            return value, len(value) + 1
        pairs = [self._convert(item, depth + 1) for item in members]
        items = 1 + sum(count for _, count in pairs)
        if items > MOST_ITEMS:
            raise _Refused(f"it unfolds to more than {MOST_ITEMS:,} items")
        converted = [item for item, _ in pairs]
        return (dict(zip(value, converted, strict=True)) if isinstance(value, dict) else type(value)(converted)), items
