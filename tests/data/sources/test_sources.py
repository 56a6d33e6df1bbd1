import io
import pickle
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from pictures import picture, save

from acr.data.loading import load_dataset
from acr.errors import InputError


def cifar_rows(classes: int, each: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(classes), each))
    return rng.integers(0, 256, (len(labels), 3072), dtype=np.uint8), labels


def write_cifar(folder: Path, classes: int, layout: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """A small CIFAR in the publisher's layout; returns what it holds."""
    folder.mkdir(parents=True)
    names = [f"name{i}" for i in range(classes)]
    train = (
        [(f"data_batch_{i}", cifar_rows(10, 2, i)) for i in range(1, 6)]
        if classes == 10
        else [("train", cifar_rows(100, 2, 1))]
    )
    test = ("test_batch" if classes == 10 else "test", cifar_rows(classes, 1, 99))
    key = b"labels" if classes == 10 else b"fine_labels"
    for file, (data, labels) in [*train, test]:
        if layout == "python":
            content = {b"data": data, key: labels.tolist(), b"coarse_labels": [0] * len(labels), b"batch_label": b"x"}
            (folder / file).write_bytes(pickle.dumps(content, protocol=2))
        else:
            columns = [labels[:, None].astype(np.uint8), data]
            columns = columns if classes == 10 else [np.zeros((len(labels), 1), np.uint8), *columns]
            (folder / f"{file}.bin").write_bytes(np.concatenate(columns, axis=1).tobytes())
    if layout == "python":
        meta, field = ("batches.meta", b"label_names") if classes == 10 else ("meta", b"fine_label_names")
        (folder / meta).write_bytes(pickle.dumps({field: [name.encode() for name in names]}, protocol=2))
    else:
        text = "batches.meta.txt" if classes == 10 else "fine_label_names.txt"
        (folder / text).write_text("\n".join(names) + "\n\n")
    data, labels = (np.concatenate(part) for part in zip(*(rows for _, rows in train), strict=True))
    return {"train": (data, labels), "test": test[1]}


FOLDERS = {
    (10, "python"): ("cifar-10-batches-py", "cifar-10-python.tar.gz"),
    (10, "binary"): ("cifar-10-batches-bin", "cifar-10-binary.tar.gz"),
    (100, "python"): ("cifar-100-python", "cifar-100-python.tar.gz"),
    (100, "binary"): ("cifar-100-binary", "cifar-100-binary.tar.gz"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("classes", "layout"), FOLDERS)
def test_cifar_in_all_layouts(tmp_path: Path, classes: int, layout: str, packed: bool) -> None:
    folder, archive = FOLDERS[classes, layout]
    truth = write_cifar(tmp_path / folder, classes, layout)
    if packed:
        with tarfile.open(tmp_path / archive, "w:gz") as tar:
            tar.add(tmp_path / folder, folder)
        shutil.rmtree(tmp_path / folder)
    data = load_dataset(f"split-cifar{classes}", data_root=tmp_path, quiet=True)
    for split, images in (("train", data.train), ("test", data.test)):
        np.testing.assert_array_equal(images.images.reshape(len(images), -1), truth[split][0])
        np.testing.assert_array_equal(images.labels, truth[split][1])
    assert data.train.class_names[3] == "name3"
    assert data.notes["layout"] == layout
    assert data.train.image_shape == (3, 32, 32)


def test_the_set_s_own_folder_may_be_the_data_root(tmp_path: Path) -> None:
    write_cifar(tmp_path / "renamed", 100, "python")
    assert len(load_dataset("split-cifar100", data_root=tmp_path / "renamed").train) == 200


def test_changed_files_are_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    write_cifar(folder, 100, "python")
    first = load_dataset("split-cifar100", data_root=tmp_path)
    content = pickle.loads((folder / "test").read_bytes())
    content[b"data"] = 255 - content[b"data"]
    (folder / "test").write_bytes(pickle.dumps(content, protocol=2))
    second = load_dataset("split-cifar100", data_root=tmp_path)
    np.testing.assert_array_equal(second.test.images, 255 - first.test.images)


def test_cifar_with_code_in_it_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    write_cifar(folder, 100, "python")

    class Runs:
        def __reduce__(self) -> object:
            return Path.touch, (tmp_path / "ran",)

    (folder / "meta").write_bytes(pickle.dumps(Runs()))
    with pytest.raises(InputError, match=r"meta is refused: it asks for"):
        load_dataset("split-cifar100", data_root=tmp_path)
    assert not (tmp_path / "ran").exists()


def test_cifar_cut_short_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    write_cifar(folder, 10, "binary")
    (folder / "test_batch.bin").write_bytes((folder / "test_batch.bin").read_bytes()[:-5])
    with pytest.raises(InputError, match=r"test_batch\.bin is cut short"):
        load_dataset("split-cifar10", data_root=tmp_path)
    (folder / "test_batch.bin").unlink()
    with pytest.raises(InputError, match="acr data fetch split-cifar10"):
        load_dataset("split-cifar10", data_root=tmp_path)


@pytest.mark.parametrize("name", ["split-cifar10", "split-cifar100", "split-tiny-imagenet"])
def test_a_missing_set_is_one_message_with_the_next_step(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACR_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(InputError, match=f"acr data fetch {name}") as caught:
        load_dataset(name, data_root=tmp_path)
    assert str(tmp_path / "elsewhere") in str(caught.value)
    with pytest.raises(InputError, match="no folder"):
        load_dataset(name, data_root=tmp_path / "nowhere")


def test_mini_imagenet_missing_says_how_to_get_it() -> None:
    with pytest.raises(InputError, match=r"image-net\.org.*mini-imagenet.*--data-root"):
        load_dataset("split-mini-imagenet")


def test_data_are_looked_for_in_order(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar(own_cache / "downloads/cifar-100-python", 100, "python")
    assert "downloads" in load_dataset("split-cifar100").notes["location"]
    write_cifar(tmp_path / "named/cifar-100-python", 100, "python")
    monkeypatch.setenv("ACR_DATA", str(tmp_path / "named"))
    assert "named" in load_dataset("split-cifar100").notes["location"]
    write_cifar(tmp_path / "given/cifar-100-python", 100, "python")
    assert "given" in load_dataset("split-cifar100", data_root=tmp_path / "given").notes["location"]


WNIDS = ["n02000001", "n01000002", "n03000003"]


def zipped(folder: Path) -> Path:
    archive = Path(shutil.make_archive(str(folder), "zip", folder))
    shutil.rmtree(folder)
    return archive


@pytest.mark.parametrize("packed", [False, True])
def test_mini_imagenet_in_class_folders(tmp_path: Path, packed: bool) -> None:
    root = tmp_path / "mini-imagenet"
    for c, wnid in enumerate(WNIDS):
        for i in range(6):
            save(root / f"{'train' if i < 4 else 'val'}/{wnid}/{wnid}{i:04d}.png", picture(10 * c + i, (84, 84)))
    if packed:
        zipped(root)
    data = load_dataset("split-mini-imagenet", data_root=tmp_path)
    assert data.train.class_names == {0: "n01000002", 1: "n02000001", 2: "n03000003"}
    assert data.train.counts() == {0: 4, 1: 4, 2: 4}
    assert data.test.counts() == {0: 2, 1: 2, 2: 2}
    assert data.train.image_shape == (3, 32, 32)


@pytest.mark.parametrize("form", ["classes", "few-shot", "lists", "lists in a zip"])
def test_mini_imagenet_split_anew(tmp_path: Path, form: str) -> None:
    root = tmp_path / "mini-imagenet"
    for c, wnid in enumerate(WNIDS):
        part = ("train", "val", "test")[c]
        folder = {"classes": wnid, "few-shot": f"{part}/{wnid}"}.get(form, "images")
        names = [f"{wnid}{i:04d}.png" for i in range(12)]
        for i, name in enumerate(names):
            save(root / folder / name, picture(100 * c + i, (8, 8)))
        if form.startswith("lists"):
            (root / f"{part}.csv").write_text(
                "filename,label\n" + "".join(f"{n},{wnid}\n" for n in [*names, "absent.jpg"])
            )
    if form == "lists in a zip":
        zipped(root)
    data = load_dataset("split-mini-imagenet", data_root=tmp_path, image_size=8)
    assert data.train.class_names == {0: "n01000002", 1: "n02000001", 2: "n03000003"}
    assert data.train.counts() == {0: 10, 1: 10, 2: 10}
    assert data.test.counts() == {0: 2, 1: 2, 2: 2}
    first = np.asarray(picture(100, (8, 8))).transpose(2, 0, 1)
    last = np.asarray(picture(111, (8, 8))).transpose(2, 0, 1)
    np.testing.assert_array_equal(data.train.images[0], first)
    np.testing.assert_array_equal(data.test.images[1], last)


@pytest.mark.parametrize("packed", [False, True])
def test_mini_imagenet_as_four_arrays(tmp_path: Path, packed: bool) -> None:
    rng = np.random.default_rng(0)
    root = tmp_path / "mini-imagenet"
    root.mkdir()
    for split, n in (("train", 8), ("test", 4)):
        np.save(root / f"{split}_x.npy", rng.integers(0, 256, (n, 84, 84, 3), dtype=np.uint8))
        np.save(root / f"{split}_y.npy", np.arange(n) % 4)
    if packed:
        zipped(root)
    data = load_dataset("split-mini-imagenet", data_root=tmp_path)
    assert data.train.image_shape == (3, 32, 32)
    assert data.train.labels.tolist() == [0, 1, 2, 3] * 2


def write_tiny(root: Path) -> None:
    for c, wnid in enumerate(WNIDS):
        for i in range(3):
            save(root / f"train/{wnid}/images/{wnid}_{i}.JPEG", picture(c, (64, 64), "L" if i == 2 else "RGB"))
        (root / f"train/{wnid}/{wnid}_boxes.txt").write_text("x")
    rows = []
    for i, wnid in enumerate(reversed(WNIDS)):
        save(root / f"val/images/val_{i}.JPEG", picture(50 + i, (64, 64)))
        rows.append(f"val_{i}.JPEG\t{wnid}\t0\t0\t62\t62\n")
    save(root / "test/images/test_0.JPEG", picture(60, (64, 64)))
    (root / "val/val_annotations.txt").write_text("".join(rows))
    (root / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    (root / "words.txt").write_text(
        "n02000001\tcrane, bird\nn01000002\tcrane, machine\nn03000003\ttench, Tinca\nn9\tother\n"
    )


@pytest.mark.parametrize("packed", [False, True])
def test_tiny_imagenet_as_published(tmp_path: Path, packed: bool) -> None:
    write_tiny(tmp_path / "tiny-imagenet-200")
    if packed:
        shutil.make_archive(str(tmp_path / "tiny-imagenet-200"), "zip", tmp_path, "tiny-imagenet-200")
        shutil.rmtree(tmp_path / "tiny-imagenet-200")
    data = load_dataset("split-tiny-imagenet", data_root=tmp_path)
    assert data.train.class_names == {0: "crane (n02000001)", 1: "crane (n01000002)", 2: "tench"}
    assert data.train.counts() == {0: 3, 1: 3, 2: 3}
    assert data.test.labels.tolist() == [2, 1, 0]
    grey = data.train.images[2]
    assert (grey[0] == grey[1]).all()
    assert (grey[0] == grey[2]).all()


def test_tiny_imagenet_with_its_validation_sorted(tmp_path: Path) -> None:
    root = tmp_path / "tiny-imagenet-200"
    write_tiny(root)
    (root / "val/val_annotations.txt").unlink()
    for i, wnid in enumerate(WNIDS):
        save(root / f"val/{wnid}/val_{i}.JPEG", picture(i, (64, 64)))
    shutil.rmtree(root / "val/images")
    assert load_dataset("split-tiny-imagenet", data_root=tmp_path).test.labels.tolist() == [1, 0, 2]


def test_tiny_imagenet_as_shards(tmp_path: Path) -> None:
    root = tmp_path / "tiny-imagenet"
    root.mkdir()
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    for split in ("train", "val"):
        for shard in (1, 2):
            part = slice(2 * (shard - 1), 2 * shard)
            np.save(root / f"x_{split}_{shard:02d}.npy", (images[part] / 255).astype(np.float32))
            np.save(root / f"y_{split}_{shard:02d}.npy", np.arange(4)[part])
    data = load_dataset("split-tiny-imagenet", data_root=tmp_path)
    np.testing.assert_array_equal(data.train.images, images.transpose(0, 3, 1, 2))
    assert data.test.labels.tolist() == [0, 1, 2, 3]


def some_images(n: int, size: int = 8) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (n, size, size, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    "names",
    [
        ("train_x", "train_y", "test_x", "test_y"),
        ("x_train", "y_train", "x_test", "y_test"),
        ("train_images", "train_labels", "test_images", "test_labels"),
    ],
)
def test_arrays_of_ones_own(tmp_path: Path, names: tuple[str, ...]) -> None:
    labels = np.array([[5], [9]] * 3)
    np.savez(tmp_path / "a.npz", **dict(zip(names, (some_images(6), labels, some_images(4), labels[:4]), strict=True)))
    data = load_dataset(f"npz:{tmp_path / 'a.npz'}")
    np.testing.assert_array_equal(data.train.images, some_images(6).transpose(0, 3, 1, 2))
    assert data.train.classes == (5, 9)
    assert data.mean == pytest.approx(data.train.statistics()[0])
    assert data.notes["normalisation"] == "computed from 6 training images"


def test_arrays_without_a_test_part_and_with_text_labels(tmp_path: Path) -> None:
    labels = np.array(["cat", "ant"] * 10)
    np.savez_compressed(tmp_path / "a.npz", images=some_images(20)[..., 0] / 255, labels=labels)
    data = load_dataset(f"npz:{tmp_path / 'a.npz'}")
    assert data.train.class_names == {0: "ant", 1: "cat"}
    assert data.train.image_shape == (1, 8, 8)
    assert (len(data.train), len(data.test)) == (16, 4)
    assert len(data.notes["holdout"]["rows"]) == 4


def test_pickled_arrays_are_refused(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> object:
            return Path.touch, (tmp_path / "ran",)

    np.savez(tmp_path / "a.npz", images=some_images(4), labels=np.array([Runs()] * 4, dtype=object))
    with pytest.raises(InputError, match="not a valid array"):
        load_dataset(f"npz:{tmp_path / 'a.npz'}")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"pictures": some_images(4)}, "has the arrays pictures"),
        ({"images": some_images(4), "labels": np.arange(3)}, "4 images, but there are 3 labels"),
        ({"images": some_images(4) / 100.0 - 1, "labels": np.arange(4)}, "must be in 0..1"),
        ({"images": some_images(4).astype(int), "labels": np.arange(4)}, "uint8 or floats"),
        ({"images": some_images(4)[:, :5], "labels": np.zeros(4, int)}, "not square"),
        (
            {"images": some_images(4), "labels": np.arange(4) / 2},
            "labels must be one whole number or text per image; got float64",
        ),
        ({"images": some_images(4), "labels": np.arange(4)}, "needs two images"),
    ],
)
def test_arrays_that_make_no_sense(tmp_path: Path, arrays: dict[str, np.ndarray], words: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match=words):
        load_dataset(f"npz:{tmp_path / 'a.npz'}")


def test_a_text_file_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_text("hello")
    with pytest.raises(InputError, match="neither a folder nor a valid zip"):
        load_dataset(f"npz:{tmp_path / 'a.npz'}")
    buffer = io.BytesIO()
    np.savez(buffer, images=some_images(4))
    (tmp_path / "a.npz").write_bytes(buffer.getvalue()[:-30])
    with pytest.raises(InputError):
        load_dataset(f"npz:{tmp_path / 'a.npz'}")
