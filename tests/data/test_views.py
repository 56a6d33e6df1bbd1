import colorsys

import numpy as np
import pytest
import torch

from acr.data import strong_view as strong
from acr.data.strong_view import draw_boxes, draw_jitter, draw_strong_view, luma, resized_crop
from acr.data.views import CropDraws, Views, crop, draw_crop, join


def draws(seed=0):
    return torch.Generator().manual_seed(seed)


def random_crop(images, padding, generator, border=None):
    return crop(images, padding, draw_crop(len(images), padding, generator, flip=False), border)


def random_flip(images, generator):
    flip = draw_crop(len(images), 0, generator, flip=True).flip
    still = torch.zeros(len(images), dtype=torch.int64)
    return crop(images, 0, CropDraws(still, still, flip))


def random_resized_crop(pixels, generator, area, aspect):
    return resized_crop(pixels, draw_boxes(len(pixels), *pixels.shape[2:], generator, area, aspect))


def colour_jitter(pixels, chosen, generator, strength, hue):
    order, jitter = draw_jitter(chosen, generator, strength, hue)
    worked_on = pixels[order]
    strong.jitter(worked_on, jitter)
    return worked_on[order.argsort()]


def shift_hue(pixels, shift):
    turned = pixels.clone()
    strong.shift_hue(turned, shift)
    return turned


def strong_view(images, generator):
    return strong.strong_view(images, draw_strong_view(images.shape, generator))


def pictures(n=16, channels=3, side=12, seed=0):
    return torch.randint(0, 256, (n, channels, side, side), dtype=torch.uint8, generator=draws(seed))


def test_crop_is_a_shift_of_the_padded_image():
    images = pictures(40)
    crops = random_crop(images, 2, draws(1))
    padded = torch.nn.functional.pad(images, [2] * 4)
    places = set()
    for image, cut in zip(padded, crops, strict=True):
        fits = [(y, x) for y in range(5) for x in range(5) if torch.equal(image[:, y : y + 12, x : x + 12], cut)]
        assert fits
        places.add(fits[0])
    assert len(places) > 12  # a draw an image, not one a batch


def test_crop_with_a_coloured_border():
    crops = random_crop(torch.zeros(30, 3, 8, 8, dtype=torch.uint8), 4, draws(), border=(0.5, 0.25, 1.0))
    for channel, colour in enumerate((0.5, 0.25, 1.0)):
        values = crops[:, channel].unique()
        torch.testing.assert_close(values, torch.tensor([0.0, colour]))


def test_flip_mirrors_about_half():
    images = pictures(400, side=4)
    flipped = random_flip(images, draws())
    same = torch.tensor([torch.equal(a, b) for a, b in zip(images, flipped, strict=True)])
    mirrored = torch.tensor([torch.equal(a.flip(-1), b) for a, b in zip(images, flipped, strict=True)])
    assert (same | mirrored).all()
    assert 150 < int(mirrored.sum()) < 250


def test_resized_crop_of_the_full_image_is_the_image():
    images = pictures().float() / 255
    torch.testing.assert_close(random_resized_crop(images, draws(), (1, 1), (1, 1)), images, atol=1e-5, rtol=0)


def test_resized_crop_equals_pil_on_the_same_box():
    """Against PIL: cut an integer box, enlarge it bilinearly. PIL rounds to 8 bit, hence one level of tolerance."""
    from PIL import Image

    images = pictures(20, side=32)
    shapes = set()
    for seed in range(20):
        got = random_resized_crop(images[seed : seed + 1].float() / 255, draws(seed), (0.2, 1.0), (3 / 4, 4 / 3))[0]
        picture = Image.fromarray(images[seed].permute(1, 2, 0).numpy())
        matches = 0
        for h, w, top, left in boxes(seed):
            resized = picture.crop((left, top, left + w, top + h)).resize((32, 32), Image.Resampling.BILINEAR)
            expected = torch.from_numpy(np.array(resized)).permute(2, 0, 1).float()
            matches += bool(((got * 255 - expected).abs() < 1.01).all())
            shapes.add((h, w))
        assert matches == 1
    assert len(shapes) > 10


def boxes(seed, side=32):
    """The box that the view draws for one image, by the same formulas, one draw at a time."""
    g = draws(seed)
    share = 0.2 + 0.8 * torch.rand(1, 10, generator=g)[0]
    low, high = np.log(3 / 4), np.log(4 / 3)
    ratio = torch.exp(low + (high - low) * torch.rand(1, 10, generator=g)[0])
    place = torch.rand(2, 1, generator=g)
    for s, r in zip(share.tolist(), ratio.tolist(), strict=True):
        w, h = round((s * side * side * r) ** 0.5), round((s * side * side / r) ** 0.5)
        if 0 < w <= side and 0 < h <= side:
            yield h, w, int(place[1, 0] * (side - h + 1)), int(place[0, 0] * (side - w + 1))
            return
    raise AssertionError("these seeds all find a box")


