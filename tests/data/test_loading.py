from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acr.data import ImageSet
from acr.data.catalog import CATALOG
from acr.data.inspect import check
from acr.data.listing import list_datasets
from acr.data.loading import load_dataset
from acr.data.sheets import draw, draw_views
from acr.data.splits import at_most, hold_out
from acr.data.views import Views
from acr.errors import InputError

LABELS = st.lists(st.integers(-3, 6), min_size=1, max_size=60).map(np.array)


@given(labels=LABELS, fraction=st.floats(0.01, 0.99), seed=st.integers(0, 5))
def test_a_hold_out_is_stratified_and_complete(labels: np.ndarray, fraction: float, seed: int) -> None:
    kept, out = hold_out(labels, fraction, seed, "test")
    assert sorted([*kept, *out]) == list(range(len(labels)))
    for label in np.unique(labels):
        n, held = (labels == label).sum(), (labels[out] == label).sum()
        assert held == min(max(1, round(n * fraction)), n - 1)


@given(labels=LABELS, few=st.integers(1, 5), more=st.integers(0, 5), seed=st.integers(0, 5))
def test_a_larger_choice_contains_the_smaller(labels: np.ndarray, few: int, more: int, seed: int) -> None:
    small, large = at_most(labels, few, seed, "a"), at_most(labels, few + more, seed, "a")
    assert set(small) <= set(large)
    for label in np.unique(labels):
        assert (labels[small] == label).sum() == min(few, (labels == label).sum())


def test_a_choice_of_one_class_does_not_hang_on_the_others() -> None:
    labels = np.repeat([0, 1, 2], 20)
    alone = np.flatnonzero(labels == 1)[at_most(labels[labels == 1], 5, 3, "a")]
    together = at_most(labels, 5, 3, "a")
    np.testing.assert_array_equal(together[labels[together] == 1], alone)


def test_subsets_are_seeded_and_recorded() -> None:
    first = load_dataset("split-digits", samples_per_class=5, test_samples_per_class=2, data_seed=1)
    again = load_dataset("split-digits", samples_per_class=5, test_samples_per_class=2, data_seed=1)
    other = load_dataset("split-digits", samples_per_class=5, test_samples_per_class=2, data_seed=2)
    assert set(first.train.counts().values()) == {5}
    assert set(first.test.counts().values()) == {2}
    np.testing.assert_array_equal(first.train.images, again.train.images)
    assert not np.array_equal(first.train.images, other.train.images)
    assert first.notes["train_samples_per_class"] == {"at_most": 5, "seed": 1}
    assert first.notes["images"] == {"train": 50, "test": 20}


def test_validation_comes_out_of_training_and_hides_the_test_set() -> None:
    whole, tuned = load_dataset("split-digits"), load_dataset("split-digits", validation_fraction=0.1)
    rows = {image.tobytes() for image in whole.train.images}
    train = {image.tobytes() for image in tuned.train.images}
    held = {image.tobytes() for image in tuned.test.images}
    assert train | held == rows
    assert not train & held
    assert not held & {image.tobytes() for image in whole.test.images}
    assert tuned.notes["validation"]["count"] == len(tuned.test)
    assert tuned.test.classes == whole.test.classes


@pytest.mark.parametrize(
    "wrong",
    [
        {"samples_per_class": 0},
        {"test_samples_per_class": -1},
        {"validation_fraction": 1.0},
        {"image_size": 2},
        {"validation_fraction": float("nan")},
    ],
)
def test_numbers_that_make_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        load_dataset("split-digits", **wrong)


def test_an_unknown_name_is_told_its_neighbour() -> None:
    with pytest.raises(InputError, match="Did you mean 'split-digits'"):
        load_dataset("split-digit")


def test_check_finds_duplicates_and_parts(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8), np.repeat([0, 1], 20)
    np.savez(tmp_path / "a.npz", train_x=images, train_y=labels, test_x=images[18:22], test_y=[0, 0, 1, 0])
    report = check(f"npz:{tmp_path / 'a.npz'}")
    assert report.ok
    assert report.facts["test images also in train"] == 4
    assert "4 test images are also training images, 1 of them with a different label" in report.warnings[0]


