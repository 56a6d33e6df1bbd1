"""Images of one's own, as messy as they come."""

import os
from pathlib import Path

import numpy as np
import pytest
from pictures import picture, save
from PIL import Image

from acr.data.inspect import check
from acr.data.loading import load_dataset
from acr.data.readers.file_tree import natural
from acr.data.sources.folder import parts
from acr.errors import InputError


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    """Unequal classes, odd formats, files that are none, and three broken ones."""
    root = tmp_path / "my pictures"
    for i in range(12):
        save(root / f"class10/{i}.jpg", picture(i, (40, 30)))
    for i in range(5):
        save(root / f"class2/deeper/{i}.png", picture(100 + i, (20, 50)))
    save(root / "class2/grey.png", picture(7, (33, 33), "L"))
    save(root / "Åpfel & Birnen/cmyk.jpg", Image.new("CMYK", (20, 20), (0, 200, 100, 0)))
    save(root / "Åpfel & Birnen/sixteen.png", Image.fromarray(np.full((20, 20), 40_000, np.uint16)))
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    save(root / "Åpfel & Birnen/moving.GIF", frames[0], save_all=True, append_images=frames[1:])
    save(root / "Åpfel & Birnen/see-through.webp", Image.new("RGBA", (20, 20), (1, 2, 3, 100)))
    (root / "class2/notes.txt").write_text("no picture")
    (root / "class2/.DS_Store").write_bytes(b"x")
    whole = (root / "class10/0.jpg").read_bytes()
    (root / "class10/cut.jpg").write_bytes(whole[: len(whole) // 2])
    (root / "class10/empty.png").write_bytes(b"")
    (root / "class2/text.bmp").write_text("no picture")
    return root


BROKEN = {"class10/cut.jpg", "class10/empty.png", "class2/text.bmp"}


def test_broken_files_stop_it_by_name(messy: Path) -> None:
    with pytest.raises(InputError, match=r"(?s)3 unreadable files.*--skip-broken") as caught:
        load_dataset(f"folder:{messy}")
    assert all(name in str(caught.value) for name in BROKEN)


def test_good_files_are_learned_when_broken_ones_are_skipped(messy: Path) -> None:
    data = load_dataset(f"folder:{messy}", skip_broken=True)
    assert list(data.train.class_names.values()) == ["class2", "class10", "Åpfel & Birnen"]
    total = {label: data.train.counts()[label] + data.test.counts()[label] for label in data.train.classes}
    assert total == {0: 6, 1: 12, 2: 4}
    assert data.train.image_shape == (3, 32, 32)
    assert {name for name, _ in data.notes["skipped"]} == BROKEN
    assert len(data.notes["holdout"]["files"]) == len(data.test) == 4
    assert data.notes["normalisation"].startswith("computed from 18")


def test_check_lists_the_broken_ones_as_errors(messy: Path) -> None:
    report = check(f"folder:{messy}", quiet=True)
    assert not report.ok
    assert {error.split(": ")[1] for error in report.errors} == BROKEN


def test_mended_files_are_noticed(messy: Path) -> None:
    load_dataset(f"folder:{messy}", skip_broken=True)
    for name in BROKEN:
        save(messy / name, picture(1))
    assert "skipped" not in load_dataset(f"folder:{messy}").notes


def test_the_hold_out_is_the_seed_s(messy: Path) -> None:
    def files(seed: int) -> list[str]:
        return load_dataset(f"folder:{messy}", skip_broken=True, data_seed=seed).notes["holdout"]["files"]

    assert files(0) == files(0)
    assert any(files(0) != files(seed) for seed in range(1, 5))


def test_train_and_test_folders(tmp_path: Path) -> None:
    for i in range(3):
        save(tmp_path / f"set/train/b/{i}.png", picture(i))
        save(tmp_path / f"set/train/a/{i}.png", picture(10 + i))
    save(tmp_path / "set/Test/a/1.png", picture(20))
    save(tmp_path / "set/Test/b/1.png", picture(21))
    save(tmp_path / "set/val/b/1.png", picture(22))
    data = load_dataset(f"folder:{tmp_path / 'set'}", image_size=12)
    assert data.train.counts() == {0: 3, 1: 3}
    np.testing.assert_array_equal(data.test.images[0], np.asarray(picture(20)).transpose(2, 0, 1))
    assert "holdout" not in data.notes


def test_a_class_called_train_is_a_class(tmp_path: Path) -> None:
    for number, name in enumerate(("bus", "car", "train")):
        for i in range(2):
            save(tmp_path / f"vehicles/{name}/{i}.png", picture(10 * number + i))
    assert list(load_dataset(f"folder:{tmp_path / 'vehicles'}").train.class_names.values()) == ["bus", "car", "train"]
    assert parts(["train/steam/1.png", "bus/red/1.png"]) == (None, None)
    assert parts(["train/a/1.png"]) == ("train", None)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["readme.txt"], "holds no image files"),
        (["1.png"], "no class folders"),
        (["a/1.png", "b/1.png", "b/2.png"], "these have only one: a"),
        (["train/a/1.png", "test/b/1.png"], r"test images but no training images \(1\): b"),
        (["train/a/1.png", "train/b/1.png", "test/b/1.png"], r"training images but no test images \(1\): a"),
    ],
)
def test_folders_that_make_no_sense(tmp_path: Path, files: list[str], words: str) -> None:
    for name in files:
        save(tmp_path / "set" / name, picture(1)) if name.endswith("png") else (
            (tmp_path / "set").mkdir(exist_ok=True),
            (tmp_path / "set" / name).write_text("x"),
        )
    with pytest.raises(InputError, match=words):
        load_dataset(f"folder:{tmp_path / 'set'}")


