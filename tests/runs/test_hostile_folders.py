"""Run folders from anywhere: damaged, foreign, old, or made to do harm. Read, or refused with a sentence."""

import json
import pickle
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import acr
from acr.errors import AcrError, InputError
from acr.runs.resolve import make_config, read_config_file
from acr.runs.run import find_runs
from acr.training.checkpoint import CheckpointError, Checkpoints

SMALL = {"method": "er", "epochs": 1, "width": 1, "samples_per_class": 8, "batch_size": 8, "buffer_size": 10,
         "ood_every": "never", "threads": 1}  # fmt: skip
FILES = ["config.yaml", "results.json", "environment.json", "events.jsonl", "memory.npz"]
CHECKPOINT_FILES = ["manifest.json", "state.json", "tensors.safetensors"]
many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run that tests copy and damage."""
    return acr.run(out=tmp_path_factory.mktemp("whole"), **SMALL).folder


@pytest.fixture
def folder(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "runs" / "run"))


def read_everything(folder):
    """All that the package reads from a run folder; what is wrong may only show as an AcrError."""
    run = acr.load_run(folder)
    readings = [
        lambda: run.config, lambda: run.finished, run.summary, lambda: list(run.events()), lambda: run.environment,
        lambda: [run.arrays(name) for name in ("memory.npz", "confidence.npz", "samples.npz")],
        lambda: [run.accuracy, run.accuracy_over("task"), run.calibration_error()],
        lambda: [found.folder for found in find_runs(folder.parent)],
    ]  # fmt: skip
    problems = []
    for read in readings:
        try:
            read()
        except AcrError as error:
            problems.append(str(error))
    assert all(len(problem) < 3000 for problem in problems)
    return problems


damages = st.one_of(
    st.tuples(st.just("bytes"), st.binary(max_size=200)),
    st.tuples(st.just("cut"), st.floats(0, 1)),
    st.tuples(st.just("flip"), st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1, max_size=8)),
    st.tuples(st.just("nest"), st.sampled_from([b"[", b'{"a":', b"- ", b"? "])),
    st.tuples(st.just("remove"), st.none()),
)


def damaged(content, damage):
    kind, how = damage
    if kind == "bytes":
        return how
    if kind == "cut":
        return content[: int(len(content) * how)]
    if kind == "nest":
        return how * 5_000
    changed = bytearray(content)
    for place, bits in how:
        if changed:
            changed[min(len(changed) - 1, int(place * len(changed)))] ^= bits
    return bytes(changed)


@many
@given(name=st.sampled_from(FILES), damage=damages)
def test_any_damage_is_read_or_refused(whole, name, damage):
    path = whole / name
    content = path.read_bytes()
    try:
        path.unlink() if damage[0] == "remove" else path.write_bytes(damaged(content, damage))
        if (whole / "config.yaml").exists():
            read_everything(whole)
        else:
            with pytest.raises(InputError, match="not a run folder"):
                acr.load_run(whole)
    finally:
        path.write_bytes(content)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 10**20), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)


def places(value, path=()):
    """Every place inside a nested value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


@many
@given(data=st.data())
def test_results_with_any_value_in_any_place(whole, data):
    """Valid JSON with the right schema, and one value replaced or removed: figures, or a sentence."""
    path = whole / "results.json"
    original = path.read_bytes()
    content = json.loads(original)
    where = data.draw(st.sampled_from([p for p in places(content) if p and p != ("schema",)]))
    inner = content
    for key in where[:-1]:
        inner = inner[key]
    if data.draw(st.booleans()):
        inner[where[-1]] = data.draw(json_values)
    else:
        del inner[where[-1]]
    try:
        path.write_text(json.dumps(content))
        read_everything(whole)
    finally:
        path.write_bytes(original)


@many
@given(name=st.sampled_from(CHECKPOINT_FILES), damage=damages)
def test_any_damage_to_a_checkpoint_falls_back_or_is_refused(tmp_path_factory, name, damage):
    folder = tmp_path_factory.mktemp("c")
    checkpoints = Checkpoints(folder, "run")
    checkpoints.save(1, {"weights": torch.ones(3), "step": 1})
    path = checkpoints.save(2, {"weights": torch.ones(3), "step": 2}) / name
    content = path.read_bytes()
    path.unlink() if damage[0] == "remove" else path.write_bytes(damaged(content, damage))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step, state = checkpoints.load()
    unharmed = path.exists() and path.read_bytes() == content
    assert step in ((2,) if unharmed else (1, 2) if name == "manifest.json" else (1,))  # a space in JSON says nothing
    assert state["step"] == step
    assert torch.equal(state["weights"], torch.ones(3))


@pytest.mark.parametrize(
    "state",
    [b"[" * 100_000, b'{"dict": ' * 900 + b"1" + b"}" * 900, b"[]", b"{}", b"null", b'{"tensor": "no such"}',
     b'{"tensor": []}', b'{"dict": [[[1], {"value": 1}]]}', b'{"dict": 5}', b'{"code": "import os"}'],
)  # fmt: skip
def test_a_forged_state_with_right_checksums_is_refused(tmp_path, state):
    import hashlib

    checkpoints = Checkpoints(tmp_path, "run")
    path = checkpoints.save(1, {"step": 1})
    (path / "state.json").write_bytes(state)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["checksums"]["state.json"] = hashlib.blake2b(state, digest_size=16).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.warns(UserWarning, match="step-"), pytest.raises(CheckpointError, match="cannot be understood"):
        checkpoints.load()


