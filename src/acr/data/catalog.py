"""The catalog of data sets: where each comes from, how it is split into tasks, and its measured defaults."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from acr.config import DataConfig
from acr.data.images import DataSet
from acr.data.readers.fetch import Download
from acr.errors import InputError, unknown
from acr.storage.location import search_folders


@dataclass(frozen=True)
class Request:
    """What a source is asked for."""

    name: str
    path: Path | None
    """The PATH of ``folder:PATH``, ``csv:PATH`` and ``npz:PATH``."""
    options: DataConfig
    """Which images are wanted, and where to find them."""


@dataclass(frozen=True)
class DataSpec:
    """One entry of the catalog. The training defaults were measured; ``docs/results.md`` describes how."""

    name: str
    title: str
    """What it is, for lists."""
    source: str
    """``module:function``; the function maps a :class:`Request` to a :class:`DataSet`. Imported only when used."""
    label: str = ""
    """How tables and figures call it; its name if empty."""
    tasks: int | None = None
    """Default number of tasks, all of equal size; None: as many as give two classes per task."""
    image_size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    """Normalisation constants; None: computed from the training images and recorded."""
    defaults_from: str = "the paper"
    """Where the training defaults come from, for ``acr methods NAME``."""
    epochs: int = 50
    width: int = 64
    learning_rate: float = 0.1
    buffer_size: int = 500
    flip: bool = True
    """Whether views may mirror an image (not digits: a mirrored 2 is not a 2)."""
    ood_corruptions: tuple[str, ...] | None = None
    """None: the paper's eleven."""
    ood_severities: tuple[int, ...] = (1,)
    ood_constants: str = "imagenet-c"
    classes: int | None = None
    train_per_class: int | None = None
    test_per_class: int | None = None
    """Size of the complete data set, which ``acr data check`` compares with what it finds."""
    places: tuple[str, ...] = ()
    """Names of the folders and archives to look for below the data root."""
    markers: tuple[tuple[str, ...], ...] = ()
    """Sets of file patterns; a data root in which every pattern of one set matches is the data set's own folder."""
    download: Download | None = None
    how_to_get: str = ""
    """Instructions for a data set that cannot be downloaded."""

    def run_defaults(self) -> dict[str, Any]:
        """The defaults that a data set provides for fields of a run's config."""
        fields = ("tasks", "epochs", "width", "learning_rate", "buffer_size")
        shift = ("ood_corruptions", "ood_severities", "ood_constants")
        return {name: getattr(self, name) for name in (*fields, *shift)}

    def load(self, request: Request) -> DataSet:
        """Read the images."""
        module, function = self.source.split(":")
        load: Callable[[Request], DataSet] = getattr(import_module(module), function)
        return load(request)


NOT_TUNED = "the paper's for CIFAR-100; nobody has tuned them for your images"

