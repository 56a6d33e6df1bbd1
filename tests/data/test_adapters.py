from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from pictures import picture, save
from PIL import Image

from acr.data import ImageSet
from acr.errors import InputError

PICTURES = [picture(i, (8, 8)) for i in range(4)]
BYTES = np.stack([np.asarray(p) for p in PICTURES])


@pytest.mark.parametrize(
    "convert",
    [
        lambda image: image,
        np.asarray,
        lambda image: torch.from_numpy(np.array(image)),
        lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1),
        lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255,
    ],
)
@pytest.mark.parametrize("form", ["pairs", "image", "img"])
def test_items_of_every_kind(convert: object, form: str) -> None:
    items = [(convert(image), torch.tensor(3 + i % 2)) for i, image in enumerate(PICTURES)]
    if form != "pairs":
        items = [{form: image, "labels" if form == "img" else "label": int(label)} for image, label in items]
    images = ImageSet.from_dataset(items)
    np.testing.assert_array_equal(images.images, BYTES.transpose(0, 3, 1, 2))
    assert images.labels.tolist() == [3, 4, 3, 4]


def test_class_names_of_torchvision_and_hugging_face() -> None:
    class Vision(list):
        classes = ("ant", "bee")

    class Face(list):
        features: ClassVar = {"label": SimpleNamespace(names=["ant", "bee"]), "image": None}

    assert ImageSet.from_dataset(Vision([(PICTURES[0], 1)])).class_names == {1: "bee"}
    assert ImageSet.from_dataset(Face([{"image": PICTURES[0], "label": 1}])).class_names == {1: "bee"}


def test_a_torch_data_set() -> None:
    data = torch.utils.data.TensorDataset(torch.from_numpy(BYTES), torch.tensor([0, 1, 0, 1]))
    assert ImageSet.from_dataset(torch.utils.data.Subset(data, [1, 3])).labels.tolist() == [1, 1]


def test_sizes_and_channels() -> None:
    mixed = [(picture(1, (20, 10)), "b"), (picture(2, (9, 9), "L"), "a")]
    with pytest.raises(InputError, match="give an image_size"):
        ImageSet.from_dataset(mixed)
    images = ImageSet.from_dataset(mixed, image_size=8)
    assert images.images.shape == (2, 3, 8, 8)
    assert images.class_names == {0: "a", 1: "b"}
    grey = ImageSet.from_dataset([(picture(2, (9, 9), "L"), 0)])
    assert grey.image_shape == (1, 9, 9)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "empty"),
        (iter([1]), "map-style"),
        ([{"picture": 1, "label": 0}], "needs one of image, img"),
        ([5], "not a pair"),
        ([(np.zeros((8, 8, 3)) - 1, 0)], "normalisation"),
        ([(np.zeros((8, 8, 5), np.uint8), 0)], "1 or 3 channels"),
        ([(np.zeros((8, 8, 3), int), 0)], "images must be uint8 or floats in 0..1"),
    ],
)
def test_what_cannot_be_used_says_why(data: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        ImageSet.from_dataset(data)


def test_from_a_folder(tmp_path: Path) -> None:
    for name in ("2", "10"):
        for i in range(3):
            save(tmp_path / f"set/{name}/{i}.png", picture(int(name) + i, (16, 12)))
    images = ImageSet.from_folder(tmp_path / "set", image_size=12)
    assert images.class_names == {0: "2", 1: "10"}
    assert images.images.shape == (6, 3, 12, 12)
    (tmp_path / "set/2/x.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"2/x\.png"):
        ImageSet.from_folder(tmp_path / "set")
    assert len(ImageSet.from_folder(str(tmp_path / "set"), skip_broken=True)) == 6
    with pytest.raises(InputError, match="no images in class folders"):
        ImageSet.from_folder(tmp_path / "set/2")


def test_an_image_of_pillow_keeps_its_bytes() -> None:
    assert isinstance(PICTURES[0], Image.Image)
    np.testing.assert_array_equal(ImageSet.from_dataset([(PICTURES[0], 0)]).images[0], BYTES[0].transpose(2, 0, 1))