def test_a_folder_that_is_not_there() -> None:
    with pytest.raises(InputError, match="no folder"):
        load_dataset("folder:/no/such/place")
    with pytest.raises(InputError, match="has no path"):
        load_dataset("folder:")


def test_a_link_to_nothing_is_unreadable_until_it_leads_somewhere(tmp_path: Path) -> None:
    for i in range(4):
        save(tmp_path / f"set/a/{i}.png", picture(i))
        save(tmp_path / f"set/b/{i}.png", picture(10 + i))
    (tmp_path / "set/b/gone.png").symlink_to(tmp_path / "later.png")
    assert len(load_dataset(f"folder:{tmp_path / 'set'}", skip_broken=True).notes["skipped"]) == 1
    save(tmp_path / "later.png", picture(99))
    assert "skipped" not in load_dataset(f"folder:{tmp_path / 'set'}").notes


def test_names_that_are_no_text_are_told_in_a_printable_way(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for i in range(2):
            save(tmp_path / f"set/{name}/{i}.png", picture(i))
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/set/a/caf\xe9.png")).write_bytes(b"no picture")
    except OSError:
        pytest.skip("this file system only takes names that are text")
    with pytest.raises(InputError, match="caf") as caught:
        load_dataset(f"folder:{tmp_path / 'set'}")
    str(caught.value).encode()
    assert check(f"folder:{tmp_path / 'set'}").errors[0].encode()


def test_a_class_without_a_readable_image_is_told_with_its_files(tmp_path: Path) -> None:
    for i in range(2):
        save(tmp_path / f"set/train/a/{i}.png", picture(i))
        save(tmp_path / f"set/train/b/{i}.png", picture(i + 5))
    save(tmp_path / "set/test/a/0.png", picture(20))
    (tmp_path / "set/test/b").mkdir()
    (tmp_path / "set/test/b/0.png").write_bytes(b"no picture")
    report = check(f"folder:{tmp_path / 'set'}")
    assert "test/b/0.png" in report.errors[0]


def test_folders_that_link_in_circles_end(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for i in range(2):
            save(tmp_path / f"set/{name}/{i}.png", picture(i))
    (tmp_path / "set/a/again").symlink_to(tmp_path / "set")
    data = load_dataset(f"folder:{tmp_path / 'set'}")
    assert len(data.train) + len(data.test) == 4


def test_natural_order_is_total() -> None:
    names = ["img12", "img2", "IMG1", "img", "2", "10", "", "a1b2", "a1b10", "²"]
    assert sorted(sorted(names), key=natural) == sorted(sorted(names, reverse=True), key=natural)
    assert sorted(["10", "9", "a"], key=natural) == ["9", "10", "a"]