CATALOG: dict[str, DataSpec] = {
    spec.name: spec
    for spec in (
        DataSpec(
            name="split-digits",
            title="scikit-learn's 8x8 handwritten digits, embedded: 5 tasks of 2 classes",
            label="Split Digits",
            source="acr.data.sources.digits:load",
            tasks=5,
            image_size=8,
            defaults_from="chosen for speed; epochs and rate measured: results/digits_search.csv",
            epochs=20,
            width=8,
            learning_rate=0.1,
            buffer_size=50,
            flip=False,
            ood_constants="cifar-c",
            classes=10,
            train_per_class=144,
        ),
        DataSpec(
            name="split-cifar10",
            title="CIFAR-10, 32x32 photographs: 5 tasks of 2 classes",
            label="Split CIFAR-10",
            source="acr.data.sources.cifar:load_cifar10",
            tasks=5,
            image_size=32,
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2470, 0.2435, 0.2615),
            defaults_from="the paper's for CIFAR-100; not tuned",
            learning_rate=0.1,
            classes=10,
            train_per_class=5000,
            test_per_class=1000,
            places=("cifar-10-batches-py", "cifar-10-batches-bin", "cifar-10-python.tar.gz", "cifar-10-binary.tar.gz"),
            markers=(("data_batch_1", "test_batch"), ("data_batch_1.bin", "test_batch.bin")),
            download=Download(
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                170_498_071,
                "c58f30108f718f92721af3b95e74349a",
                unpacked=186_000_000,
            ),
        ),
        DataSpec(
            name="split-cifar100",
            title="CIFAR-100, 32x32 photographs: 10 tasks of 10 classes",
            label="Split CIFAR-100",
            source="acr.data.sources.cifar:load_cifar100",
            tasks=10,
            image_size=32,
            mean=(0.5071, 0.4867, 0.4408),
            std=(0.2675, 0.2565, 0.2761),
            learning_rate=0.1,
            classes=100,
            train_per_class=500,
            test_per_class=100,
            places=("cifar-100-python", "cifar-100-binary", "cifar-100-python.tar.gz", "cifar-100-binary.tar.gz"),
            markers=(("train", "test", "meta"), ("train.bin", "test.bin")),
            download=Download(
                "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                169_001_437,
                "eb9058c3a382ffc7106e4002c42a8d85",
                unpacked=187_000_000,
            ),
        ),
        DataSpec(
            name="split-mini-imagenet",
            title="Mini-ImageNet, photographs resized to 32x32: 5 tasks of 20 classes",
            label="Split Mini-ImageNet",
            source="acr.data.sources.mini_imagenet:load",
            tasks=5,
            image_size=32,
            mean=(0.47313006, 0.44905752, 0.40378186),
            std=(0.27292014, 0.26559181, 0.27953038),
            learning_rate=0.03,
            classes=100,
            train_per_class=500,
            test_per_class=100,
            places=("mini-imagenet", "mini_imagenet", "miniimagenet", "mini-imagenet.zip", "mini_imagenet.zip"),
            markers=(("train/*",), ("train_x.npy", "train_y.npy"), ("images", "train.csv"), ("n[0-9]*",)),
            how_to_get=(
                "Mini-ImageNet has no public download of its own: its images are ImageNet's, whose terms you accept at "
                "https://www.image-net.org/download. Put its class folders (train/<wnid>/*.jpg and val/<wnid>/*.jpg, "
                "or one folder per class), or its images folder with train.csv, val.csv and test.csv, or the arrays "
                "train_x.npy, train_y.npy, test_x.npy and test_y.npy, into a folder or zip named mini-imagenet below "
                "your data folder, and give that folder with --data-root or in the environment variable ACR_DATA."
            ),
        ),
        DataSpec(
            name="split-tiny-imagenet",
            title="Tiny-ImageNet, photographs resized to 32x32: 10 tasks of 20 classes",
            label="Split Tiny-ImageNet",
            source="acr.data.sources.tiny_imagenet:load",
            tasks=10,
            image_size=32,
            mean=(0.4802, 0.4480, 0.3975),
            std=(0.2770, 0.2691, 0.2821),
            learning_rate=0.03,
            classes=200,
            train_per_class=500,
            test_per_class=50,
            places=("tiny-imagenet-200", "tiny-imagenet-200.zip", "tiny-imagenet"),
            markers=(("wnids.txt", "train"), ("*x_train_01.npy",), ("processed/x_train_01.npy",)),
            download=Download(
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                248_100_043,
                "90528d7ca1a48142e341f4ef8d21d0de",
                unpacked=500_000_000,
            ),
        ),
        DataSpec(
            name="folder:PATH",
            title="your own images: PATH/<class>/*, or PATH/train/<class>/* and PATH/test/<class>/*",
            source="acr.data.sources.folder:load",
            defaults_from=NOT_TUNED,
            image_size=32,
        ),
        DataSpec(
            name="csv:PATH",
            title="your own images: a CSV file with the columns path, label and, if you have parts, split",
            source="acr.data.sources.table:load",
            defaults_from=NOT_TUNED,
            image_size=32,
        ),
        DataSpec(
            name="npz:PATH",
            title="your own arrays: images and labels in a .npz file or a folder of .npy files",
            source="acr.data.sources.arrays:load",
            defaults_from=NOT_TUNED,
        ),
    )
}


def find(name: str) -> tuple[DataSpec, Path | None]:
    """The entry for a name, and the path if the name includes one (``folder:PATH``)."""
    kind, colon, path = name.partition(":")
    if colon and f"{kind}:PATH" in CATALOG:
        if not path:
            raise InputError(f"{name!r} has no path: write {kind}:PATH.")
        return CATALOG[f"{kind}:PATH"], Path(path).expanduser()
    if name not in CATALOG or name.endswith(":PATH"):
        if kind := kind_of_path(name):
            raise InputError(f"There is no data set {name!r}, but there is a path {name}. Did you mean {kind}:{name}?")
        raise unknown("data set", name, CATALOG)
    return CATALOG[name], None


def kind_of_path(name: str) -> str:
    """``folder``, ``csv`` or ``npz`` if the name is a path to data of that kind; empty if it is not."""
    with suppress(OSError, RuntimeError, ValueError):  # too long for a path, of an unknown user (~name), a null byte
        path = Path(name).expanduser()
        if path.is_file():
            kinds = {".csv": "csv", ".npz": "npz", ".zip": "folder", ".tar": "folder", ".gz": "folder"}
            return kinds.get(path.suffix.lower(), "")
        if path.is_dir():
            return "npz" if any(path.glob("*.npy")) else "folder"
    return ""


def locate(spec: DataSpec, data_root: Path | None = None, data_cache: Path | None = None) -> Path | None:
    """The folder or archive of a data set, or None. ``data_root`` may also be the data set's own folder or archive."""
    if data_root is not None:
        own = Path(data_root).expanduser()
        if not own.exists():
            raise InputError(f"There is no folder {own}, which was given as the data root.")
        if own.is_file():
            return own
    for folder in search_folders(data_root, data_cache):
        for place in spec.places:
            if (folder / place).exists():
                return folder / place
    if data_root is not None:
        for markers in spec.markers:
            if all(any(own.glob(marker)) for marker in markers):
                return own
    return None


def require(spec: DataSpec, data_root: Path | None = None, data_cache: Path | None = None) -> Path:
    """As :func:`locate`, but a missing data set is an error that states the next step."""
    found = locate(spec, data_root, data_cache)
    if found is None:
        raise InputError(missing(spec, data_root, data_cache))
    return found


def missing(spec: DataSpec, data_root: Path | None = None, data_cache: Path | None = None) -> str:
    """The error message for a data set that was not found: where it was looked for, and how to get it."""
    folders = ", ".join(str(folder) for folder in search_folders(data_root, data_cache))
    root = f" --data-root {data_root}" if data_root is not None else ""
    step = f"Run: acr data fetch {spec.name}{root}" if spec.download else spec.how_to_get
    return f"{spec.name} was not found. Looked for {' or '.join(spec.places)} in {folders}. {step}"
