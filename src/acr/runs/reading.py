"""Reading the files of run folders, configs and recipes, wherever they come from: within bounds, or not at all.

Nothing here runs what it reads, follows a link in a run folder, waits for a pipe, or takes more memory than
:mod:`acr.runs.limits` allows. What is wrong is said in one sentence of an :class:`~acr.errors.InputError`.
"""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import yaml

from acr.errors import InputError, command, shown
from acr.runs import limits
from acr.runs.schema import SCHEMA
from acr.storage import files

RESULTS = "results.json"
REPAIR_RESULTS = (
    "Nothing was changed. Move the file away and run {command}, which writes it again from the last checkpoint; or "
    "start a new run beside it with --fresh."
)


def repair(folder: Path) -> str:
    """What to do about a damaged ``results.json`` in this folder."""
    return REPAIR_RESULTS.format(command=command("acr", "resume", folder))


# --- JSON ------------------------------------------------------------------------------------------------------------


def parse_json(text: str | bytes) -> Any:
    """The content of JSON text. ``ValueError`` if it is not JSON, or if a number in it is larger than any of ours.

    ``NaN``, which earlier versions wrote, is read as the float; what is written now has null there.

    >>> parse_json("[1, 2.5, null]")
    [1, 2.5, None]
    """
    try:
        return json.loads(text, parse_int=_whole, parse_float=_decimal, parse_constant=lambda name: math.nan)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > limits.DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


def _decimal(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number that is too large")
    return number


def json_text(content: Any, **layout: Any) -> str:
    """Content as JSON that every reader accepts: a number that is not known, or not finite, is null.

    >>> json_text({"acc": 0.5, "bwt": math.nan, "rows": [math.inf, 1]})
    '{"acc": 0.5, "bwt": null, "rows": [null, 1]}'
    """
    try:
        return json.dumps(content, allow_nan=False, **layout)
    except ValueError:  # rare, so only then is the content gone through
        return json.dumps(_known(content), allow_nan=False, **layout)


def _known(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items()}
    return [_known(item) for item in value] if isinstance(value, (list, tuple)) else value


def read_json(path: Path) -> dict[str, Any]:
    """The content of a JSON file of a run folder; an error if its schema is not the one that this version reads."""
    try:
        content = parse_json(files.read_bytes(path, limits.JSON_BYTES))
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from None
    except ValueError as error:
        why = "" if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)) else f" that can be read ({error})"
        advice = f" {repair(path.parent)}" if path.name == RESULTS else ""
        raise InputError(f"{path} is damaged: it is not JSON{why}.{advice}") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = shown(content.get("schema"), 20) if isinstance(content, dict) else None
        raise InputError(f"{path} has schema {found}; this version reads schema {SCHEMA}.")
    return content


# --- events ----------------------------------------------------------------------------------------------------------


def newest_lines(file: IO[bytes], start: int = 0, *, torn: bool = False) -> Iterator[bytes]:
    """The lines of an open file from ``start`` on, or of its newest part if there is more than is read.

    Lines that are longer than any event are left out. So is a last line without an end, which may still be written,
    unless ``torn``. The file's position is behind the last line that was given.
    """
    size = os.fstat(file.fileno()).st_size
    if size - start > limits.EVENTS_BYTES:
        start = size - limits.EVENTS_BYTES
        file.seek(start)
        start += _skip_line(file)
    file.seek(start)
    while start < size:
        line = file.readline(limits.EVENT_BYTES)
        if line.endswith(b"\n") or (torn and 0 < len(line) < limits.EVENT_BYTES):
            start += len(line)
            yield line
        elif len(line) == limits.EVENT_BYTES:
            start += len(line) + _skip_line(file)
        else:
            break
    file.seek(start)


def _skip_line(file: IO[bytes]) -> int:
    """Read to the end of a line, a piece at a time; returns the number of bytes passed over."""
    passed = 0
    while piece := file.readline(limits.EVENT_BYTES):
        passed += len(piece)
        if piece.endswith(b"\n"):
            break
    return passed


def parse_event(line: bytes) -> dict[str, Any] | None:
    """The event of a line; None if a crash cut it off, or if it is something else."""
    try:
        event = parse_json(line.decode(errors="replace"))
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


