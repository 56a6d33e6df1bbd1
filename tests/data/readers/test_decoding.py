import io
from pathlib import Path

import numpy as np
import pytest
from pictures import picture, save
from PIL import Image

from acr.data.readers import decoding
from acr.data.readers.decoding import decode, decode_files, fit, floats_to_bytes, resize, to_array, to_picture
from acr.data.readers.file_tree import open_tree
from acr.storage.cache import Writer


def encoded(image: Image.Image, kind: str, **options: object) -> io.BytesIO:
    file = io.BytesIO()
    image.save(file, kind, **options)
    file.seek(0)
    return file


def test_a_small_rgb_image_is_kept_to_the_bit() -> None:
    image = picture(1, (8, 8))
    np.testing.assert_array_equal(decode(encoded(image, "PNG"), 8), np.asarray(image).transpose(2, 0, 1))


def test_grey_becomes_three_equal_channels() -> None:
    image = picture(2, (8, 8), "L")
    np.testing.assert_array_equal(decode(encoded(image, "PNG"), 8), np.repeat(np.asarray(image)[None], 3, axis=0))


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    values = np.array([[0, 257], [32768, 65535]], np.uint16)
    file = encoded(Image.fromarray(values), "PNG")
    assert decode(file, 2)[0].tolist() == [[0, 1], [128, 255]]


def test_cmyk_becomes_rgb() -> None:
    pixels = decode(encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=95), 8)
    assert pixels[0].min() > 200
    assert pixels[1:].max() < 60


def test_what_is_transparent_lies_on_white() -> None:
    image = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    image.putpixel((0, 0), (10, 20, 30, 255))
    pixels = decode(encoded(image, "PNG"), 4)
    assert pixels[:, 0, 0].tolist() == [10, 20, 30]
    assert pixels[:, 1:, 1:].min() == 255


def test_a_palette_with_transparency_lies_on_white() -> None:
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 9, 9, 9, 200, 100, 50])
    image.putpixel((0, 0), 2)
    pixels = decode(encoded(image, "PNG", transparency=1), 4)
    assert pixels[:, 0, 0].tolist() == [200, 100, 50]
    assert pixels[:, 1, 1].tolist() == [255, 255, 255]


def test_the_first_frame_of_an_animation() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "green", "blue")]
    pixels = decode(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]), 8)
    assert pixels[:, 4, 4].tolist() == [255, 0, 0]


def test_the_camera_s_orientation_is_respected() -> None:
    image = Image.new("RGB", (8, 8), "black")
    image.paste("white", (0, 0, 8, 4))  # the upper half is white
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise: the white half comes to the right
    pixels = decode(encoded(image, "PNG", exif=exif), 8)
    assert pixels[0, :, 4:].min() == 255
    assert pixels[0, :, :4].max() == 0


def test_shorter_side_then_centre() -> None:
    image = Image.new("RGB", (90, 30), "black")
    image.paste("white", (30, 0, 60, 30))
    assert np.asarray(fit(image, 30)).min() == 255
    assert fit(picture(0, (100, 41)), 32).size == (32, 32)
    assert fit(picture(0, (5, 9)), 32).size == (32, 32)


def test_resizing_is_pillow_s_antialiased_bilinear() -> None:
    image = picture(3, (64, 64))
    expected = np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    np.testing.assert_array_equal(decode(encoded(image, "PNG"), 32), expected)
    np.testing.assert_array_equal(resize(to_array(image)[None], 32)[0], expected)


def test_arrays_and_pictures_are_inverse() -> None:
    for mode in ("RGB", "L"):
        pixels = to_array(picture(4, (7, 5), mode))
        np.testing.assert_array_equal(to_array(to_picture(pixels)), pixels)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bytes_divided_by_255_come_back(dtype: type) -> None:
    values = np.arange(256)
    np.testing.assert_array_equal(floats_to_bytes((values / 255).astype(dtype)), values)
    np.testing.assert_array_equal(floats_to_bytes(values.astype(dtype) / dtype(255)), values)


def test_postscript_is_not_even_tried() -> None:
    assert ".eps" not in decoding.endings()
    assert {".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm"} <= decoding.endings()
    with pytest.raises(OSError, match="cannot identify"):
        decode(io.BytesIO(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n"), 8)


@pytest.mark.parametrize("as_zip", [False, True])
def test_many_processes_give_what_one_gives(tmp_path: Path, as_zip: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "FEW", 1)
    names = []
    for i in range(40):
        names.append(f"class {i % 3}/bild-{i}-ü.png")
        save(tmp_path / "set" / names[-1], picture(i, (10, 14)))
    names.insert(7, "broken.jpg")
    (tmp_path / "set/broken.jpg").write_bytes(b"no picture")
    root = tmp_path / "set"
    if as_zip:
        import shutil

        root = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", root))
    tree, writer = open_tree(root), Writer(tmp_path)
    broken, results = [], []
    for workers in (1, 3):
        out = writer.create(f"out{workers}", (41, 3, 8, 8), np.uint8)
        broken.append(decode_files(tree, names, writer.path(f"out{workers}"), 8, quiet=True, workers=workers))
        results.append(np.array(out))
    tree.close()
    assert broken[0] == broken[1] == {7: "not an image format that is read"}
    np.testing.assert_array_equal(results[0], results[1])
    assert results[0].reshape(41, -1).max(axis=1).astype(bool).sum() == 40
