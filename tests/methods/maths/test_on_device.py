"""On an accelerator the mathematics gives the bits of the CPU, and waits for the device only where it says so."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import method_learning
import pytest
import torch
import torch.nn.functional as F
from method_learning import Learning
from pretend_device import DEVICE, Counts, PretendDevice
from torch import Tensor, nn

from acr.methods.maths import gradient_similarity as similarity_module
from acr.methods.maths.fitting import cutmix, draw_cutmix
from acr.methods.maths.gradient_similarity import gradient_similarity
from acr.methods.maths.gradients import assign_gradient, flat_gradient, project_agem, project_gem
from acr.methods.maths.hindsight import hindsight_loss
from acr.methods.maths.influence import influences, kmeans_pick, loss_weights, normalise, pareto_weights
from acr.methods.maths.ntk import KernelCache, ntk, symmetric_kernel
from acr.methods.maths.selection import select_rows


@pytest.fixture
def device() -> Iterator[PretendDevice]:
    with PretendDevice() as device:
        yield device


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def compared(device: PretendDevice, work: Callable[..., Any], *given: Any) -> Counts:
    """Do the work on the CPU and on the device; the results are the same to the bit. Returns the device's traffic."""
    there = moved(device, given)
    with device.counting() as counts:
        found = work(*there)
    assert_same(device, found, work(*given))
    return counts


def moved(device: PretendDevice, given: Any) -> Any:
    if isinstance(given, Tensor):
        return device.put(given)
    if isinstance(given, nn.Module):
        return copy.deepcopy(given).to(DEVICE)
    return tuple(moved(device, part) for part in given) if isinstance(given, tuple) else given


def assert_same(device: PretendDevice, found: Any, expected: Any) -> None:
    if isinstance(expected, Tensor):
        torch.testing.assert_close(device.read(found), device.read(expected), rtol=0, atol=0, equal_nan=True)
    elif is_dataclass(expected):
        for part in fields(expected):
            assert_same(device, getattr(found, part.name), getattr(expected, part.name))
    elif isinstance(expected, tuple | list):
        for one, other in zip(found, expected, strict=True):
            assert_same(device, one, other)
    else:
        assert found == expected


def assert_silent(counts: Counts) -> None:
    """Nothing waited and nothing was copied."""
    assert counts.waits == counts.copies_in == 0, counts


# GEM and A-GEM


GRADIENT, MEMORY, NAN = draws(40), draws(3, 40, seed=1), torch.full((40,), torch.nan)
AGREEING, OPPOSED = GRADIENT + 0.1 * MEMORY, MEMORY.clone().index_copy_(0, torch.tensor([1]), -GRADIENT[None])
BROKEN = torch.cat([OPPOSED[:2], NAN[None]])


@pytest.mark.parametrize(
    ("gradient", "memory", "solved"),
    [(GRADIENT, AGREEING, False), (GRADIENT, OPPOSED, True), (NAN, OPPOSED, False), (GRADIENT, BROKEN, False)],
    ids=["agreeing", "opposed", "not finite", "memory not finite"],
)
def test_gem_reads_one_small_matrix_and_sends_one_number_per_task(device, gradient, memory, solved) -> None:
    counts = compared(device, project_gem, gradient, memory)
    assert (counts.waits, counts.bytes_out) == (1, 8 * (3 * 3 + 3 + 3))
    assert (counts.copies_in, counts.blocking_copies_in, counts.bytes_in) == (int(solved), 0, 4 * 3 * int(solved))


def test_gem_without_earlier_tasks_reads_nothing(device) -> None:
    assert_silent(compared(device, project_gem, GRADIENT, MEMORY[:0]))


@pytest.mark.parametrize(
    "reference",
    [AGREEING[0], -GRADIENT, OPPOSED[2] - GRADIENT, torch.zeros(40), NAN, 1e-30 * MEMORY[0]],
    ids=["agreeing", "opposite", "opposed", "zero", "not finite", "tiny"],
)
def test_agem_reads_nothing(device, reference) -> None:
    assert_silent(compared(device, project_agem, GRADIENT, reference))
    assert_silent(compared(device, project_agem, torch.cat([NAN[:1], GRADIENT[1:]]), reference))


