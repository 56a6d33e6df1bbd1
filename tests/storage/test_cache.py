import errno
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acr.errors import AcrError
from acr.storage import cache
from acr.storage.cache import Entry, Writer, open_or_build

KEY = {"files": "abc", "size": 32, "version": [1, 2]}


def build(writer: Writer) -> None:
    pixels = writer.create("images", (5, 3, 4, 4), np.uint8)
    pixels[:] = np.arange(240, dtype=np.uint8).reshape(5, 3, 4, 4)
    writer.save("labels", np.arange(5))
    writer.save("nothing", np.empty((0, 3)))
    writer.notes["names"] = ["a", "b"]


def opened(folder: Path, key: dict[str, object] = KEY) -> Entry:
    return open_or_build(folder, key, build, name="some set")


def test_built_once_then_mapped(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    assert (first.built, second.built) == (True, False)
    assert isinstance(second.arrays["images"], np.memmap)
    assert not second.arrays["images"].flags.writeable
    np.testing.assert_array_equal(second.arrays["images"].ravel(), np.arange(240))
    np.testing.assert_array_equal(second.arrays["labels"], np.arange(5))
    assert second.arrays["nothing"].shape == (0, 3)
    assert second.notes == {"names": ["a", "b"]}
    assert second.folder.name.startswith("some-set-")


def test_another_key_is_another_entry(tmp_path: Path) -> None:
    assert opened(tmp_path).folder != opened(tmp_path, {**KEY, "size": 64}).folder
    assert opened(tmp_path, dict(reversed(KEY.items()))).built is False


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_flipped_bit_is_noticed_and_mended(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("flip")
    entry = opened(folder)
    name = data.draw(st.sampled_from(["images.npy", "labels.npy", "nothing.npy", "meta.json"]))
    content = bytearray((entry.folder / name).read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    (entry.folder / name).write_bytes(content)
    again = opened(folder)
    assert again.built
    np.testing.assert_array_equal(again.arrays["images"].ravel(), np.arange(240))
    assert opened(folder).built is False


@pytest.mark.parametrize("name", ["images.npy", "labels.npy", "meta.json"])
@pytest.mark.parametrize("length", [0, 10, -1, None])
def test_a_file_cut_short_or_missing_is_noticed(tmp_path: Path, name: str, length: int | None) -> None:
    file = opened(tmp_path).folder / name
    if length is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:length])
    assert opened(tmp_path).built
    assert not opened(tmp_path).built


def test_another_format_is_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path)
    monkeypatch.setattr(cache, "FORMAT", cache.FORMAT + 1)
    assert opened(tmp_path).built


def test_a_builder_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(writer: Writer) -> None:
        build(writer)
        raise KeyError("no")

    with pytest.raises(KeyError):
        open_or_build(tmp_path, KEY, fail)
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []
    assert open_or_build(tmp_path, KEY, build).built


def test_what_a_killed_builder_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f".{opened(tmp_path).folder.name}.xyz.part"
    left.mkdir()
    (opened(tmp_path).folder / "images.npy").unlink()
    assert opened(tmp_path).built
    assert not left.exists()


def test_a_full_disk_is_told_plainly(tmp_path: Path) -> None:
    def full(writer: Writer) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(AcrError, match=r"disk is full.*--data-cache"):
        open_or_build(tmp_path, KEY, full)
    (tmp_path / "file").write_text("")
    with pytest.raises(AcrError, match="could not be written"):
        open_or_build(tmp_path / "file", KEY, build)


def test_space_is_taken_before_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full, raising=False)
    for fill in (build, lambda writer: writer.save("a", np.arange(5))):
        with pytest.raises(AcrError, match="disk is full"):
            open_or_build(tmp_path, KEY, fill)


def test_only_plain_arrays_are_kept(tmp_path: Path) -> None:
    entry = open_or_build(tmp_path, {}, lambda writer: (writer.save("n", 5), writer.save("t", np.array(["ä", "b"]))))
    assert (int(entry.arrays["n"]), entry.arrays["t"].tolist()) == (5, ["ä", "b"])
    with pytest.raises(ValueError, match="objects"):
        Writer(tmp_path).save("o", np.array([{}], dtype=object))


def test_an_error_of_the_source_is_not_called_the_caches(tmp_path: Path) -> None:
    def unreadable(writer: Writer) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/source/picture.png")

    with pytest.raises(PermissionError):
        open_or_build(tmp_path, KEY, unreadable)


SCRIPT = """
import sys, time
from pathlib import Path
import numpy as np
from acr.storage import cache
if sys.argv[2] == "unlocked":
    import filelock
    def refuse(*arguments, **named):
        raise OSError(38, 'no locks here')
    filelock.BaseFileLock.acquire = refuse
def build(writer):
    with open(Path(sys.argv[1]) / "log", "a") as log:
        log.write("built\\n")
    time.sleep(0.5)
    writer.save("a", np.arange(1000))
entry = cache.open_or_build(Path(sys.argv[1]), {"k": 1}, build)
print(int(entry.arrays["a"].sum()), entry.notes)
"""


@pytest.mark.parametrize(("mode", "builds"), [("locked", {1}), ("unlocked", {1, 2, 3})])
def test_processes_that_build_at_once(tmp_path: Path, mode: str, builds: set[int]) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), mode]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert {process.communicate()[0].strip() for process in processes} == {"499500 {}"}
    assert {process.returncode for process in processes} == {0}
    assert len((tmp_path / "log").read_text().splitlines()) in builds
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1


def test_a_damaged_entry_that_cannot_be_locked_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr("filelock.BaseFileLock.acquire", refuse)
    (opened(tmp_path).folder / "labels.npy").write_bytes(b"x")
    assert opened(tmp_path).built
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1


def test_meta_can_be_read_without_us(tmp_path: Path) -> None:
    meta = json.loads((opened(tmp_path).folder / "meta.json").read_text())
    assert meta["key"] == KEY
    assert set(meta["arrays"]) == {"images", "labels", "nothing"}


def test_array_names_stay_in_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot name"):
        Writer(tmp_path).save("../evil", np.zeros(1))