def test_check_of_a_whole_set_has_nothing_to_say() -> None:
    report = check("split-digits")
    assert report.ok
    assert report.warnings == []
    assert report.facts["classes"] == 10


def test_check_of_what_is_missing_is_an_error_not_a_crash(tmp_path: Path) -> None:
    report = check("split-cifar100", data_root=tmp_path)
    assert not report.ok
    assert "acr data fetch split-cifar100" in report.errors[0]
    with pytest.raises(InputError):
        check("split-cifar101")


def test_check_counts_missing_classes(tmp_path: Path) -> None:
    for split, each in (("train", 3), ("test", 1)):
        np.save(
            tmp_path / f"{split}_x.npy",
            np.random.default_rng(each).integers(0, 256, (9 * each, 32, 32, 3), dtype=np.uint8),
        )
        np.save(tmp_path / f"{split}_y.npy", np.repeat(np.arange(9), each))
    report = check("split-mini-imagenet", data_root=tmp_path)
    assert report.errors == ["91 of 100 classes are missing"]
    assert any("instead of 500" in warning for warning in report.warnings)
    assert any("mean" in warning for warning in report.warnings)


def test_a_sheet_shows_the_images() -> None:
    data = load_dataset("split-digits")
    sheet = draw(data, columns=30, tile=8)
    pixels = np.asarray(sheet)
    assert sheet.height > 10 * 8
    train = {image.tobytes() for image in data.train.images}
    left = sheet.width - 8 - 30 * 10
    first = np.ascontiguousarray(pixels[32:40, left : left + 8, 0])
    assert first.tobytes() in train


def test_a_sheet_with_a_row_a_task() -> None:
    data = load_dataset("split-digits", samples_per_class=1, test_samples_per_class=1)
    tasks = [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9)]
    assert draw(data, tasks=tasks).height < draw(data).height
    assert draw(data, tasks=tasks, split="test", columns=3).width < draw(data, tasks=tasks).width
    with pytest.raises(InputError):
        draw(data, split="both")


def test_the_list_knows_what_is_here(tmp_path: Path) -> None:
    (tmp_path / "tiny-imagenet-200").mkdir()
    rows = {row.name: row for row in list_datasets(data_root=tmp_path)}
    assert set(rows) == set(CATALOG)
    assert rows["split-digits"].present
    assert rows["split-tiny-imagenet"].where == tmp_path / "tiny-imagenet-200"
    assert rows["split-cifar100"].present is False
    assert rows["split-cifar100"].next_step == "acr data fetch split-cifar100"
    assert rows["folder:PATH"].present is None


def test_listing_imports_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys; from acr.data.listing import list_datasets; list_datasets(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_catalog_is_consistent() -> None:
    for spec in CATALOG.values():
        if spec.classes and spec.tasks:
            assert spec.classes % spec.tasks == 0
        assert (spec.mean is None) == (spec.std is None)
        assert not spec.places or spec.download or spec.how_to_get


def test_what_is_not_cut_down_stays_mapped(tmp_path: Path) -> None:
    images, labels = np.zeros((6, 8, 8, 3), np.uint8), np.arange(6) % 2
    np.savez(tmp_path / "a.npz", train_x=images, train_y=labels, test_x=images, test_y=labels)
    assert isinstance(load_dataset(f"npz:{tmp_path / 'a.npz'}").train.images, np.memmap)
    assert isinstance(load_dataset(f"npz:{tmp_path / 'a.npz'}").train, ImageSet)


def test_no_view_on_the_sheet_is_empty():
    """Every view of a digit shows ink and ground; its tiles lie where those of the stored images do."""
    data = load_dataset("split-digits")
    sheet = np.asarray(draw_views(data, Views.for_side(8, flip=False), columns=10).convert("L"))
    tiles = sheet[32:, -(8 + 10 * 50) : -8]
    for row in range(4):
        for column in range(10):
            tile = tiles[row * 50 : row * 50 + 48, column * 50 : column * 50 + 48]
            assert int(tile.max()) - int(tile.min()) > 25, (row, column)