def test_gradients_are_gathered_and_assigned_there(device, make_network, make_batch) -> None:
    def work(network: nn.Module, images: Tensor, labels: Tensor) -> tuple[Tensor, list[Tensor]]:
        F.cross_entropy(network(images), labels).backward()
        network.head.bias.grad = None
        flat = flat_gradient(network.parameters())
        assign_gradient(network.parameters(), 2 * flat)
        return flat, [parameter.grad for parameter in network.parameters()]

    assert_silent(compared(device, work, make_network(), *make_batch(5)))


# GSS, HAL, MetaSP


@pytest.mark.parametrize("by_position", [False, True])
def test_gradient_similarity_reads_nothing(device, make_network, make_batch, monkeypatch, by_position) -> None:
    monkeypatch.setattr(similarity_module, "_few_positions", lambda *_: by_position)
    sets = [tensor for seed in (1, 2) for tensor in make_batch(4, seed)]
    assert_silent(compared(device, gradient_similarity, make_network(), *sets))


@pytest.mark.parametrize("track_statistics", [False, True])
def test_hindsight_reads_nothing(device, make_network, make_batch, track_statistics) -> None:
    def work(network: nn.Module, anchors: Tensor, images: Tensor, labels: Tensor) -> list[Tensor]:
        F.cross_entropy(network(images), labels).backward()
        loss = hindsight_loss(network, anchors, 0.1, track_statistics=track_statistics)
        loss.backward()
        return [loss, *(parameter.grad for parameter in network.parameters()), *network.buffers()]

    assert_silent(compared(device, work, make_network().train(), make_batch(3, 1)[0], *make_batch(5, 2)))


@pytest.mark.parametrize("training", [True, False])
def test_influences_and_weights_read_nothing(device, make_network, make_batch, training) -> None:
    def work(network: nn.Module, images: Tensor, labels: Tensor, first: Any, second: Any) -> Any:
        found = influences(network, images, labels, first, second, 0.3)
        stability = normalise(found.stability, found.stability_loss)
        plasticity = normalise(found.plasticity, found.plasticity_loss)
        gamma, combined = pareto_weights(stability, plasticity)
        return found, stability, gamma, combined, loss_weights(combined)

    batches = (*make_batch(6, 1), make_batch(5, 2), make_batch(4, 3))
    assert_silent(compared(device, work, make_network().train(training), *batches))


@pytest.mark.parametrize("scale", [0.0, 0.5, 1.0, 2.0, -1.0, torch.nan])
def test_all_cases_of_the_weights_are_decided_there(device, scale) -> None:
    assert_silent(compared(device, pareto_weights, GRADIENT, scale * GRADIENT))
    assert_silent(compared(device, loss_weights, 1 + scale * GRADIENT.abs()))


def test_kmeans_reads_pixels_and_scores(device) -> None:
    def work(pixels: Tensor, scores: Tensor) -> Tensor:
        return kmeans_pick(pixels, scores, 4, seed=0)

    counts = compared(device, work, draws(20, 3, 4, 4), draws(20, seed=1))
    assert (counts.waits, counts.copies_in) == (2, 0)


# SOIF


