"""Labelled images from folders, tables and arrays, and images that were read before."""

import numpy as np
import pytest
from pictures import picture, save

from acr.errors import InputError
from acr.learner.images import Batch, read_files, read_images
from acr.learner.labelled import read_labelled

SIZE = 12


def write_pictures(folder, **classes):
    """Picture files: ``cat=3`` makes three of them in the folder ``cat``."""
    number = 0
    for name, count in classes.items():
        for place in range(count):
            number += 1
            save(folder / name / f"{place}.png", picture(number))
    return folder


def same(found, files, labels):
    """Whether these are the images of the files, with these labels."""
    assert found.labels == tuple(labels)
    assert np.array_equal(found.batch.images, read_images(files, SIZE).images)
    assert found.batch.files == tuple(map(str, files))


def test_a_batch_is_taken_as_it_is():
    images = np.random.default_rng(0).integers(0, 256, (3, 3, 12, 12), dtype=np.uint8)
    batch = Batch(images, ("a", "b", "c"))
    again = read_images(batch, 12)
    assert np.array_equal(again.images, images)
    assert again.files == batch.files
    assert np.array_equal(read_images(batch, 6, 1).images, read_images(images, 6, 1).images)


def test_grey_images_have_the_strides_of_colour_images():
    """With others PyTorch computes the same scores with other last digits."""
    grey = np.zeros((4, 8, 8), np.uint8)
    for given in (grey, list(grey), grey[..., None], grey.transpose(0, 2, 1)):
        assert read_images(given, 8).images.strides == (64, 64, 8, 1)


def test_files_that_cannot_be_read_are_left_out_with_reasons(tmp_path):
    good = [save(tmp_path / f"{i}.png", picture(i)) for i in range(2)]
    (tmp_path / "broken.png").write_text("no image")
    batch, broken = read_files([good[0], tmp_path / "broken.png", good[1], tmp_path / "none.png"], SIZE, 1)
    assert np.array_equal(batch.images, read_images(good, SIZE, 1).images)
    assert batch.files == tuple(map(str, good))
    assert list(broken) == [1, 3]
    assert "not an image" in broken[1]
    assert "No such file" in broken[3]


def test_class_folders(tmp_path):
    write_pictures(tmp_path, cat=2, dog=1)
    files = [tmp_path / "cat/0.png", tmp_path / "cat/1.png", tmp_path / "dog/0.png"]
    same(read_labelled(tmp_path, SIZE), files, ["cat", "cat", "dog"])
    same(read_labelled(tmp_path, SIZE, part="test"), files, ["cat", "cat", "dog"])


def test_parts_of_folders(tmp_path):
    write_pictures(tmp_path / "train", cat=2)
    write_pictures(tmp_path / "val", cat=1)
    same(read_labelled(tmp_path, SIZE), [tmp_path / "train/cat/0.png", tmp_path / "train/cat/1.png"], ["cat"] * 2)
    same(read_labelled(tmp_path, SIZE, part="test"), [tmp_path / "val/cat/0.png"], ["cat"])


def test_tables(tmp_path):
    write_pictures(tmp_path, cat=2, dog=1)
    table = tmp_path / "images.csv"
    table.write_text("path,label\ncat/1.png,1\ndog/0.png,2\n")
    same(read_labelled(table, SIZE), [tmp_path / "cat/1.png", tmp_path / "dog/0.png"], ["1", "2"])
    table.write_text("path,label,split\ncat/1.png,a,train\ndog/0.png,b,test\ncat/0.png,a,val\n")
    same(read_labelled(table, SIZE), [tmp_path / "cat/1.png"], ["a"])
    same(read_labelled(table, SIZE, part="test"), [tmp_path / "dog/0.png"], ["b"])
    table.write_text("path,label,split\ndog/0.png,b,test\n")
    with pytest.raises(InputError, match="no rows with the split train, only test"):
        read_labelled(table, SIZE)


def test_arrays(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (4, 12, 12), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=[3, 1, 3, 1])
    found = read_labelled(tmp_path / "a.npz", SIZE)
    assert found.labels == ("3", "1", "3", "1")
    assert np.array_equal(found.batch.images, images[:, None])
    assert found.batch.files == ("",) * 4
    names = np.array(["x", "y", "x", "y"])
    np.savez(tmp_path / "b.npz", x_train=images, y_train=names, x_test=images[:1], y_test=names[:1])
    assert read_labelled(tmp_path / "b.npz", SIZE).labels == tuple(names)
    test = read_labelled(tmp_path / "b.npz", 6, 3, part="test")
    assert test.labels == ("x",)
    assert np.array_equal(test.batch.images, read_images(images[:1], 6, 3).images)


def test_what_cannot_be_used_is_an_error_or_left_out(tmp_path):
    write_pictures(tmp_path, cat=1, dog=1)
    (tmp_path / "dog/broken.jpg").write_text("no image")
    (tmp_path / "phone").mkdir()
    (tmp_path / "phone/one.heic").write_text("another format")
    with pytest.raises(InputError, match=r"2 files or folders cannot be used:(?s:.)*broken.jpg(?s:.)*--skip-broken"):
        read_labelled(tmp_path, SIZE)
    found = read_labelled(tmp_path, SIZE, skip_broken=True)
    same(found, [tmp_path / "cat/0.png", tmp_path / "dog/0.png"], ["cat", "dog"])
    assert [file for file, _ in found.skipped] == [str(tmp_path / "dog/broken.jpg"), str(tmp_path / "phone")]


@pytest.mark.parametrize(
    ("name", "says"),
    [("none", "There is no file or folder"), ("notes.txt", "is not a folder, a .csv"), ("empty", "no image")],
)
def test_other_things_are_refused(name, says, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=says):
        read_labelled(tmp_path / name, SIZE)


def test_nothing_that_can_be_read(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/one.png").write_text("no image")
    with pytest.raises(InputError, match="no image that can be read"):
        read_labelled(tmp_path, SIZE, skip_broken=True)