def test_hue_shift_is_that_of_colorsys():
    pixels = torch.rand(1, 3, 5, 5, generator=draws())
    pixels[0, :, 0, 0] = 0.3  # grey: no hue
    shifted = shift_hue(pixels, torch.tensor([0.07]))
    for y in range(5):
        for x in range(5):
            h, s, v = colorsys.rgb_to_hsv(*pixels[0, :, y, x].tolist())
            expected = colorsys.hsv_to_rgb((h + 0.07) % 1, s, v)
            torch.testing.assert_close(shifted[0, :, y, x], torch.tensor(expected), atol=1e-5, rtol=0)


def test_jitter_leaves_the_others_alone_and_stays_in_range():
    pixels = torch.rand(60, 3, 4, 4, generator=draws())
    chosen = torch.arange(60) % 2 == 0
    out = colour_jitter(pixels, chosen, draws(1), 0.4, 0.1)
    assert torch.equal(out[~chosen], pixels[~chosen])
    assert all(not torch.equal(a, b) for a, b in zip(out[chosen], pixels[chosen], strict=True))
    assert out.min() >= -1e-6
    assert out.max() <= 1 + 1e-6


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [8, 32])
def test_strong_view_keeps_kind_and_shape_and_is_keyed(channels, side):
    images = pictures(channels=channels, side=side)
    view = strong_view(images, draws(4))
    assert view.dtype == torch.uint8
    assert view.shape == images.shape
    assert torch.equal(view, strong_view(images, draws(4)))
    assert not torch.equal(view, strong_view(images, draws(5)))
    floats = strong_view(images.float() / 255, draws(4))
    torch.testing.assert_close(floats, view.float() / 255, atol=0.51 / 255, rtol=0)


@pytest.mark.parametrize("seed", range(5))
def test_one_channel_is_seen_as_three_equal_ones(seed):
    """Brightness and contrast change it; saturation, hue and grey must leave it as it is (and not black)."""
    one = pictures(64, channels=1, side=8).float() / 255
    three = strong_view(one.expand(-1, 3, -1, -1), draws(seed))
    assert (three - three[:, :1]).abs().max() < 1e-5
    torch.testing.assert_close(strong_view(one, draws(seed)), three[:, :1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("channels", [1, 3])
def test_jitter_equals_the_operations_one_by_one(channels):
    """Against a loop over images with each operation written out, in the order that the draws say."""
    pixels = torch.rand(40, channels, 6, 5, generator=draws(7))
    out = colour_jitter(pixels, torch.ones(40, dtype=torch.bool), draws(3), 0.4, 0.1)
    again = draws(3)
    factors = 1 + 0.4 * (2 * torch.rand(3, 40, generator=again) - 1)
    shift = 0.1 * (2 * torch.rand(40, generator=again) - 1)
    order = torch.rand(40, 4, generator=again).argsort(1)
    for i, image in enumerate(pixels):
        for operation in order[i].tolist():
            weights = torch.tensor([0.299, 0.587, 0.114] if channels == 3 else [1.0])
            grey = (weights[:, None, None] * image).sum(0)
            if operation == 0:
                image = (image * factors[0, i]).clamp(0, 1)
            elif operation == 1:
                image = (grey.mean() + factors[1, i] * (image - grey.mean())).clamp(0, 1)
            elif operation == 2:
                image = (grey + factors[2, i] * (image - grey)).clamp(0, 1)
            elif channels == 3:
                image = shift_hue(image[None], shift[i : i + 1])[0]
        torch.testing.assert_close(out[i], image, atol=1e-5, rtol=0)


def test_strong_view_makes_a_fifth_grey():
    view = strong_view(pictures(500, side=8).float() / 255, draws())
    grey = (view - luma(view)).abs().amax((1, 2, 3)) < 1e-5
    assert 70 < int(grey.sum()) < 135


def test_digits_are_never_mirrored():
    """A ramp that grows to the right does so in every view that may not flip."""
    ramp = torch.arange(8).mul(30).to(torch.uint8).expand(64, 1, 8, 8)
    views = Views(padding=1, flip=False)
    for view in (views.strong(ramp, draws()), views.crop_flip(ramp, draws()), views.replay(ramp, draws())):
        middle = view.float()[:, :, :, 1:-1]
        assert (middle[..., -1] >= middle[..., 0]).all()


def test_padding_is_an_eighth_of_the_side():
    assert [Views.for_side(side, True).padding for side in (8, 32, 64)] == [1, 4, 8]


def test_join_of_bytes_and_floats():
    a, b = pictures(2), pictures(3).float() / 255
    assert join(a, a).dtype == torch.uint8
    joined = join(a, b)
    torch.testing.assert_close(joined[:2], a.float() / 255)
    assert joined.shape[0] == 5
