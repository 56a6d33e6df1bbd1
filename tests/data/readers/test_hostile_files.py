"""Hostile images, arrays, pickles and archives: read, or refused by name; never a crash, a hang or all the memory."""

import io
import json
import os
import pickle
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hostile_files import png
from pictures import picture, save

from acr.data.images import ImageSet
from acr.data.inspect import check
from acr.data.loading import load_dataset
from acr.data.readers import pickles
from acr.data.readers.archives import Limits, read_members
from acr.data.readers.decoding import FORMATS, MOST_ASPECT, MOST_PIXELS, endings
from acr.errors import InputError
from acr.storage.workers import child_command

linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited as Linux does it")


def measured(function: str, count: int) -> dict:
    done = subprocess.run(child_command(f"hostile_files:{function}", str(count)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@linux
@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_images_are_read_or_refused(count: int) -> None:
    seen = measured("images", count)
    assert seen["tried"] > count
    assert seen["originals_read"] == seen["originals"] >= 30
    assert seen["bombs_read"] == 0
    assert seen["growth_mib"] < 400
    assert [r for r in seen["reasons"] if not r or "MemoryError" in r or "\n" in r] == []


@linux
@pytest.mark.parametrize("count", [150, pytest.param(5_000, marks=pytest.mark.slow)])
def test_arrays_pickles_and_archives_are_read_or_refused(count: int) -> None:
    seen = measured("containers", count)
    assert seen["tried"] == 3 * count
    assert all(seen[f"{kind} refused"] > 0 for kind in ("pickle", "npz", "archive"))
    assert seen["growth_mib"] < 200


def two_classes(root: Path) -> Path:
    for number, name in enumerate("ab"):
        for i in range(3):
            save(root / name / f"{i}.png", picture(10 * number + i))
    return root


def test_a_strip_of_one_pixel_is_refused_before_it_is_enlarged(tmp_path: Path) -> None:
    two_classes(tmp_path / "set")
    (tmp_path / "set/a/strip.png").write_bytes(png(1, 2_000_000, b"\0\0" * 2_000_000, colour=0))
    with pytest.raises(InputError, match=rf"strip\.png: it has 1 x 2,000,000 pixels; one side may be {MOST_ASPECT}"):
        load_dataset(f"folder:{tmp_path / 'set'}")
    assert len(load_dataset(f"folder:{tmp_path / 'set'}", skip_broken=True).train) == 4
    strip = np.zeros((1, 1, 2_000), np.uint8)
    with pytest.raises(InputError, match="one side may be"):
        ImageSet.from_dataset([(strip[0], 0)], image_size=32)


def test_an_image_of_too_many_pixels_is_named(tmp_path: Path) -> None:
    two_classes(tmp_path / "set")
    side = int(MOST_PIXELS**0.5) + 1
    (tmp_path / "set/a/big.png").write_bytes(png(side, side))
    with pytest.raises(InputError, match=r"a/big\.png: it has 8,193 x 8,193 pixels; at most 67 million are read"):
        load_dataset(f"folder:{tmp_path / 'set'}")


def test_only_formats_that_people_bring_are_read(tmp_path: Path) -> None:
    assert FORMATS == ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM")
    assert {".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm"} <= endings()
    assert not {".eps", ".psd", ".fli", ".icns", ".heic", ".avif", ".tga", ".pdf"} & endings()
    two_classes(tmp_path / "set")
    picture(1).save(tmp_path / "set/a/other.png", "TGA")
    with pytest.raises(InputError, match=r"a/other\.png: not an image format that is read"):
        load_dataset(f"folder:{tmp_path / 'set'}")


@pytest.mark.parametrize("kind", ["folder", "npz"])
def test_pipes_do_not_hang_us(tmp_path: Path, kind: str) -> None:
    two_classes(tmp_path / "set")
    if kind == "npz":
        np.save(tmp_path / "set/labels.npy", np.arange(4) % 2)
        os.mkfifo(tmp_path / "set/images.npy")
        with pytest.raises(InputError, match=r"images\.npy.*not a regular file"):
            load_dataset(f"npz:{tmp_path / 'set'}")
        return
    os.mkfifo(tmp_path / "set/a/pipe.png")
    (tmp_path / "set/a/device.png").symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"(?s)device\.png: is not a regular file.*pipe\.png: is not a regular file"):
        load_dataset(f"folder:{tmp_path / 'set'}")
    (tmp_path / "set/a/device.png").unlink()
    (tmp_path / "set/a/pipe.png").unlink()
    (tmp_path / "set/a/link.png").symlink_to(tmp_path / "set/b/0.png")
    data = load_dataset(f"folder:{tmp_path / 'set'}")
    assert len(data.train) + len(data.test) == 7, "links to files are followed"


@pytest.mark.parametrize("claim", [(10**12,), (10**6, 10**3, 10**3), (2**62, 2**62)])
def test_an_array_that_claims_more_than_it_holds_is_refused(tmp_path: Path, claim: tuple[int, ...]) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": claim})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("images.npy", header.getvalue() + b"\0" * 100)
        archive.writestr("labels.npy", header.getvalue())
    with pytest.raises(InputError, match="claims the shape"):
        load_dataset(f"npz:{tmp_path / 'a.npz'}")


def nested(levels: int, width: int) -> bytes:
    """A pickle of a list that holds itself ``width`` times over at each of the levels."""
    value: list = [0]
    for _ in range(levels):
        value = [value] * width
    return pickle.dumps({b"data": value})


def deep_key(levels: int) -> bytes:
    """A pickle of a dict whose key is a tuple that holds itself twice at every level: to hash it takes 2**levels."""
    return b"\x80\x02}K\x01" + b"2\x86" * levels + b"K\x01s."


BOMBS = {
    "a memo of 2**31 entries": b"\x80\x02]r\xff\xff\xff\x7f.",
    "a memo by text": b"(lp4294967290\n.",
    "bytes that do not follow": b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x0f.",
    "text that does not follow": b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x0f.",
    "a frame that does not follow": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x0f.",
    "shared lists": nested(18, 50),
    "a key that unfolds": deep_key(200),
    "a key that is deep": b"\x80\x02}K\x01" + b"\x85" * 300_000 + b"K\x01s.",
    "a member that unfolds": b"\x80\x04\x8f(K\x01" + b"2\x86" * 200 + b"\x90.",
    "a frozen set": b"\x80\x04(K\x01" + b"2\x86" * 200 + b"\x91.",
    "many keys": pickle.dumps({number * (2**61 - 1): 0 for number in range(20_000)}),
    "a deep list": b"\x80\x02" + b"]" * 300_000 + b"a" * 299_999 + b".",
    "a shape that unfolds": b"\x80\x02cnumpy.core.numeric\n_frombuffer\n(C\0cnumpy\ndtype\nX\x02\0\0\0u1\x85RK\x01"
    + b"2\x86" * 200 + b"X\x01\0\0\0CtR.",
    "an extension": b"\x80\x02\x82\x01.",
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_pickles_that_ask_for_more_than_they_hold(bomb: str) -> None:
    """With the reader in C, some of these took 32 GB, some a lifetime, and some killed the process."""
    if "memo" in bomb:  # nothing but a large number behind an empty list
        assert pickles.load(BOMBS[bomb], "the file") == []
        return
    with pytest.raises(InputError, match="the file") as refused:
        pickles.load(BOMBS[bomb], "the file")
    assert len(str(refused.value)) < 400


def test_labels_that_unfold_are_refused(tmp_path: Path) -> None:
    names = {b"fine_label_names": [b"x"] * 100}
    shared = [[[0] * 1000] * 1000] * 1000
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for file in ("train", "test"):
        batch = {b"data": np.zeros((4, 3072), np.uint8), b"fine_labels": shared if file == "train" else [0, 1, 2, 3]}
        (folder / file).write_bytes(pickle.dumps(batch))
    (folder / "meta").write_bytes(pickle.dumps(names))
    with pytest.raises(InputError, match=r"labels are not a list of numbers|unfolds"):
        load_dataset("split-cifar100", data_root=tmp_path)


def test_a_member_that_is_too_large_is_not_read_into_memory(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train", b"\0" * 100_000)
    with pytest.raises(InputError, match="'train' is larger"):
        read_members(tmp_path / "a.zip", lambda name: True, Limits(member_bytes=99_999))


def test_classes_and_files_that_would_vanish_are_named(tmp_path: Path) -> None:
    root = two_classes(tmp_path / "set")
    for i in range(3):
        (root / "zebra").mkdir(exist_ok=True)
        (root / f"zebra/{i}.heic").write_bytes(b"x")
        (root / f"a/{i}.HEIC").write_bytes(b"x")
    (root / "empty").mkdir()
    (root / "a/notes.txt").write_text("expected")
    with pytest.raises(InputError, match="--skip-broken") as refused:
        load_dataset(f"folder:{root}")
    text = str(refused.value)
    assert "zebra: a class without images: 3 .heic files, none of which is an image" in text
    assert "empty: a class without images: it is empty" in text
    assert "a: files that are not read: 3 .heic files" in text
    assert "notes" not in text
    assert sum("class without images" in error for error in check(f"folder:{root}").errors) == 2
    data = load_dataset(f"folder:{root}", skip_broken=True)
    assert list(data.train.class_names.values()) == ["a", "b"]
    assert len(data.notes["left_out"]) == 3
    with pytest.raises(InputError, match=r"(?s)empty.*skip_broken=True"):
        ImageSet.from_folder(root)


def test_a_test_folder_without_images_does_not_vanish(tmp_path: Path) -> None:
    root = two_classes(tmp_path / "set/train").parent
    (root / "test/a").mkdir(parents=True)
    (root / "test/a/1.heic").write_bytes(b"x")
    with pytest.raises(InputError, match=r"test: a class without images: 1 \.heic file"):
        load_dataset(f"folder:{root}")


def test_a_class_none_of_whose_files_can_be_read_is_named_by_the_check(tmp_path: Path) -> None:
    root = two_classes(tmp_path / "set")
    (root / "c").mkdir()
    (root / "c/0.png").write_bytes(b"no picture")
    assert "no file of these classes can be read: c" in check(f"folder:{root}").errors
