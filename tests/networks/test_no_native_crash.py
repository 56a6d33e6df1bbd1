"""No width, image size, batch size or number of threads makes PyTorch's compiled code crash, hang or miscalculate.

Everything that could kill the process runs in a process of its own.
"""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch.func import jvp, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from acr.networks import resnet18
from acr.networks.resnet import Conv1x1, strided_1x1_is_safe
from acr.storage.workers import SAME_SUMS

WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 32)
SIDES = (8, 9, 28, 32, 33, 56, 63, 64, 65, 84, 96, 224)
BATCHES = (1, 2, 7, 32)
CHANNELS = (3, 1)
THREADS = (1, 2, 3)
PATIENCE = 300
"""Seconds after which a process counts as hung."""

NETWORK = """
import json, sys, torch
from acr.networks import resnet18

for width, side, batch, channels, threads in json.loads(sys.argv[1]):
    print(f"width {width}, side {side}, batch {batch}, channels {channels}, threads {threads}", flush=True)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    network = resnet18(5, width=width, channels=channels)
    images = torch.randint(0, 256, (batch, channels, side, side), dtype=torch.uint8)
    gradients = []
    for _ in range(int(sys.argv[2])):
        network.zero_grad()
        network(images).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in network.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients[0])
    for other in gradients[1:]:
        assert all(torch.equal(a, b) for a, b in zip(gradients[0], other)), "the same step gave other gradients"
print("end")
"""

SHORTCUT = """
import json, sys, torch
import torch.nn.functional as F
from acr.networks.resnet import Conv1x1

def gradients(convolve, *tensors):
    leaves = [tensor.requires_grad_() for tensor in tensors]
    return torch.autograd.grad(convolve(*leaves).square().sum(), leaves)

for inputs, side, batch, threads in json.loads(sys.argv[1]):
    print(f"inputs {inputs}, side {side}, batch {batch}, threads {threads}", flush=True)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    layer = Conv1x1(inputs, 2 * inputs, 2, torch.channels_last).to(memory_format=torch.channels_last)
    images = torch.randn(batch, inputs, side, side).contiguous(memory_format=torch.channels_last)
    for _ in range(2):
        found = gradients(lambda x, weight: layer(x), images.clone(), layer.weight)
        exact = gradients(lambda x, w: F.conv2d(x, w, stride=2), images.double(), layer.weight.detach().double())
        for a, b in zip(found, exact):
            assert (a - b).abs().max() <= 1e-5 * b.abs().max(), "wrong gradient"
print("end")
"""


