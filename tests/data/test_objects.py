"""Data sets that are handed to `acr.run` as they are in Python."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pictures import picture

import acr
from acr.data.images import DataSet, ImageSet
from acr.data.loading import load_dataset
from acr.data.objects import store
from acr.data.sources import arrays
from acr.data.stream import Task
from acr.errors import InputError
from acr.report.groups import gather
from acr.runs.run import find_runs
from acr.training.trainer import Interrupted, Trainer

SMALL = {"method": "er", "epochs": 1, "width": 2, "buffer_size": 4, "batch_size": 4, "replay_size": 4,
         "ood_every": "never", "threads": 1, "tasks": 2}  # fmt: skip

IMAGES = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
LABELS = np.arange(20) % 4
NAMES = ["ant", "bee", "cat", "dog"]
TEST_IMAGES, TEST_LABELS = IMAGES[::-1][:8].copy(), LABELS[::-1][:8].copy()


class Vision:
    """A data set as torchvision has them: pairs, and the names of its classes."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, classes: list[str]) -> None:
        self.images, self.labels, self.classes = images, labels, classes

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return torch.from_numpy(self.images[index]).permute(2, 0, 1), int(self.labels[index])


class Face:
    """A data set as Hugging Face has them: dicts, and features that know the names."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, classes: list[str]) -> None:
        self.rows = [{"image": image, "label": int(label)} for image, label in zip(images, labels, strict=True)]
        self.features = {"image": None, "label": SimpleNamespace(names=classes)}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


class FaceDict(dict[str, Face]):
    """Several parts of one."""


def assert_holds(data: DataSet, names: list[str]) -> None:
    """The data set is made of all images above, each with its label, and a fifth of each class is held out."""
    known = {image.transpose(2, 0, 1).tobytes(): label for image, label in zip(IMAGES, LABELS, strict=True)}
    images = np.concatenate([data.train.images, data.test.images])
    labels = np.concatenate([data.train.labels, data.test.labels])
    assert {image.tobytes(): label for image, label in zip(images, labels, strict=True)} == known
    assert data.test.counts() == {0: 1, 1: 1, 2: 1, 3: 1}
    assert list(data.train.class_names.values()) == names


NUMBERS = ["0", "1", "2", "3"]
ONE_PART = {
    "arrays": ((IMAGES, LABELS), NUMBERS, "arrays"),
    "tensors": ((torch.from_numpy(IMAGES).permute(0, 3, 1, 2), torch.from_numpy(LABELS)), NUMBERS, "arrays"),
    "a column": ((IMAGES, LABELS[:, None]), NUMBERS, "arrays"),
    "text": ((IMAGES, [NAMES[label] for label in LABELS]), NAMES, "arrays"),
    "objects": ((IMAGES, np.array([NAMES[label] for label in LABELS], dtype=object)), NAMES, "arrays"),
    "image set": (ImageSet.from_arrays(IMAGES, LABELS), NUMBERS, "images"),
    "named classes": (ImageSet.from_arrays(IMAGES, LABELS, dict(enumerate(NAMES))), NAMES, "images"),
    "a list": (list(zip(IMAGES, LABELS, strict=True)), NUMBERS, "images"),
    "torchvision": (Vision(IMAGES, LABELS, NAMES), NAMES, "vision"),
    "Hugging Face": (Face(IMAGES, LABELS, NAMES), NAMES, "face"),
    "torch": (
        torch.utils.data.TensorDataset(torch.from_numpy(IMAGES), torch.from_numpy(LABELS)), NUMBERS, "tensordataset",
    ),
    "one part": ({"train": Face(IMAGES, LABELS, NAMES)}, NAMES, "face"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ONE_PART)
def test_every_kind_of_object(tmp_path: Path, kind: str) -> None:
    given, names, called = ONE_PART[kind]
    name = store(given, tmp_path)
    assert Path(name).name.startswith(f"{called}-")
    assert_holds(load_dataset(name), names)


TRAIN, TEST = (IMAGES, LABELS), (TEST_IMAGES, TEST_LABELS)
TWO_PARTS = {
    "arrays": (*TRAIN, *TEST),
    "dict": {"train": TRAIN, "test": TEST},
    "mixed": {"train": ImageSet.from_arrays(*TRAIN), "validation": Vision(*TEST, classes=NAMES)},
    "Hugging Face": FaceDict(train=Face(*TRAIN, NAMES), validation=Face(*TRAIN, NAMES), test=Face(*TEST, NAMES)),
    "data set": DataSet(
        "folder:a/b c", ImageSet.from_arrays(*TRAIN), ImageSet.from_arrays(*TEST), (0.5,) * 3, (1,) * 3
    ),
}


@pytest.mark.parametrize("kind", TWO_PARTS)
def test_parts_are_kept_apart(tmp_path: Path, kind: str) -> None:
    name = store(TWO_PARTS[kind], tmp_path)
    data = load_dataset(name)
    assert "holdout" not in data.notes
    for part, (images, labels) in ((data.train, TRAIN), (data.test, TEST)):
        np.testing.assert_array_equal(part.images, images.transpose(0, 3, 1, 2))
        np.testing.assert_array_equal(part.labels, labels)
    if kind == "data set":
        assert Path(name).name.startswith("b-c-")
        assert (data.mean, data.std) == ((0.5,) * 3, (1.0,) * 3), "its own constants are used"
    else:
        assert data.mean == pytest.approx(tuple(IMAGES.mean((0, 1, 2)) / 255))
    if kind in ("mixed", "Hugging Face"):
        assert list(data.train.class_names.values()) == NAMES


def test_text_labels_mean_the_same_in_both_parts(tmp_path: Path) -> None:
    some = TEST_LABELS > 1  # the test images have classes that would be numbered differently on their own
    given = (IMAGES, [NAMES[i] for i in LABELS], TEST_IMAGES[some], [NAMES[i] for i in TEST_LABELS[some]])
    with pytest.raises(InputError, match=r"training images but no test images \(2\): ant, bee"):
        load_dataset(store(given, tmp_path))
    given = (IMAGES, [NAMES[i] for i in LABELS], TEST_IMAGES, [NAMES[i] for i in TEST_LABELS])
    assert load_dataset(store(given, tmp_path)).test.labels.tolist() == TEST_LABELS.tolist()


def test_numbers_keep_their_values_and_names(tmp_path: Path) -> None:
    far = LABELS * 1_000_000_007 + 5
    names = {int(label): NAMES[i] for i, label in enumerate(np.unique(far))}
    data = load_dataset(store(ImageSet.from_arrays(IMAGES, far, names), tmp_path))
    assert data.train.classes == tuple(np.unique(far))
    assert data.train.class_names == names


def test_equal_content_is_stored_once_whatever_holds_it(tmp_path: Path) -> None:
    first = store((IMAGES, LABELS), tmp_path)
    written = Path(first.removeprefix("npz:")).stat().st_mtime_ns
    assert store((IMAGES.astype(np.float64) / 255, LABELS.tolist()), tmp_path) == first
    assert store(ImageSet.from_arrays(IMAGES, LABELS), tmp_path) == first
    assert Path(first.removeprefix("npz:")).stat().st_mtime_ns == written
    other = IMAGES.copy()
    other[3, 2, 1, 0] ^= 1
    swapped = LABELS.copy()
    swapped[:2] = swapped[1::-1]
    changed = [
        (other, LABELS),
        (IMAGES, swapped),
        (IMAGES.reshape(20, 16, 4, 3), LABELS),
        ImageSet.from_arrays(IMAGES, LABELS, {0: "ant"}),
        {"train": (IMAGES, LABELS), "test": TEST},
        {"train": (IMAGES, LABELS), "test": (TEST_IMAGES, swapped[:8])},
        DataSet("x", ImageSet.from_arrays(*TRAIN), ImageSet.from_arrays(*TEST), (0.5,) * 3, (1.0,) * 3),
        DataSet("x", ImageSet.from_arrays(*TRAIN), ImageSet.from_arrays(*TEST), (0.5,) * 3, (0.9,) * 3),
    ]
    names = [first, *(store(given, tmp_path) for given in changed)]
    assert len(set(names)) == len(names)
    assert len(list(tmp_path.iterdir())) == len(names), "and nothing half-written is left"


def test_images_of_unequal_sizes_are_resized(tmp_path: Path) -> None:
    mixed = [(picture(i, (10 + i, 12)), i % 2) for i in range(8)]
    with pytest.raises(InputError, match="give an image_size"):
        store(mixed, tmp_path)
    assert load_dataset(store(mixed, tmp_path, image_size=8)).train.image_shape == (3, 8, 8)


def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "A NoneType is not understood as a data set. Give its name, "),
        (generator(), "A generator is not understood"),
        ((IMAGES,), "A tuple of 1 things"),
        ((ImageSet.from_arrays(*TRAIN), ImageSet.from_arrays(*TEST)), "A tuple of 2 things"),
        ({"test": TRAIN, "other": TRAIN}, "the parts test, other, but no part train"),
        ({}, r"the parts \(none\), but no part train"),
        ((IMAGES, LABELS[:3]), "20 images need 20 labels"),
        ((IMAGES, np.eye(20)), r"The train labels must be one whole .* per image; got float64 of shape \(20, "),
        ((IMAGES, LABELS / 3), "whole number or text per image; got float64"),
        ((IMAGES, [None] * 20), "whole number or text per image; got object"),
        ((IMAGES, [[1], [2, 3]]), "whole number or text per image"),
        ((IMAGES.astype(int), LABELS), "images must be uint8 or floats in 0..1; got int64"),
        ((IMAGES, LABELS, TEST_IMAGES, ["ant"] * 8), "The labels of one part are whole numbers, those of the other"),
        (FaceDict(train=Face(*TRAIN, NAMES), test=Face(*TEST, NAMES[::-1])), "label 0 is 'ant' in one part and 'dog'"),
        ([], "empty data set"),
        ([IMAGES, LABELS], "Item 0 is a ndarray, not a pair"),
    ],
)  # fmt: skip
def test_what_is_no_data_set_says_why(tmp_path: Path, given: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        acr.run(dataset=given, out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_an_error_of_the_config_comes_before_any_image_is_read(tmp_path: Path) -> None:
    class Untouchable(Vision):
        def __getitem__(self, index: int) -> tuple[Any, int]:
            raise AssertionError("it was read")

    with pytest.raises(InputError, match="epoch"):
        acr.run(dataset=Untouchable(*TRAIN, NAMES), out=tmp_path, epochs=0)


def test_folders_and_files_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be stored in .*file.*Choose another folder with out="):
        store(TRAIN, tmp_path / "file")
    monkeypatch.setattr("acr.data.objects.MOST_BYTES", IMAGES.nbytes - 1)
    with pytest.raises(InputError, match=r"Save them as \.npy files in a folder"):
        store(TRAIN, tmp_path)
    np.savez(tmp_path / "a.npz", images=IMAGES, labels=LABELS)
    with pytest.raises(InputError, match=r"Did you mean npz:.*a\.npz\?"):
        acr.run(dataset=tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({arrays.MEAN: [0.5, 0.5], arrays.STD: [1.0] * 3}, "must hold 3 numbers, one per channel"),
        ({arrays.MEAN: [0.5, 0.5, np.nan], arrays.STD: [1.0] * 3}, "must hold 3 numbers"),
        ({arrays.MEAN: [0.5] * 3, arrays.STD: [1.0, 1.0, -0.1]}, "channel_std has a number below 0"),
        ({arrays.CLASS_NAMES: NAMES, arrays.CLASS_LABELS: [0, 1]}, "one whole number per name in class_names"),
        ({arrays.CLASS_NAMES: NAMES, arrays.CLASS_LABELS: NAMES}, "one whole number per name in class_names"),
    ],
)
def test_arrays_beside_the_images_are_checked(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    np.savez(tmp_path / "a.npz", images=IMAGES, labels=LABELS, **more)
    with pytest.raises(InputError, match=words):
        load_dataset(f"npz:{tmp_path / 'a.npz'}")


def test_a_run_is_found_by_its_images(tmp_path: Path) -> None:
    first = acr.run(dataset=(IMAGES, LABELS), out=tmp_path, **SMALL)
    ended = first.ended
    assert first.config.dataset == f"npz:{next((tmp_path / 'data').iterdir())}"
    again = acr.run(dataset=ImageSet.from_arrays(IMAGES, LABELS), out=tmp_path, **SMALL)
    assert (again.folder, again.ended) == (first.folder, ended), "finished already"
    other = acr.run(dataset=(255 - IMAGES, LABELS), out=tmp_path, **SMALL)
    assert other.folder != first.folder
    runs = find_runs(tmp_path)
    assert {run.folder for run in runs} == {first.folder, other.folder}
    gathered = gather(runs)
    assert gathered.problems == []
    assert len(gathered.groups) == 2


def test_a_run_is_resumed_by_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = acr.run(dataset=Vision(*TRAIN, NAMES), out=tmp_path / "whole", **SMALL)

    def stop(self: Trainer, task: Task) -> None:
        if task.index == 1:
            raise Interrupted(15, "stopped")

    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "keep_confidence", stop)
        with pytest.raises(Interrupted):
            acr.run(dataset=Vision(*TRAIN, NAMES), out="half", **SMALL)
    (folder,) = (tmp_path / "half").glob("npz-vision-*")
    (tmp_path / "elsewhere").mkdir()
    resumed = subprocess.run(
        [sys.executable, "-m", "acr", "resume", str(folder), "--quiet"],
        cwd=tmp_path / "elsewhere",
        capture_output=True,
        text=True,
    )
    assert resumed.returncode == 0, resumed.stderr
    np.testing.assert_array_equal(acr.load_run(folder).accuracy["clean"], whole.accuracy["clean"])
    assert acr.load_run(folder).results.data.fingerprint == whole.results.data.fingerprint