# --- arrays ----------------------------------------------------------------------------------------------------------


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an ``.npz`` file of a run folder, with a check of its schema. Pickled objects are refused."""
    try:
        with os.fdopen(files.open_regular(path), "rb") as file:
            check_arrays(file)
            file.seek(0)
            with np.load(file, allow_pickle=False) as stored:
                content = {name: stored[name] for name in stored.files}
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from None
    except Exception as error:  # zipfile, zlib and numpy each have errors of their own for a damaged file
        why = shown(str(error).partition(".")[0] or type(error).__name__).strip("'\"")  # numpy adds unsafe advice
        raise InputError(f"{path} is damaged, or not a file of this program: {why}.") from None
    schema = content.pop("schema", None)
    if schema is None or schema.shape != () or schema.dtype.kind not in "iu" or schema != SCHEMA:
        raise InputError(f"{path} has schema {str(schema)[:20]}; this version reads schema {SCHEMA}.")
    return content


def check_arrays(file: IO[bytes]) -> None:
    """``ValueError`` if an open ``.npz`` file would unpack to more than it may, or says more than it holds."""
    size = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if len(members) > limits.ARRAYS:
            raise ValueError(f"it has more than {limits.ARRAYS:,} arrays")
        unpacked = sum(member.file_size for member in members)
        allowed = min(limits.ARRAYS_BYTES, max(limits.ARRAYS_FREE, limits.ARRAYS_RATIO * size))
        if unpacked > allowed:
            raise ValueError(f"it would unpack to {files.in_bytes(unpacked)}, and may to {files.in_bytes(allowed)}")
        for member in members:
            with archive.open(member) as array:
                check_header(array, member.file_size)


def check_header(array: IO[bytes], size: int) -> None:
    """``ValueError`` if a ``.npy`` file of this size announces another amount of data than follows."""
    reading: Any = np.lib.format
    version = reading.read_magic(array)
    header = {(1, 0): reading.read_array_header_1_0, (2, 0): reading.read_array_header_2_0}.get(version)
    if header is None:
        raise ValueError("an array of a format that this program does not write")
    shape, _, dtype = header(array)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded")
    if math.prod(shape) * dtype.itemsize != size - array.tell():
        raise ValueError("an array is not as large as it says")


# --- YAML ------------------------------------------------------------------------------------------------------------


class BoundedLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which ends at the first bracket or indent that is too deep.

    It would refuse deep nesting itself, but only after it has gone through all levels again for each of them.
    """

    def fetch_flow_collection_start(self, kind: Any) -> None:
        """A bracket opens."""
        if self.flow_level >= limits.YAML_DEPTH:
            raise ValueError(TOO_DEEP)
        super().fetch_flow_collection_start(kind)

    def add_indent(self, column: int) -> bool:
        """A line is indented, or not; returns whether a level begins."""
        if len(self.indents) > 2 * limits.YAML_DEPTH:  # a list in a mapping has two
            raise ValueError(TOO_DEEP)
        return bool(super().add_indent(column))


TOO_DEEP = f"it is nested more than {limits.YAML_DEPTH} levels deep"


def read_yaml(path: Path, what: str, *, follow: bool = True) -> Any:
    """The content of a YAML file: mappings, lists, text, numbers and dates. Tags that make objects are refused.

    Args:
        path: the file.
        what: what it is, for messages, such as ``recipe``.
        follow: whether ``path`` may be a link; not in a run folder.
    """
    try:
        text = files.read_bytes(path, limits.YAML_BYTES, follow=follow).decode()
    except OSError as error:
        raise InputError(f"Cannot read the {what} {path}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a YAML file: {error}") from None
    try:
        loader = BoundedLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        check_tree(node)
        return loader.construct_document(node)
    except RecursionError:
        raise InputError(f"{path} is nested too deeply for a {what}.") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
        # PyYAML raises some of these itself, and lets others through from malformed dates, numbers and tags.
        raise InputError(f"{path} is not a YAML file that can be read: {shorten(str(error))}") from None


def check_tree(root: yaml.Node) -> None:
    """``ValueError`` if a document says more than a person writes: by aliases of aliases, depth or huge numbers."""
    known: dict[int, tuple[int, int]] = {}
    unfinished: set[int] = set()

    def measure(node: yaml.Node) -> tuple[int, int]:
        """Number of values below a node, where what an alias repeats counts each time, and how deep they are."""
        if isinstance(node, yaml.ScalarNode):
            if "int" in node.tag and len(re.sub(r"\W", "", node.value)) > limits.DIGITS:
                raise ValueError(f"a whole number of {len(node.value)} digits")
            return 1, 0
        if id(node) in unfinished:
            raise ValueError("an alias stands inside what it repeats")
        if id(node) not in known:
            unfinished.add(id(node))
            size, depth = 1, 1
            for part in node.value if isinstance(node, yaml.SequenceNode) else chain.from_iterable(node.value):
                values, levels = measure(part)
                size, depth = size + values, max(depth, levels + 1)
                if size > limits.YAML_VALUES:
                    raise ValueError(f"it has more than {limits.YAML_VALUES:,} values")
            if depth > limits.YAML_DEPTH:
                raise ValueError(TOO_DEEP)
            unfinished.remove(id(node))
            known[id(node)] = size, depth
        return known[id(node)]

    measure(root)


def shorten(text: str, longest: int = 300) -> str:
    """Text on one line, cut if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
