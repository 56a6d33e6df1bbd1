"""Images in every form in which people have them give the same pixels."""

import numpy as np
import pytest
import torch
from PIL import Image

from acr.data.images import ImageSet
from acr.errors import InputError
from acr.learner.images import read_images, with_channels

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (3, 3, 12, 12), dtype=np.uint8)  # N x C x H x W
ROWS = COLOUR.transpose(0, 2, 3, 1)
GREY = RNG.integers(0, 256, (3, 12, 12), dtype=np.uint8)


@pytest.mark.parametrize(
    "images",
    [
        COLOUR,
        ROWS,
        torch.from_numpy(COLOUR),
        COLOUR / 255,
        (COLOUR / 255).astype(np.float32),
        list(ROWS),
        [torch.from_numpy(image) for image in COLOUR],
        [Image.fromarray(image) for image in ROWS],
        [COLOUR[0], Image.fromarray(ROWS[1]), torch.from_numpy(ROWS[2].copy())],
    ],
    ids=["CHW", "HWC", "tensor", "double", "float", "list", "tensors", "pictures", "mixed"],
)
def test_all_forms_of_an_image_are_the_same_image(images):
    assert np.array_equal(read_images(images, 12).images, COLOUR)


def test_grey_images_stay_grey_unless_one_has_colour():
    assert read_images(GREY, 12).images.shape == (3, 1, 12, 12)
    assert read_images([Image.fromarray(GREY[0])], 12).images.shape == (1, 1, 12, 12)
    mixed = read_images([GREY[0], ROWS[0]], 12).images
    assert mixed.shape == (2, 3, 12, 12)
    assert all(np.array_equal(mixed[0, c], GREY[0]) for c in range(3))


def test_a_model_of_grey_images_sees_colour_as_its_luma():
    pixel = np.array([[[[200]], [[100]], [[50]]]], np.uint8)
    assert with_channels(pixel, 1).item() == round(0.299 * 200 + 0.587 * 100 + 0.114 * 50)
    expected = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in ROWS]).astype(int)
    assert np.abs(with_channels(COLOUR, 1)[:, 0] - expected).max() <= 1  # Pillow rounds in 16 bits
    assert np.array_equal(with_channels(with_channels(GREY[:, None], 3), 1)[:, 0], GREY)


def test_paths_are_read_like_a_folder(tmp_path):
    (tmp_path / "a").mkdir()
    paths = []
    for number, image in enumerate(RNG.integers(0, 256, (3, 20, 30, 3), dtype=np.uint8)):
        paths.append(tmp_path / "a" / f"{number}.png")
        Image.fromarray(image).save(paths[-1])
    batch = read_images(paths, 16)
    assert np.array_equal(batch.images, ImageSet.from_folder(tmp_path, 16).images)
    assert batch.files == tuple(map(str, paths))
    assert np.array_equal(read_images(list(map(str, paths)), 16).images, batch.images)
    assert np.array_equal(read_images(np.array(list(map(str, paths))), 16).images, batch.images)


def test_images_of_several_sizes_are_made_one_size():
    sizes = [Image.fromarray(RNG.integers(0, 256, (h, w, 3), dtype=np.uint8)) for h, w in ((9, 20), (40, 8), (16, 16))]
    assert read_images(sizes, 16).images.shape == (3, 3, 16, 16)


def test_equal_images_have_equal_digests():
    first, second = read_images(COLOUR, 12).digests(), read_images(ROWS[::-1].copy(), 12).digests()
    assert first == second[::-1]
    assert len(set(first)) == 3


@pytest.mark.parametrize(
    ("images", "said"),
    [
        ("photo.jpg", "Give a list of paths"),
        (7, "must be an array"),
        (ROWS[0], "looks like a single image"),
        (np.full((2, 8, 8), np.nan), "nan"),
        (np.full((2, 8, 8), 3.0), "floats must be in 0..1"),
        (np.zeros((2, 8, 8), np.int32), "uint8"),
        ([object()], "Image 0 is"),
        (["/nowhere/x.png"], "1 of 1 images cannot be read"),
        (np.zeros((2, 64), np.uint8), "shape"),
    ],
)
def test_what_is_no_image_is_named(images, said):
    with pytest.raises(InputError) as error:
        read_images(images, 8)
    assert said in str(error.value)


def test_every_unreadable_file_is_named(tmp_path):
    (tmp_path / "good.png").write_bytes(b"")
    Image.fromarray(ROWS[0]).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_text("no image")
    with pytest.raises(InputError) as error:
        read_images([tmp_path / "good.png", tmp_path / "bad.png", tmp_path / "gone.png"], 8)
    assert "2 of 3 images cannot be read" in str(error.value)
    assert "bad.png: not an image format" in str(error.value)
    assert "gone.png: No such file" in str(error.value)