def test_the_kernel_reads_nothing(device) -> None:
    def work(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return ntk(a, b), symmetric_kernel(a, rows=2)

    assert_silent(compared(device, work, draws(5, 3, 8, 8), draws(4, 3, 8, 8, seed=1)))


def test_the_cache_reads_new_entries_once(device) -> None:
    cache, here = KernelCache(), KernelCache()
    stored, new = draws(6, 3, 8, 8), draws(2, 3, 8, 8, seed=1)
    rows = torch.tensor([0, 2, 3, 4, 6, 7])
    for waits, entries in ((2, 6 * 6 + 2 * 8), (1, 2 * 8)):  # the stored part is computed the first time only
        expected = here.joint(new, stored)
        with device.counting() as counts:
            joint = cache.joint(device.put(new), device.put(stored))
            cache.keep(rows)
        here.keep(rows)
        assert_same(device, joint, expected)
        assert joint.device.type == "cpu"
        assert (counts.waits, counts.bytes_out, counts.copies_in) == (waits, 4 * entries, 0)
        stored = torch.cat([new, stored])[rows]


def test_a_selection_is_made_on_the_host(device) -> None:
    features = draws(12, 5)
    kernel, labels = features @ features.T, torch.arange(12) % 3

    def work(kernel: Tensor, labels: Tensor) -> Any:
        return select_rows(kernel, labels, 8, 4, 40, 3, torch.Generator().manual_seed(0))

    counts = compared(device, work, kernel, labels)
    assert (counts.waits, counts.bytes_out, counts.copies_in) == (2, kernel.nbytes + labels.nbytes, 0)
    with device.counting() as counts:
        work(kernel, labels)
    assert_silent(counts)


# GDumb


@pytest.mark.parametrize("drawn_before", [False, True])
def test_cutmix_copies_the_partners_only(device, drawn_before) -> None:
    images, labels = torch.arange(6 * 3 * 8 * 8).view(6, 3, 8, 8).to(torch.uint8), torch.arange(6)

    def work(images: Tensor, labels: Tensor) -> Any:
        generator = torch.Generator().manual_seed(3)
        return cutmix(images, labels, draw_cutmix(images.shape, generator) if drawn_before else generator)

    counts = compared(device, work, images, labels)
    assert (counts.waits, counts.copies_in, counts.blocking_copies_in, counts.bytes_in) == (0, 1, 0, 6 * 8)


class PlainViews:
    """Replays images as they are; draws as a view would, so that the draws that follow are shifted."""

    def replay(self, images: Tensor, generator: torch.Generator) -> Tensor:
        torch.rand(len(images), generator=generator)
        return images


def test_a_fit_waits_for_nothing(device, monkeypatch) -> None:
    images = torch.randint(256, (12, 3, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)

    def fitted(where: torch.device) -> tuple[list[Tensor], Counts]:
        learning = learning_on(where, monkeypatch, "gdumb", buffer_size=12, options={"fit_epochs": 3, "cutmix": 1.0})
        method = learning.method
        method.buffer.append(images, torch.arange(12) % 4, 0)
        learning.context.views = PlainViews()
        with device.counting() as counts:
            method.fit()
        return list(method.network.state_dict().values()), counts

    (expected, _), (found, counts) = fitted(torch.device("cpu")), fitted(DEVICE)
    assert_same(device, found, expected)
    assert counts.waits == 0
    in_the_loop = [traffic for line, traffic in counts.by_line.items() if not traffic.blocking_copies_in]
    assert sum(traffic.copies_in for traffic in in_the_loop) == 3 + 3 * 2  # the orders, and the partners of 2 batches


# Steps


def learning_on(where: torch.device, monkeypatch, name: str, **settings: Any) -> Learning:
    build = method_learning.resnet18
    with monkeypatch.context() as patch:
        patch.setattr(method_learning, "resnet18", lambda *options: build(*options).to(where))
        return Learning(name, device=where, **settings)


@pytest.mark.parametrize(
    ("name", "settings", "step", "waits"),
    [
        ("gem", {"epochs": 1}, (1, 0, 1), {"maths/gradients.py": 1}),
        ("agem", {"epochs": 1}, (1, 0, 1), {}),
        ("gss", {"epochs": 1}, (0, 0, 2), {}),
        ("hal", {"epochs": 1, "options": {"anchor_steps": 2}}, (1, 0, 1), {}),
        ("metasp", {"epochs": 2}, (1, 1, 1), {}),
        ("soif", {"epochs": 1, "buffer_size": 16}, (0, 0, 3), {"maths/ntk.py": 1}),
    ],
)
def test_a_step_waits_for_its_mathematics(device, monkeypatch, name, settings, step, waits) -> None:
    here = learning_on(torch.device("cpu"), monkeypatch, name, **settings)
    there = learning_on(DEVICE, monkeypatch, name, **settings)
    assert_same(device, there.run(*step), here.run(*step))
    with device.counting() as counts:
        loss = there.step()
    assert_same(device, loss, here.step())
    found: dict[str, int] = {}
    for line, traffic in counts.by_line.items():
        place = line.removeprefix("src/acr/methods/").split(":")[0]
        if traffic.waits and (place.startswith("maths/") or place == "hal.py"):
            found[place] = found.get(place, 0) + traffic.waits
    assert found == waits
    assert counts.bytes_out < 4096  # a gradient has 350 kB
