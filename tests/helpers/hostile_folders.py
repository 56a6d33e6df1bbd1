"""Run folders, configs and recipes made to do harm: every file, every field, every kind of damage.

:func:`mutations` names endless ways to spoil a run folder, each made from a number, so that one that does harm can be
made again. :func:`everything_reads` is what must hold afterwards: the folder is read or refused with a sentence, and
the run beside it is shown whatever its neighbour is like.
"""

from __future__ import annotations

import io
import json
import os
import random
import zipfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import acr
from acr.errors import AcrError
from acr.report.compare import compare_runs
from acr.report.exports import write_csv
from acr.report.live.charts import live_panels, matrix_panel
from acr.report.live.dashboard import row_of
from acr.report.live.watch import Watch
from acr.report.page.render import render_all
from acr.report.wording import config_value
from acr.runs.reading import parse_event
from acr.runs.run import Run, attempts, find_runs, finished_run
from acr.training.checkpoint import Checkpoints

FILES = ("config.yaml", "results.json", "environment.json", "events.jsonl", "memory.npz", "confidence.npz",
         "samples.npz")  # fmt: skip
CHECKPOINT = ("manifest.json", "state.json", "tensors.safetensors")
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**18, 10**400, -(10**400), 0.5, -0.0, 1e308, -1e308, float("nan"),
    float("inf"), float("-inf"), "", "x", "²", "1", "\x1b[2J\x1b]0;title\x07", "\ud800", "\udcff", "\0", "<b>&'\"",
    "../..", "/", "[/red]", "a\nb", "x" * 10_000, [], [[]], {}, [None], [1, "a"], {"": None}, {"a": {"b": [1]}},
    [10**400],
    [[1, 2]], [[-1]], {"clean": {}}, ["\ud800"], {"\ud800": 1}, "NaN", "clean", "0/1", "²/³", [0.1] * 1000,
]  # fmt: skip
ARRAYS = [
    lambda: np.array(5), lambda: np.zeros((0,)), lambda: np.zeros((2, 3, 4, 5, 6), np.uint8),
    lambda: np.full(4, np.nan),
    lambda: np.array(["a", "\ud800x"[1:]]), lambda: np.zeros((3, 1, 8, 8), np.float64), lambda: np.array([2**62] * 7),
    lambda: np.zeros((1, 0, 0, 0), np.uint8), lambda: np.array([1 + 2j]), lambda: np.array([True, False]),
    lambda: np.zeros(3, dtype=[("a", "i4")]), lambda: np.array(["2020-01-01"], "datetime64[D]"),
    lambda: np.full(50, -1), lambda: np.arange(5) * -1e300,
]  # fmt: skip


def places(value: Any) -> list[tuple[Any, ...]]:
    """Every place inside a nested value. What was spoiled already may contain itself: each part is looked into once."""
    found: list[tuple[Any, ...]] = []
    ahead: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    seen: set[int] = set()
    while ahead:
        path, inner = ahead.pop()
        found.append(path)
        if id(inner) not in seen and isinstance(inner, (dict, list)):
            seen.add(id(inner))
            items = inner.items() if isinstance(inner, dict) else enumerate(inner)
            ahead += [((*path, key), item) for key, item in reversed(list(items))]
    return found


def spoil(rng: random.Random, content: Any) -> Any:
    """Nested content with one to three of its values replaced, removed, renamed or repeated."""
    content = json.loads(json.dumps(content))
    for _ in range(rng.randint(1, 3)):
        where = [place for place in places(content) if place]
        if not where:
            return deepcopy(rng.choice(ODD))
        depth = rng.randint(1, max(map(len, where)))  # deep places outnumber the others by far
        *path, last = rng.choice([place for place in where if len(place) <= depth])
        inner = content
        for key in path:
            inner = inner[key]
        how = rng.random()
        if how < 0.6:
            inner[last] = deepcopy(rng.choice(ODD))  # or a later change would be one of ODD, for good
        elif how < 0.75:
            del inner[last]
        elif isinstance(inner, list):
            inner.insert(rng.randint(0, len(inner)), inner[last])
        else:
            inner[rng.choice(["clean", "0/1", "\ud800", "", "mean_²", "stage"])] = inner[last]
    return content


def dump_yaml(content: Any) -> bytes:
    """YAML of anything; what PyYAML cannot write is written as JSON, which is YAML as well."""
    try:
        return yaml.safe_dump(content, sort_keys=False).encode(errors="surrogatepass")
    except (yaml.YAMLError, UnicodeError, ValueError):
        return dump_json(content)


def dump_json(content: Any) -> bytes:
    """JSON of anything, also of numbers too long for text."""
    import sys

    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(content).encode()
    finally:
        sys.set_int_max_str_digits(before)


