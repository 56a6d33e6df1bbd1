import json
import os
import warnings

import pytest
import torch

from acr.storage import files
from acr.training.checkpoint import CheckpointError, Checkpoints, clone_state, flatten, restore


def state(value=0):
    return {
        "network": {"weight": torch.full((2, 3), float(value)), "empty": torch.zeros(0, 4)},
        "counts": torch.arange(3, dtype=torch.int64),
        "bytes": torch.tensor([1, 255], dtype=torch.uint8),
        "by_number": {0: {"momentum_buffer": None}, 1: {"step": value}},
        "list": [1, 2.5, "text", None, True, [torch.ones(1)]],
        "nothing": {},
    }


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def test_flatten_and_restore():
    tensors = {}
    content = json.loads(json.dumps(flatten(state(3), tensors)))
    assert same(restore(content, tensors), state(3))
    with pytest.raises(TypeError, match="a/0 is object"):
        flatten({"a": [object()]}, {})


def test_clone_is_deep():
    original = state(1)
    copy = clone_state(original)
    original["network"]["weight"] += 5
    assert same(copy, state(1))


def test_save_load_and_keep(tmp_path):
    checkpoints = Checkpoints(tmp_path / "c", "run-1", keep=2)
    assert checkpoints.load() is None
    for step in (5, 10, 15):
        checkpoints.save(step, state(step))
    assert [path.name for path in checkpoints.folders()] == ["step-000000000015", "step-000000000010"]
    step, loaded = checkpoints.load()
    assert step == 15
    assert same(loaded, state(15))


@pytest.mark.parametrize("file", ["tensors.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["truncate", "flip", "delete", "empty"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, file, damage):
    checkpoints = Checkpoints(tmp_path, "run-1")
    checkpoints.save(1, state(1))
    path = checkpoints.save(2, state(2)) / file
    content = path.read_bytes()
    if damage == "delete":
        path.unlink()
    elif damage == "flip":
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :])
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "truncate" else b"")
    with pytest.warns(UserWarning, match=r"step-000000000002.*Falling back"):
        step, loaded = checkpoints.load()
    assert step == 1
    assert same(loaded, state(1))


def test_foreign_and_unreadable_checkpoints_are_named(tmp_path):
    Checkpoints(tmp_path, "another").save(1, state())
    with pytest.warns(UserWarning, match="belongs to another run"), pytest.raises(CheckpointError, match="--fresh"):
        Checkpoints(tmp_path, "run-1").load()
    assert (tmp_path / "step-000000000001").exists()


class Storage:
    """Fails, or cuts what is written, at the n-th operation."""

    def __init__(self, monkeypatch, fail_at, cut):
        self.count, self.fail_at, self.cut = 0, fail_at, cut
        for name in ("replace", "fsync", "mkdir", "unlink", "rmdir"):
            monkeypatch.setattr(os, name, self.wrap(getattr(os, name)))
        self.write_atomically = files.write_atomically
        monkeypatch.setattr(files, "write_atomically", self.write)

    def wrap(self, function):
        def call(*arguments, **named):
            self.step()
            return function(*arguments, **named)

        return call

    def step(self):
        self.count += 1
        if self.count >= self.fail_at:
            raise OSError(28, "No space left on device")

    def write(self, path, write):
        def cut(file):
            self.count += 1
            if self.count >= self.fail_at:
                if self.cut:
                    import io

                    whole = io.BytesIO()
                    write(whole)
                    file.write(whole.getvalue()[: len(whole.getvalue()) // 2])
                raise OSError(28, "No space left on device")
            write(file)

        self.write_atomically(path, cut)


@pytest.mark.parametrize("cut", [False, True])
def test_storage_that_fails_at_any_point_leaves_a_folder_that_resumes(tmp_path, cut):
    """From the n-th file operation on everything fails, for every n until a save gets through."""
    for fail_at in range(1, 200):
        folder = tmp_path / str(fail_at)
        checkpoints = Checkpoints(folder, "run-1", keep=1)
        checkpoints.save(1, state(1))
        with pytest.MonkeyPatch.context() as patch:
            storage = Storage(patch, fail_at, cut)
            try:
                checkpoints.save(2, state(2))
                failed = False
            except OSError:
                failed = True
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what is left is whole: nothing to warn of
            step, loaded = checkpoints.load()
        assert same(loaded, state(step))
        if not failed:
            assert step == 2
            assert storage.count < fail_at
            break
        checkpoints.save(3, state(3))  # the disk has room again
        assert checkpoints.load()[0] == 3
    else:
        pytest.fail("a save never got through")
    assert fail_at > 10
