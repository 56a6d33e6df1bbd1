"""The code of compressed images: against SciPy's transforms, by its bounds, and in a buffer."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.fft import dctn, idctn
from sklearn.datasets import load_sample_image

from acr.errors import InputError
from acr.memory import Buffer, codec
from acr.memory.codec import Codec, packed, shared_bits, unpacked, variances

SHAPES = st.tuples(st.sampled_from([1, 2, 3, 4]), st.integers(8, 40), st.integers(8, 40))


def noise(shape, n=3, seed=0):
    return torch.randint(0, 256, (n, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def photographs(n=40, side=32):
    """Parts of a photograph that scikit-learn brings along."""
    picture = torch.from_numpy(load_sample_image("china.jpg").copy()).permute(2, 0, 1)
    height, width = (length // side for length in picture.shape[1:])
    parts = picture[:, : height * side, : width * side].reshape(3, height, side, width, side)
    return parts.permute(1, 3, 0, 2, 4).reshape(-1, 3, side, side)[:n]


def extremes(shape, n=10):
    """Images of black and white in blocks of random sizes, which reach the ends of what coefficients can be."""
    coarse = [
        torch.randint(0, 2, (1, shape[0], k + 1, k + 1), generator=torch.Generator().manual_seed(k)) for k in range(n)
    ]
    return torch.cat([torch.nn.functional.interpolate(255.0 * c, size=shape[1:]) for c in coarse]).to(torch.uint8)


def decibels(a, b):
    return float(10 * torch.log10(255**2 / (a.float() - b.float()).square().mean()))


@settings(max_examples=30, deadline=None)
@given(SHAPES, st.integers(2, 16))
def test_so_many_images_take_no_more_bytes_than_one(shape, per_place):
    try:
        made = Codec(shape, per_place)
        size = made.nbytes
    except InputError as error:
        assert "too small" in str(error)  # noqa: PT017 - a refusal is one of two right answers
        return
    assert size * per_place <= np.prod(shape)
    images = noise(shape)
    codes = made.encode(images)
    assert codes.dtype == torch.uint8
    assert codes.shape == (3, size)
    back = made.decode(codes)
    assert back.shape == images.shape
    assert back.dtype == torch.uint8


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(1, 70), st.randoms(use_true_random=False))
def test_bits_are_packed_and_come_back(rows, count, draws):
    bits = torch.tensor([[draws.randint(0, 1) for _ in range(count)] for _ in range(rows)], dtype=torch.int32)
    octets = packed(bits)
    assert octets.shape == (rows, -(-count // 8))
    assert torch.equal(unpacked(octets, count), bits.float())
    # The lowest bit comes first, as NumPy packs in little order.
    assert np.array_equal(octets.numpy(), np.packbits(bits.numpy().astype(np.uint8), axis=1, bitorder="little"))


def test_the_transform_is_that_of_scipy():
    """A grey image of four blocks: quantised by hand in 64 bits, coefficient by coefficient."""
    made, image = Codec((1, 16, 16), 2), photographs()[7, :1, :16, :16]
    bits = np.array(made.bits[0]).reshape(8, 8)
    deviations = np.sqrt(variances().numpy()).reshape(8, 8) * codec.DEVIATION
    expected = np.zeros((16, 16))
    for top in (0, 8):
        for left in (0, 8):
            found = dctn(image[0, top : top + 8, left : left + 8].numpy() - 128.0, norm="ortho")
            kept = np.zeros((8, 8))
            for place in zip(*np.nonzero(bits), strict=True):
                reach = 1024 if place == (0, 0) else min(bits[place] + 0.5, 5.5) * deviations[place]
                most = 2 ** (bits[place] - 1) - 1
                step = max(1, round(reach / (most + 0.5)))
                kept[place] = np.clip(np.floor(found[place] / step + 0.5), -most, most) * step
            expected[top : top + 8, left : left + 8] = idctn(kept, norm="ortho") + 128
    # Entries of the basis are rounded to multiples of 1/2048: at most 1/4096 off, over coefficients of 4,000 together.
    assert np.abs(made.as_stored(image[None])[0, 0].numpy() - expected.clip(0, 255)).max() <= 0.5 + 4000 / 4096


def test_variances_are_those_of_correlated_pixels():
    """Random fields with the correlation 0.9 per pixel, transformed by SciPy."""
    draws = np.random.default_rng(0)
    distance = np.abs(np.arange(8)[:, None] - np.arange(8))
    root = np.linalg.cholesky(codec.CORRELATION**distance)
    fields = root @ draws.standard_normal((20_000, 8, 8)) @ root.T
    measured = dctn(fields, axes=(1, 2), norm="ortho").var(0)
    # The variance of n values has a standard error of sqrt(2/n), here 1 %; of 64 the largest deviation is below 4.
    assert np.abs(measured.ravel() / variances().numpy() - 1).max() < 0.05


def test_every_bit_went_where_it_takes_most_error_away():
    """In one plane, where all bits cost the same: no bit that was given is worth less than one that was not."""
    plane = codec.Plane(32, 32)
    (bits,) = shared_bits([plane], 3000)
    assert 3000 - 2 * plane.blocks < plane.blocks * sum(bits) <= 3000
    assert 1 not in bits
    # What a third of the variance, then a quarter of that and so on, falls by with each bit; with two at first.
    worth = [[v / 3, v / 3, *(v / 3 * 0.75 / 4**n for n in range(6))] for v in variances().tolist()]
    given = [w for bits_of, has in zip(worth, bits, strict=True) for w in bits_of[:has]]
    not_given = [bits_of[has] for bits_of, has in zip(worth, bits, strict=True) if 2 <= has < 8]
    assert max(not_given) <= min(given) * (1 + 1e-9)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (3, 84, 84), (2, 9, 13)])
@pytest.mark.parametrize("per_place", [2, 4, 16])
def test_sums_are_exact(shape, per_place, monkeypatch):
    """No sum can reach 2^24, and 64-bit floats give the same bytes and the same images."""
    made, images = Codec(shape, per_place), torch.cat([noise(shape, 40), extremes(shape)])
    for coder in made._on(images.device)[0]:
        assert (coder.worth.abs().sum(0) + coder.ground.abs()).max() < 2**24
        assert 128 * coder.basis.abs().sum(1).max() < 2**24
    codes = made.encode(images)
    monkeypatch.setattr(codec, "kind", lambda device: torch.float64)
    exact = Codec(shape, per_place)
    assert torch.equal(exact.encode(images), codes)
    assert torch.equal(exact.decode(codes), made.decode(codes))


def test_photographs_come_back_nearly_as_they_were():
    images = photographs()
    found = {number: decibels(images, Codec((3, 32, 32), number).as_stored(images)) for number in (2, 4, 8, 16)}
    assert found[2] > found[4] > found[8] > found[16]
    assert found[4] > 40  # a smooth picture
    once = Codec((3, 32, 32), 4).as_stored(images)
    assert decibels(once, Codec((3, 32, 32), 4).as_stored(once)) > 45  # a second time loses next to nothing


@pytest.mark.parametrize("value", [0, 1, 77, 128, 255])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_flat_image_stays_flat(channels, value):
    image, made = torch.full((1, channels, 16, 16), value, dtype=torch.uint8), Codec((channels, 16, 16), 4)
    back = made.as_stored(image).int()
    assert back[0].flatten(1).unique(dim=1).shape[1] == 1
    # The mean of a block is told to half a step of 2^(8 - bits) levels, at the ends of the scale to a whole one. The
    # colour of grey is 0, which is told exactly.
    assert (back - value).abs().max() <= 2 ** (8 - made.bits[0][0])


def test_each_image_is_coded_alone():
    made, images = Codec((3, 20, 20), 3), noise((3, 20, 20), 7)
    codes = made.encode(images)
    assert torch.equal(torch.cat([made.encode(image[None]) for image in images]), codes)
    assert torch.equal(made.decode(codes[[5, 2]]), made.decode(codes)[[5, 2]])


def test_images_that_are_too_small():
    with pytest.raises(InputError, match="--images-per-place"):
        _ = Codec((3, 2, 2), 16).nbytes


def test_a_buffer_of_codes():
    made, images = Codec((3, 16, 16), 4), noise((3, 16, 16), 5)
    buffer = Buffer(8, (3, 16, 16), codec=made)
    assert buffer.images.shape == (0, 3, 16, 16)
    assert buffer.nbytes == 2 * 3 * 16 * 16 + 8 * 16
    buffer.append(images, torch.arange(5), 0)
    assert torch.equal(buffer.images, made.as_stored(images))
    assert torch.equal(buffer.images_at(torch.tensor([3, 1])), made.as_stored(images)[[3, 1]])
    buffer.write(torch.tensor([0]), images, torch.arange(5), 1, rows=torch.tensor([4]))
    assert torch.equal(buffer.images[0], buffer.images[4])
    buffer.keep(torch.tensor([4, 2]))
    assert torch.equal(buffer.images, made.as_stored(images)[[4, 2]])
    again = Buffer(8, (3, 16, 16), codec=made)
    again.load_state_dict(buffer.state_dict())
    assert torch.equal(again.codes, buffer.codes)
    with pytest.raises(InputError, match="per image"):
        Buffer(8, (3, 16, 16)).load_state_dict(buffer.state_dict())


def test_a_memory_is_read_by_the_code_that_wrote_it_and_by_no_other(monkeypatch):
    """Codes of another version may be as long, and would give other images without a word."""
    images = photographs(5)
    buffer = Buffer(8, (3, 32, 32), codec=Codec((3, 32, 32), 8))
    buffer.append(images, torch.arange(5), 0)
    monkeypatch.setattr(codec, "CORRELATION", 0.95)
    other = Codec((3, 32, 32), 8)
    assert other.nbytes == buffer.codec.nbytes
    assert decibels(other.decode(buffer.codes), buffer.images) < 20
    with pytest.raises(InputError, match="compressed by another version of this package"):
        Buffer(8, (3, 32, 32), codec=other).load_state_dict(buffer.state_dict())


def test_large_images_are_coded_a_few_at_a_time(monkeypatch):
    """The steps between take some fifty times the memory of the images, so these are counted in bytes."""
    assert Codec((3, 32, 32), 8).at_once * 3 * 32 * 32 <= codec.AT_ONCE
    assert Codec((3, 512, 512), 8).at_once == 2
    assert Codec((3, 2048, 2048), 8).at_once == 1
    made, images = Codec((3, 16, 16), 2), noise((3, 16, 16), 7)
    codes = made.encode(images)
    monkeypatch.setattr(codec, "AT_ONCE", 3 * 3 * 16 * 16)
    assert torch.equal(made.encode(images), codes)
    assert torch.equal(made.decode(codes), torch.cat([made.decode(code[None]) for code in codes]))


def test_a_cpu_that_may_shorten_products_codes_alike():
    made, images = Codec((3, 32, 32), 4), photographs()
    codes, before = made.encode(images), torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert torch.equal(made.encode(images), codes)
        assert made.decode(codes[:1]).dtype == torch.uint8
        assert (images.device, torch.float64) in made._known
    finally:
        torch.set_float32_matmul_precision(before)
