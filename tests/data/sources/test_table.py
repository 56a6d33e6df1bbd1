"""`csv:PATH`: the same images as `folder:PATH`, named one by one."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from pictures import picture, save

from acr.data.catalog import find
from acr.data.inspect import check
from acr.data.loading import load_dataset
from acr.data.readers import decoding
from acr.data.sources.build import HOLD_OUT
from acr.errors import InputError


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three classes of five images, in a folder that also holds the table of them."""
    root = tmp_path / "photos"
    for number, name in enumerate(("class10", "class2", "bird")):
        for i in range(5):
            save(root / name / f"{i}.png", picture(10 * number + i))
    return listed(root)


def listed(root: Path, order: int = 0) -> Path:
    """Write the table of a folder of class folders, its rows in a random order; returns the folder."""
    rows = [f"{path.relative_to(root).as_posix()},{path.parent.name}" for path in sorted(root.rglob("*.png"))]
    np.random.default_rng(order).shuffle(rows)
    (root / "images.csv").write_text("\n".join(["path,label", *rows, ""]))
    return root


def added(photos: Path, *lines: str) -> None:
    with (photos / "images.csv").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_it_is_the_folder_s_data_set(photos: Path) -> None:
    ours, theirs = load_dataset(f"csv:{photos / 'images.csv'}"), load_dataset(f"folder:{photos}")
    for mine, other in ((ours.train, theirs.train), (ours.test, theirs.test)):
        np.testing.assert_array_equal(mine.images, other.images)
        np.testing.assert_array_equal(mine.labels, other.labels)
        assert mine.class_names == other.class_names
    assert ours.notes["holdout"] == theirs.notes["holdout"]
    assert ours.fingerprint == theirs.fingerprint
    assert ours.notes["location"] == str(photos / "images.csv")


def test_the_order_of_the_rows_does_not_matter(photos: Path) -> None:
    before = load_dataset(f"csv:{photos / 'images.csv'}").fingerprint
    listed(photos, order=1)
    assert load_dataset(f"csv:{photos / 'images.csv'}").fingerprint == before


def test_parts(tmp_path: Path) -> None:
    lines = ["path,label,split"]
    for number, part in enumerate(("train", "test", "val")):
        for i, name in enumerate(("a", "b")):
            save(tmp_path / f"{part}{name}.png", picture(10 * number + i))
            lines.append(f"{part}{name}.png,{name},{part}")
    (tmp_path / "all.csv").write_text("\n".join(lines))
    (tmp_path / "val.csv").write_text("\n".join(line for line in lines if "test" not in line))
    (tmp_path / "train.csv").write_text("\n".join(line for line in lines if "train" not in line))
    for table, part in (("all", 1), ("val", 2)):
        data = load_dataset(f"csv:{tmp_path / table}.csv", image_size=12)
        assert "holdout" not in data.notes
        for i in range(2):
            np.testing.assert_array_equal(data.train.images[i], np.asarray(picture(i)).transpose(2, 0, 1))
            np.testing.assert_array_equal(data.test.images[i], np.asarray(picture(10 * part + i)).transpose(2, 0, 1))
    with pytest.raises(InputError, match=r"train\.csv has no rows with the split train, only test and val"):
        load_dataset(f"csv:{tmp_path / 'train.csv'}")


def test_numbers_are_labels_as_they_are(tmp_path: Path) -> None:
    lines = ["path,label"]
    for number in (7, 3, 10):
        for i in range(4):
            save(tmp_path / f"{number}-{i}.png", picture(10 * number + i))
            lines.append(f"{number}-{i}.png,{number}")
    (tmp_path / "images.csv").write_text("\n".join(lines))
    data = load_dataset(f"csv:{tmp_path / 'images.csv'}")
    assert data.train.classes == (3, 7, 10)
    assert data.test.counts() == dict.fromkeys((3, 7, 10), max(1, round(4 * HOLD_OUT)))