def bytes_spoiled(rng: random.Random, content: bytes) -> bytes:
    """Bytes cut, flipped, repeated, nested, or replaced by others."""
    kind = rng.randrange(7)
    if kind == 0:
        return rng.randbytes(rng.choice([0, 1, 17, 300]))
    if kind == 1:
        return content[: rng.randrange(len(content) + 1)]
    if kind == 2:
        return rng.choice([b"[", b'{"a":', b"- ", b"? ", b'{"event":"step","x":[', b"&a [*a,", b"\n", b"\0"]) * 3000
    if kind == 3:
        return content * 2
    if kind == 4:
        return content.replace(b"1", rng.choice([b"9" * 400, b"-1", b"1e999", b"NaN", b'"\\ud800"', b"\xff"]), 3)
    spoiled = bytearray(content or b"x")
    for _ in range(rng.randint(1, 20)):
        spoiled[rng.randrange(len(spoiled))] = rng.randrange(256)
    return bytes(spoiled)


def npz_spoiled(rng: random.Random, path: Path) -> bytes:
    """An ``.npz`` file whose arrays are not what they should be, or which is a bomb."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    kind = rng.randrange(4)
    name = rng.choice(sorted(arrays))
    if kind == 0:
        arrays[name] = rng.choice(ARRAYS)()
    elif kind == 1:
        del arrays[name]
    elif kind == 2:
        arrays[rng.choice(["mean_x", "mean_²", "mean_99", "a/b", "variance_0", "confidence_mean"])] = rng.choice(
            ARRAYS
        )()
    else:
        return bomb()
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def bomb(size: int = 80 << 20) -> bytes:
    """A small ``.npz`` file that would unpack to this many bytes of zeros."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("images.npy", "w") as array:
        np.lib.format.write_array_header_1_0(array, {"descr": "|u1", "fortran_order": False, "shape": (size,)})
        for _ in range(size >> 20):
            array.write(bytes(1 << 20))
    return buffer.getvalue()


def in_its_place(rng: random.Random, path: Path, outside: Path) -> str:
    """Put something else where a file was: a link, a pipe, a folder, nothing. Returns which."""
    kind = rng.choice(["link", "dangling", "loop", "fifo", "folder", "nothing", "device"])
    path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "dangling":
        path.symlink_to(outside.with_name("none"))
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    return kind


def spoil_folder(number: int, folder: Path, outside: Path) -> str:
    """Spoil one file of a run folder in the way of this number; returns what was done, for messages."""
    rng = random.Random(number)
    name = rng.choice([*FILES, *FILES[:4], *(f"checkpoint/step-000000000002/{part}" for part in CHECKPOINT)])
    path = folder / name
    how = rng.random()
    if how < 0.15:
        return f"{name}: {in_its_place(rng, path, outside)}"
    content = path.read_bytes() if path.exists() else b""
    if name.endswith(".npz") and path.exists() and how < 0.7:
        path.write_bytes(npz_spoiled(rng, path))
    elif name.endswith(".yaml") and how < 0.75:
        path.write_bytes(dump_yaml(spoil(rng, yaml.safe_load(content))))
    elif name.endswith(".json") and how < 0.75:
        path.write_bytes(dump_json(spoil(rng, json.loads(content))))
    elif name.endswith(".jsonl") and how < 0.75:
        lines = content.splitlines()
        for _ in range(rng.randint(1, 10)):
            place = rng.randrange(len(lines))
            event = parse_event(lines[place])
            lines[place] = dump_json(spoil(rng, event)) if event and rng.random() < 0.8 else rng.randbytes(30)
        path.write_bytes(b"\n".join(lines) + b"\n")
    else:
        path.write_bytes(bytes_spoiled(rng, content))
    return name


def everything_reads(folder: Path, good: Path) -> list[str]:
    """Read a spoiled folder in every way there is, beside a good one. Only sentences may come of it, and the good run
    is shown by all. Returns the sentences."""
    run, other = Run(folder), Run(good)
    said: list[str] = []

    def attempt(read: Any) -> None:
        try:
            read()
        except AcrError as error:
            said.append(str(error))

    for read in (
        lambda: acr.load_run(folder).config, lambda: run.finished, lambda: run.summary(), lambda: run.environment,
        lambda: list(run.events()), lambda: [run.threads, run.threads_before], lambda: run.accuracy,
        lambda: run.summary(other), lambda: other.summary(run), lambda: run.calibration_error(),
        lambda: [run.arrays(name) for name in ("memory.npz", "confidence.npz", "samples.npz")],
        lambda: compare_runs(other, run), lambda: compare_runs(run, other),
        lambda: finished_run(folder), lambda: attempts(folder),
        lambda: Checkpoints(folder / "checkpoint", "run").load(),
    ):  # fmt: skip
        attempt(read)
    gathered, page = render_all(find_runs(folder, good))
    assert good in [shown.folder for shown in gathered.runs], "the good run is not in the report"
    assert page.encode(errors="backslashreplace")
    out = folder.parent / "csv"
    write_csv(gathered, out)
    live = Watch([folder.parent]).look()
    assert [run.state for run in live if run.folder == good] == ["finished"]
    rows = [row_of(run) for run in live]
    panels = [live_panels(live), *(matrix_panel(run) for run in live)]
    text = json.dumps(
        [rows, panels, [list(map(config_value, run.values.values())) for run in live]], allow_nan=False, default=str
    )  # as it is sent
    text.encode()
    assert all(character.isprintable() for row in rows for cell in row.values() for character in str(cell))
    assert all(len(sentence) < 3000 for sentence in said)
    return said