@many
@given(st.lists(st.one_of(st.binary(max_size=40), json_values.map(lambda v: json.dumps(v).encode())), max_size=8))
def test_any_events_file_gives_events_or_a_sentence(whole, lines):
    path = whole / "events.jsonl"
    original = path.read_bytes()
    try:
        path.write_bytes(b"\n".join([*original.splitlines()[:2], *lines]))
        problem, events = "", [{}, {}]
        try:
            events = list(acr.load_run(whole).events())
        except InputError as error:
            problem = str(error)
        assert "schema" in problem or len(events) >= 2
    finally:
        path.write_bytes(original)


@pytest.mark.parametrize("name", ["config.yaml", "results.json", "environment.json", "events.jsonl", "memory.npz"])
def test_files_of_another_schema_are_refused_with_a_reason(folder, name):
    path = folder / name
    if name.endswith(".npz"):
        with np.load(path) as file:
            arrays = {key: file[key] for key in file.files}
        np.savez(path, **{**arrays, "schema": np.array(99)})
    else:
        path.write_text(path.read_text().replace("schema: 1", "schema: 99").replace('"schema": 1', '"schema": 99'))
    assert any(f"{path} has" in problem and "schema 99" in problem for problem in read_everything(folder))


class Payload:
    """Would leave a file behind if it were ever unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_nothing_in_a_run_folder_can_run_code(folder, tmp_path):
    trace = tmp_path / "trace"
    payload = Payload(trace)
    np.savez(folder / "memory.npz", images=np.array([payload], dtype=object), schema=np.array(1))
    (folder / "confidence.npz").write_bytes(pickle.dumps(payload))
    np.save(tmp_path / "x.npy", np.array([payload], dtype=object))
    (folder / "samples.npz").write_bytes((tmp_path / "x.npy").read_bytes())
    for name in ("memory.npz", "confidence.npz", "samples.npz"):
        with pytest.raises(InputError, match="damaged, or not a file of this program"):
            acr.load_run(folder).arrays(name)

    path = max((folder / "checkpoint").glob("step-*")) / "tensors.safetensors"
    torch.save({"x": payload}, path)
    with pytest.raises(CheckpointError):
        _load_quietly(folder)
    assert not trace.exists()
    pickle.loads(pickle.dumps(payload)).close()  # the payload itself does work
    assert trace.exists()


def _load_quietly(folder):
    from acr.training.checkpoint import read

    identity = acr.load_run(folder).config.identity()
    newest = Checkpoints(folder / "checkpoint", identity).folders()[0]
    return read(newest, identity)


@pytest.mark.parametrize(
    "text",
    ["method: !!python/object/apply:os.system ['touch TRACE']", "!!python/object/new:os.system ['touch TRACE']",
     "seed: !!python/name:os.system", "a: !!python/object/apply:builtins.open ['TRACE', 'w']"],
)  # fmt: skip
def test_yaml_that_makes_objects_is_refused(folder, tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (folder / "config.yaml").write_text(f"schema: 1\n{text}\n")
    with pytest.raises(InputError, match=r"not a YAML file|must hold"):
        _ = acr.load_run(folder).config
    assert not (tmp_path / "TRACE").exists()


@pytest.mark.parametrize(
    "text",
    ["a: 2024-13-45", "a: !!timestamp x", "a: !!bool x", "a: !!int ''", "a: !!float x", "a: !!binary x", "? [1]\n: 2",
     "a: &x [*x]", "[" * 3000, "a: " + "9" * 5000, "ood_severities: 1-99999999", "buffer_size: ²", "seed: 0x", "=: =",
     "a: &a [1,1]\nb: &b [*a,*a]\nc: &c [*b,*b]", "schema: {}", "schema: 2", "schema: true", "schema: 1.0", "a: {b: 1}",
     "dataset: \"\\0\"", "out: \"\\0\"", "epochs: .nan", "learning_rate: .inf\nmethod: []"],
)  # fmt: skip
def test_odd_yaml_makes_a_config_or_a_sentence(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    problem = ""
    try:
        make_config({}, file=read_config_file(path))
    except InputError as error:
        problem = str(error)
    assert len(problem) < 3000


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.dates())


@many
@given(data=st.data())
def test_config_files_with_any_values_make_a_config_or_a_sentence(tmp_path_factory, data):
    names = list(make_config({}).flat())
    values = data.draw(
        st.dictionaries(st.sampled_from(names), st.one_of(scalars, st.lists(scalars, max_size=3)), max_size=4)
    )
    path = tmp_path_factory.mktemp("f") / "config.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    try:
        config = make_config({}, file=read_config_file(path))
    except InputError:
        return
    assert config.identity()


def test_names_in_a_run_do_not_lead_out_of_its_folder(tmp_path):
    """Whatever a data set is called, the run's folder lies directly in --out."""
    from acr.runs.writer import folder_name

    for name in ("folder:../../etc", "npz:/abs/x.npz", "folder:a/../../b", "folder:.."):
        config = make_config({"dataset": name, "out": tmp_path})
        path = config.out / folder_name(config)
        assert path.resolve().parent == tmp_path.resolve()