def test_broken_and_missing_files_stop_it_unless_they_are_skipped(photos: Path) -> None:
    (photos / "bird/0.png").write_bytes(b"no picture")
    added(photos, "bird/none.png,bird", "images.csv,bird")
    with pytest.raises(InputError, match=r"(?s)3 unreadable files in .*images\.csv:.*--skip-broken") as caught:
        load_dataset(f"csv:{photos / 'images.csv'}")
    assert "bird/none.png: No such file or directory" in str(caught.value)
    assert "bird/0.png: not an image format that is read" in str(caught.value)
    data = load_dataset(f"csv:{photos / 'images.csv'}", skip_broken=True)
    assert {name for name, _ in data.notes["skipped"]} == {"bird/0.png", "bird/none.png", "images.csv"}
    assert len(data.train) + len(data.test) == 14
    save(photos / "bird/none.png", picture(99))  # it is noticed when it appears
    again = load_dataset(f"csv:{photos / 'images.csv'}", skip_broken=True)
    assert len(again.train) + len(again.test) == 15
    assert len(check(f"csv:{photos / 'images.csv'}").errors) == 2


def test_a_file_that_is_named_twice_is_not_learned_twice(photos: Path) -> None:
    added(photos, "bird/0.png,bird")
    with pytest.raises(
        InputError, match=r"(?s)would be left out.*line 17: bird/0\.png was named before.*--skip-broken"
    ):
        load_dataset(f"csv:{photos / 'images.csv'}")
    data = load_dataset(f"csv:{photos / 'images.csv'}", skip_broken=True)
    assert len(data.train) + len(data.test) == 15
    assert data.notes["left_out"] == [["line 17", "bird/0.png was named before"]]


def test_files_elsewhere(photos: Path, tmp_path: Path) -> None:
    save(tmp_path / "elsewhere/one.png", picture(50))
    save(tmp_path / "elsewhere/two.png", picture(51))
    added(photos, f"{tmp_path}/elsewhere/one.png,bird", "../elsewhere/two.png,bird")
    data = load_dataset(f"csv:{photos / 'images.csv'}")
    assert len(data.train) + len(data.test) == 17
    assert {f"{tmp_path}/elsewhere/one.png", f"{tmp_path}/elsewhere/two.png"} < set(data.fingerprint.files)


def test_a_table_moved_with_its_images_is_the_same_data_set(photos: Path, tmp_path: Path) -> None:
    before = load_dataset(f"csv:{photos / 'images.csv'}").fingerprint
    shutil.move(photos, tmp_path / "moved")
    after = load_dataset(f"csv:{tmp_path / 'moved/images.csv'}").fingerprint
    assert after == before


def test_what_changed_is_named(photos: Path) -> None:
    before = load_dataset(f"csv:{photos / 'images.csv'}").fingerprint
    save(photos / "bird/3.png", picture(78))
    save(photos / "bird/new.png", picture(79))
    added(photos, "bird/new.png,bird")
    after = load_dataset(f"csv:{photos / 'images.csv'}").fingerprint
    assert before.differences(after) == "1 file changed: bird/3.png; 1 file added: bird/new.png"
    table = (photos / "images.csv").read_text()
    (photos / "images.csv").write_text(table.replace("bird/4.png,bird", "bird/4.png,class2"))
    relabelled = load_dataset(f"csv:{photos / 'images.csv'}").fingerprint
    assert after.differences(relabelled) == "1 file changed: bird/4.png"


def test_a_table_whose_paths_lead_nowhere_says_how_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "images.csv").write_text("path,label\nphotos/1.png,a\nphotos/2.png,b\n")
    with pytest.raises(InputError, match=r"None of the 2 files .*photos/1\.png \(line 2\).*relative to the folder of"):
        load_dataset(f"csv:{tmp_path / 'images.csv'}")


def test_a_path_without_its_kind_is_recognised(photos: Path) -> None:
    with pytest.raises(InputError, match=r"Did you mean csv:.*images\.csv\?"):
        find(str(photos / "images.csv"))


def test_several_processes_decode_it(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "elsewhere/one.png", picture(50))
    added(photos, f"{tmp_path}/elsewhere/one.png,bird")
    alone = load_dataset(f"csv:{photos / 'images.csv'}", data_cache=tmp_path / "alone").fingerprint
    monkeypatch.setattr(decoding, "FEW", 4)
    monkeypatch.setattr(decoding, "PART", 4)
    monkeypatch.setattr(decoding, "cores", lambda: 2)
    shared = load_dataset(f"csv:{photos / 'images.csv'}", data_cache=tmp_path / "shared").fingerprint
    assert shared == alone