def survives(program, cells, passes=2):
    """Run a program with these cells in a process of its own; fail with the cell at which it ended, if it did.

    Two passes per cell at least: memory that was overwritten may only show at the next use of it.
    """
    environment = {**SAME_SUMS, **os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-X", "faulthandler", "-c", program, json.dumps(cells), str(passes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
        try:
            out, errors = child.communicate(timeout=PATIENCE)
            end = f"was killed by {signal.Signals(-child.returncode).name}" if child.returncode < 0 else "failed"
        except subprocess.TimeoutExpired:
            child.kill()
            out, errors = child.communicate()
            end = "hung"
    last = (out.splitlines() or ["the import"])[-1]
    assert last == "end", f"The process {end} at: {last}\n{errors[-3000:]}"
    assert child.returncode == 0, f"The process {end} after its last cell.\n{errors[-3000:]}"


def test_the_known_crash():
    """The 8 → 16 channel shortcut at 64x64 killed the process on processors with AVX-512."""
    survives(NETWORK, [(8, 64, 32, 3, 1), (8, 64, 7, 3, 2), (8, 32, 7, 3, 3)])


def test_a_single_image_gives_the_same_bits_every_time():
    """MKL adds the products of one image in the order in which its threads finish, unless it is told not to."""
    survives(NETWORK, [(width, 8, 1, 3, threads) for width in (8, 12, 16) for threads in (2, 3)], passes=40)


def test_shortcuts_narrower_than_a_vector_register():
    """With AVX2 the fault shows below 8 channels, which the networks only use in the contiguous layout."""
    survives(SHORTCUT, [(inputs, 32, 16, threads) for inputs in (1, 4, 7, 8, 15) for threads in (1, 3)])


class Convolutions(TorchDispatchMode):
    """Records the convolutions that are computed: input, weights and stride."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution.default:
            self.seen.append((args[0], args[1], args[3]))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("width", [4, 8, 9, 12, 15, 16, 20])
@pytest.mark.parametrize("side", [32, 33])
def test_no_unsafe_convolution_is_computed(width, side):
    """Holds on every processor, also on those that would survive."""
    with Convolutions() as convolutions:
        resnet18(5, width=width)(torch.zeros(2, 3, side, side, dtype=torch.uint8))
    assert len(convolutions.seen) == 20
    strided = [(x, w) for x, w, stride in convolutions.seen if w.shape[2:] == (1, 1) and max(stride) > 1]
    layouts = [torch.contiguous_format if x.is_contiguous() else torch.channels_last for x, _ in strided]
    assert all(strided_1x1_is_safe(w.shape[1], layout) for (_, w), layout in zip(strided, layouts, strict=True))
    assert len(strided) == (2 if 8 <= width < 16 else 3)


@pytest.mark.parametrize("side", [1, 2, 8, 9, 32])
def test_selecting_pixels_first_is_the_strided_convolution(side):
    layer = Conv1x1(3, 5, 2, torch.channels_last).double()
    assert layer.selects_first
    images = torch.randn(4, 3, side, side, dtype=torch.float64, requires_grad=True)
    expected = F.conv2d(images, layer.weight, stride=2)
    torch.testing.assert_close(layer(images), expected)
    weights = torch.randn_like(expected)
    leaves = [images, layer.weight]
    found = torch.autograd.grad((layer(images) * weights).sum(), leaves)
    torch.testing.assert_close(found, torch.autograd.grad((expected * weights).sum(), leaves))


def test_selecting_pixels_first_can_be_mapped_and_differentiated_forwards():
    """HAL maps networks over images; MetaSP and SOIF take derivatives along a direction."""
    layer = Conv1x1(8, 16, 2, torch.channels_last).double()
    images, direction = torch.randn(2, 3, 8, 6, 6, dtype=torch.float64)
    expected = F.conv2d(images, layer.weight, stride=2)
    torch.testing.assert_close(vmap(lambda image: layer(image[None])[0])(images), expected)
    along = jvp(layer, (images,), (direction,))[1]
    torch.testing.assert_close(along, F.conv2d(direction, layer.weight, stride=2))


def cells_of(width):
    """All sides, with the other values in turn so that they meet in many combinations; the largest images in few.

    Networks that use a narrow shortcut in the channels-last layout are also tried with batches that threads divide
    unevenly.
    """
    row, cells = WIDTHS.index(width), []
    for column, side in enumerate(SIDES):
        cost = width**1.5 * (side / 32) ** 2
        batch = next(b for b in (BATCHES[(row + column) % 4], 7, 2, 1) if b == 1 or b * cost < 3_000)
        cells.append((width, side, batch, CHANNELS[(row + column // 4) % 2], THREADS[(row + 2 * column) % 3]))
        if 8 <= width < 16 and side % 2 == 0 and 7 * cost < 3_000:
            cells += [(width, side, 7, 3, threads) for threads in THREADS]
    return cells


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_is_trained_at_every_side(width):
    survives(NETWORK, cells_of(width))


@pytest.mark.slow
@pytest.mark.parametrize("threads", THREADS)
def test_shortcuts_of_any_width(threads):
    survives(SHORTCUT, [(i, side, batch, threads) for i in range(1, 20) for side in (4, 9, 28, 64) for batch in (1, 7)])


STEM = """
import json, sys, torch
import torch.nn.functional as F

def gradients(images, weight):
    leaves = [images.requires_grad_(), weight.requires_grad_()]
    return torch.autograd.grad(F.conv2d(*leaves, stride=2, padding=3).square().sum(), leaves)

for channels, width, side, batch, threads in json.loads(sys.argv[1]):
    print(f"channels {channels}, width {width}, side {side}, batch {batch}, threads {threads}", flush=True)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    images, weight = torch.randn(batch, channels, side, side), torch.randn(width, channels, 7, 7)
    exact = gradients(images.double(), weight.double())
    for layout in (torch.channels_last, torch.contiguous_format):
        for _ in range(2):
            found = gradients(*(t.clone(memory_format=layout) for t in (images, weight)))
            for a, b in zip(found, exact):
                assert (a - b).abs().max() <= 1e-4 * b.abs().max(), "wrong gradient"
print("end")
"""


def test_the_strided_7x7_stem_is_not_affected():
    """It has one or three input channels, fewer than any vector register holds."""
    few = [(3, 8, 64, 7, 1), (1, 8, 64, 2, 2), (3, 12, 32, 7, 3), (1, 16, 84, 2, 1), (3, 64, 64, 1, 2)]
    survives(STEM, few)


@pytest.mark.slow
@pytest.mark.parametrize("channels", CHANNELS)
def test_the_strided_7x7_stem_at_many_sizes(channels):
    sides = [side for side in SIDES if side <= 96]
    survives(STEM, [(channels, w, s, b, t) for w in WIDTHS for s in sides for b in (1, 7) for t in (1, 3)])
