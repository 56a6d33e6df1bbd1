"""An image's corruption depends on its key and on nothing else."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from warm_processes import FORKSERVER

from acr.shift import CONSTANTS, CORRUPTIONS, SEVERITIES, corrupt, corrupt_float
from acr.shift.setting import Setting, words

SHAPES = [(3, 32, 32), (1, 8, 8), (3, 13, 10)]
COUNT = 140  # more than most chunks


@lru_cache(maxsize=4)
def images(shape: tuple[int, int, int], count: int = COUNT) -> np.ndarray:
    coarse = torch.rand((count, shape[0], 4, 4), generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.interpolate(coarse, size=shape[1:], mode="bilinear")
    return (smooth * 255).to(torch.uint8).numpy()


@lru_cache(maxsize=200)
def whole(name: str, severity: int, table: str, shape: tuple[int, int, int]) -> np.ndarray:
    return corrupt_float(images(shape), name, severity, table, seed=5)


@pytest.mark.parametrize("name", CORRUPTIONS)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    shape=st.sampled_from(SHAPES),
    case=st.sampled_from([(1, "imagenet-c"), (2, "cifar-c")]),
    part=st.one_of(
        st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=3),
        st.permutations(range(COUNT)).flatmap(lambda order: st.integers(1, COUNT).map(lambda n: order[:n])),
    ),
)
def test_any_part_in_any_order(name: str, shape: tuple[int, int, int], case: tuple[int, str], part: list[int]) -> None:
    """Identical floats, and so identical bytes, for any sub-batch, single images and repeated ones included."""
    severity, table = case
    got = corrupt_float(images(shape)[part], name, severity, table, seed=5, indices=part)
    np.testing.assert_array_equal(got, whole(name, severity, table, shape)[part])


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_one_image_among_ten_thousand(name: str) -> None:
    many = np.resize(images((1, 8, 8)), (10_000, 1, 8, 8))
    table = "cifar-c"
    all_of_them = corrupt(many, name, 3, table)
    for index in (0, 4321, 9999):
        alone = corrupt(many[index : index + 1], name, 3, table, indices=[index])
        np.testing.assert_array_equal(alone[0], all_of_them[index])


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_threads_do_not_matter(name: str) -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        got = corrupt_float(images((3, 32, 32)), name, 1, "imagenet-c", seed=5)
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(got, whole(name, 1, "imagenet-c", (3, 32, 32)))


def test_workers_do_not_matter() -> None:
    parts = [list(range(0, COUNT, 2)), list(range(1, COUNT, 2))]
    some = images((3, 13, 10))
    with ProcessPoolExecutor(2, mp_context=FORKSERVER) as pool:
        jobs = [
            (name, part, pool.submit(corrupt_float, some[part], name, 2, "cifar-c", 5, part))
            for part in parts
            for name in CORRUPTIONS
        ]
        for name, part, job in jobs:
            np.testing.assert_array_equal(job.result(), whole(name, 2, "cifar-c", (3, 13, 10))[part])


DRAWN = [name for name in CORRUPTIONS if name not in
         ("defocus_blur", "zoom_blur", "pixelate", "jpeg_compression", "brightness", "contrast")]  # fmt: skip


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_key_parts_matter_where_something_is_drawn(name: str) -> None:
    same = np.repeat(images((3, 32, 32))[:1], 2, axis=0)
    first = corrupt(same, name, 2, seed=0)
    assert np.array_equal(first, corrupt(same, name, 2, seed=0))
    assert np.array_equal(first[0], first[1]) == (name not in DRAWN)  # two images, two draws
    assert np.array_equal(first, corrupt(same, name, 2, seed=1)) == (name not in DRAWN)


def test_global_generators_are_left_alone() -> None:
    torch.manual_seed(3)
    np.random.seed(3)
    before, state = torch.get_rng_state(), np.random.get_state()[1].copy()
    for name in CORRUPTIONS:
        corrupt(images((1, 8, 8))[:2], name)
    assert torch.equal(before, torch.get_rng_state())
    np.testing.assert_array_equal(state, np.random.get_state()[1])


def test_input_is_left_alone() -> None:
    before = images((3, 13, 10)).copy()
    for name in CORRUPTIONS:
        corrupt(images((3, 13, 10)), name)
    np.testing.assert_array_equal(before, images((3, 13, 10)))


def test_streams_are_random_and_unrelated() -> None:
    """Uniform, and uncorrelated between neighbouring images, severities, seeds and corruptions."""

    def draw(name: str = "fog", severity: int = 1, seed: int = 0, indices: range = range(200)) -> np.ndarray:
        return np.stack([s.random(500) for s in Setting(name, severity, "", (), seed, indices).streams()])

    first = draw()
    n = first.size
    assert abs(first.mean() - 0.5) < 5 * np.sqrt(1 / 12 / n)
    counts, _ = np.histogram(first, bins=50, range=(0, 1))
    assert np.sum((counts - n / 50) ** 2 / (n / 50)) < 49 + 5 * np.sqrt(2 * 49)
    for other in (
        draw("snow"),
        draw(severity=2),
        draw(seed=1),
        draw(indices=range(1, 201))[::-1],
        np.roll(first, 1, 0),
    ):
        assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(n)
    np.testing.assert_array_equal(draw(indices=range(1, 201))[:-1], first[1:])


def test_words_use_every_bit() -> None:
    drawn = words(np.random.default_rng(0), 100_001, np.uint32)
    assert drawn.shape == (100_001,)
    for bit in range(32):
        assert np.mean((drawn >> np.uint32(bit)) & np.uint32(1)) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("table", CONSTANTS)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_small_and_odd_sizes(name: str, table: str) -> None:
    """8x8, a pixel, a line: all severities give images of the same size, in range."""
    for shape in ((2, 3, 8, 8), (2, 1, 8, 8), (1, 3, 1, 1), (1, 1, 2, 7), (1, 3, 9, 1)):
        given_images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        for severity in SEVERITIES:
            result = corrupt_float(given_images, name, severity, table)
            assert result.shape == shape
            assert result.dtype == np.float32
            assert 0 <= result.min() <= result.max() <= 1
            rounded = np.floor(result * np.float32(255) + np.float32(0.5))
            np.testing.assert_array_equal(corrupt(given_images, name, severity, table), rounded)
