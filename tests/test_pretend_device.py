"""The pretend accelerator keeps CUDA's rules and the CPU's numbers."""

import copy
import io
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pretend_device import DEVICE, DeviceTensor, PretendDevice, Traffic
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vmap

from acr.networks import resnet18
from acr.testing.rehearsal import different_tensors


@pytest.fixture
def device():
    with PretendDevice() as device:
        yield device


def draws(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def conv_net(layout=torch.contiguous_format):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 16, 3, 2)]
        net = nn.Sequential(*layers, nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        net.append(nn.Linear(16, 5))
    return net.to(memory_format=layout)


IMAGES, LABELS = draws(6, 3, 8, 8), torch.tensor([0, 1, 2, 3, 4, 0])


# Host and device tensors in one operation


MIXED = {
    "sum": lambda host, there: host + there,
    "sum, the other way round": lambda host, there: there + host,
    "in place on the device": lambda host, there: there.add_(host),
    "in place on the host": lambda host, there: host.add_(there),
    "device number into a host tensor": lambda host, there: host.add_(there.sum()),
    "device number into a host number": lambda host, there: host.sum().add_(there.sum()),
    "host tensor times device number": lambda host, there: host * there.sum(),
    "matrix product": lambda host, there: host.view(2, 2) @ there.view(2, 2),
    "cat": lambda host, there: torch.cat([host, there]),
    "stack": lambda host, there: torch.stack([host, there]),
    "stack of numbers": lambda host, there: torch.stack([host.sum(), there.sum()]),
    "where": lambda host, there: torch.where(host > 0, there, there),
    "gather": lambda host, there: there.gather(0, host.long()),
    "index_select": lambda host, there: there.index_select(0, host.long()),
    "scatter": lambda host, there: there.scatter_(0, host.long(), there),
    "index_copy": lambda host, there: there.index_copy_(0, torch.arange(4), there),
    "masked_fill": lambda host, there: there.masked_fill(host > 0, 0.0),
    "masked_select": lambda host, there: there.masked_select(host > 0),
    "cross entropy": lambda host, there: F.cross_entropy(there.view(2, 2), torch.tensor([0, 1])),
    "linear": lambda host, there: F.linear(there, host),
    "equal": lambda host, there: torch.equal(host, there),
    "foreach": lambda host, there: torch._foreach_add_([host], [there]),
    "out": lambda host, there: torch.add(there, 1, out=host),
    "out for a number": lambda host, there: torch.add(there.sum(), 1, out=host.sum()),
    "host indexed by the device": lambda host, there: host[there.long()],
    "host masked by the device": lambda host, there: host[there > 0],
    "host written at device positions": lambda host, there: host.index_put_((there.long(),), host),
    "device values at host positions of the host": lambda host, there: host.index_put_((torch.arange(4),), there),
    "host values at positions of the device": lambda host, there: there.index_put_((torch.arange(4),), host),
}


@pytest.mark.parametrize("mix", MIXED.values(), ids=MIXED)
def test_host_and_device_do_not_meet(device, mix):
    with pytest.raises(RuntimeError, match="on the same device"):
        mix(torch.zeros(4), device.put(torch.zeros(4)))


def test_nor_do_they_in_a_network_or_under_vmap(device):
    net = conv_net().to(device.device)
    with pytest.raises(RuntimeError, match="on the same device"):
        net(IMAGES)
    with pytest.raises(RuntimeError, match="on the same device"), torch.inference_mode():
        net(IMAGES)
    with pytest.raises(RuntimeError, match="on the same device"):
        vmap(torch.mul)(torch.ones(3, 2), device.put(torch.ones(3, 2)))


def test_host_numbers_may_meet_device_tensors(device):
    x = device.put(torch.arange(4.0))
    number = torch.tensor(2.0)
    for result, expected in {
        x * number: [0, 2, 4, 6],
        number - x: [2, 1, 0, -1],
        torch.maximum(x, number): [2, 2, 2, 3],
        x.masked_fill(x > 2, number): [0, 1, 2, 2],
        x.clone().fill_(number): [2, 2, 2, 2],
        x.clone().mul_(number): [0, 2, 4, 6],
        x // number: [0, 0, 1, 1],
        x + 2: [2, 3, 4, 5],
    }.items():
        assert device.read(result).tolist() == expected
    assert (device.waits, device.copies_in) == (0, 0)
    torch.where(x > 1, x, number)  # the one that copies the number first
    assert (device.waits, device.copies_in, device.bytes_in) == (0, 1, 4)


# Draws


DRAWN = {
    "rand": lambda d: torch.rand(3, device=d),
    "randn": lambda d: torch.randn(3, device=d),
    "randint": lambda d: torch.randint(0, 2, (3,), device=d),
    "randperm": lambda d: torch.randperm(3, device=d),
    "rand_like": lambda d: torch.rand_like(torch.zeros(3, device=d)),
    "rand_like of a host tensor": lambda d: torch.rand_like(torch.zeros(3), device=d),
    "uniform_": lambda d: torch.zeros(3, device=d).uniform_(),
    "normal_": lambda d: torch.zeros(3, device=d).normal_(),
    "bernoulli": lambda d: torch.bernoulli(torch.zeros(3, device=d)),
    "multinomial": lambda d: torch.multinomial(torch.ones(3, device=d), 1),
    "dropout": lambda d: F.dropout(torch.ones(3, device=d)),
    "a new layer": lambda d: nn.Linear(2, 2, device=d),
}


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_nothing_is_drawn_on_the_device(device, draw):
    with pytest.raises(RuntimeError, match="drawn on the pretend device"):
        draw(device.device)


def test_host_generators_draw_on_the_host_alone(device):
    generator = torch.Generator()
    for draw in (torch.rand, torch.randn, torch.randperm):
        with pytest.raises(RuntimeError, match="Expected a generator of the pretend device but found one of 'cpu'"):
            draw(3, device=device.device, generator=generator)
    with pytest.raises(RuntimeError, match="Expected a generator"):
        torch.zeros(3, device=device.device).uniform_(generator=generator)
    with pytest.raises(RuntimeError):
        torch.Generator(device=device.device)
    first = torch.rand(3, generator=generator.manual_seed(4))
    assert torch.equal(first, torch.rand(3, generator=torch.Generator().manual_seed(4)))
    assert F.dropout(device.put(first), training=False).shape == (3,)


# Waits


WAITS = {
    "item": (lambda x, mask: x[0].item(), 1),
    "float": (lambda x, mask: float(x[0]), 1),
    "int": (lambda x, mask: int(x[0]), 1),
    "bool": (lambda x, mask: bool(mask[0]), 1),
    "if": (lambda x, mask: 1 if (x > 5).any() else 0, 1),
    "position in a list": (lambda x, mask: [3, 4][(x > 5).any().long()], 1),
    "select at a device number": (lambda x, mask: x[x.long()[0]], 1),
    "a number of a tensor as an argument": (lambda x, mask: torch.full((2,), x[0]), 1),
    "max of Python": (lambda x, mask: max(x), 3),
    "in": (lambda x, mask: 3 in x, 1),
    "tolist": (lambda x, mask: x.tolist(), 1),
    "numpy by force": (lambda x, mask: x.numpy(force=True), 1),
    "list of device numbers": (lambda x, mask: torch.tensor([x[0], x[1]]), 2),
    "repr": (lambda x, mask: repr(x), 1),
    "format": (lambda x, mask: f"{x[1]:.2f}", 1),
    "cpu": (lambda x, mask: x.cpu(), 1),
    "to the host": (lambda x, mask: x.to("cpu"), 1),
    "to the host, not waiting": (lambda x, mask: x.to("cpu", non_blocking=True), 1),
    "copy_ to the host": (lambda x, mask: torch.zeros(4).copy_(x), 1),
    "assignment to the host": (lambda x, mask: torch.zeros(8).__setitem__(slice(4), x), 1),
    "host filled with a device number": (lambda x, mask: torch.zeros(8).fill_(x[0]), 1),
    "device number put into the host": (lambda x, mask: torch.zeros(8).index_put_((torch.arange(2),), x[0]), 1),
    "nonzero": (lambda x, mask: x.nonzero(), 1),
    "where": (lambda x, mask: torch.where(mask), 1),
    "argwhere": (lambda x, mask: torch.argwhere(mask), 1),
    "mask": (lambda x, mask: x[mask], 1),
    "two masks": (lambda x, mask: x.view(2, 2)[mask[:2], mask[2:]], 2),
    "mask of bytes": (lambda x, mask: x[mask.byte()], 1),
    "mask written to": (lambda x, mask: x.index_put_((mask,), x[:3] * 2), 1),
    "device number at a mask": (lambda x, mask: x.__setitem__(mask, x[0]), 1),
    "masked_select": (lambda x, mask: x.masked_select(mask), 1),
    "masked_fill with a device number": (lambda x, mask: x.masked_fill(mask, x[0]), 1),
    "index_fill with a device number": (lambda x, mask: x.index_fill(0, x.long(), x[0]), 1),
    "unique": (lambda x, mask: x.unique(), 1),
    "unique with counts": (lambda x, mask: x.unique(return_counts=True), 1),
    "unique_consecutive": (lambda x, mask: x.unique_consecutive(), 1),
    "bincount": (lambda x, mask: x.long().bincount(), 1),
    "repeat_interleave": (lambda x, mask: x.repeat_interleave(x.long()), 1),
    "one_hot of unknown width": (lambda x, mask: F.one_hot(x.long()), 1),
    "equal": (lambda x, mask: torch.equal(x, x), 1),
    "allclose": (lambda x, mask: torch.allclose(x, x), 1),
    "Cholesky factor": (lambda x, mask: torch.linalg.cholesky(torch.eye(3, device=x.device)), 1),
    # and no wait
    "repeat_interleave of known size": (lambda x, mask: x.repeat_interleave(x.long(), output_size=6), 0),
    "one_hot of known width": (lambda x, mask: F.one_hot(x.long(), 4), 0),
    "positions on the device": (lambda x, mask: x[x.long()], 0),
    "positions written to": (lambda x, mask: x.index_put_((x.long(),), x * 2), 0),
    "number at a mask": (lambda x, mask: x.__setitem__(mask, 0.0), 0),
    "host number at a mask": (lambda x, mask: x.__setitem__(mask, torch.tensor(0.0)), 0),
    "masked_fill": (lambda x, mask: x.masked_fill(mask, 0.0), 0),
    "where of three": (lambda x, mask: torch.where(mask, x, 0.0), 0),
    "sort": (lambda x, mask: (x.sort(), x.argsort(), x.topk(2), x.max(0), x.argmax()), 0),
    "sums": (lambda x, mask: (x.sum(), x.mean(), x.norm(), mask.any(), x.cumsum(0)), 0),
    "views": (lambda x, mask: (x[1:3], x.view(2, 2).T, x[None], list(x), len(x), x.shape), 0),
    "known factories": (lambda x, mask: (torch.zeros_like(x), x.new_ones(3), torch.arange(4, device=x.device)), 0),
    "device to itself": (lambda x, mask: (x.to(DEVICE), x.to(DEVICE, torch.float64), x.clone(), x.double()), 0),
    "comparison": (lambda x, mask: (x == x, x > 2, mask & mask), 0),
}


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize(("work", "waits"), WAITS.values(), ids=WAITS)
def test_waits(device, work, waits):
    x = device.put(torch.arange(4.0))
    mask = device.put(torch.tensor([False, True, True, True]))
    with device.counting() as counts:
        work(x, mask)
    assert counts.waits == waits, counts
    assert counts.copies_in == 0, counts


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("waiting", [name for name, (_, waits) in WAITS.items() if waits])
def test_waits_come_with_the_values_of_the_cpu(device, waiting):
    x, mask = torch.arange(4.0), torch.tensor([False, True, True, True])
    if waiting not in ("repr", "position in a list"):
        work = WAITS[waiting][0]
        assert_same(work(device.put(x), device.put(mask)), work(x.clone(), mask), device)


def test_numpy_is_refused(device):
    x = device.put(torch.arange(3.0))
    for convert in (lambda: x.numpy(), lambda: np.asarray(x), lambda: np.array([x])):
        with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\) to copy"):
            convert()
    assert device.waits == 0


def test_backward_waits_too(device):
    """The gradient of a masked tensor looks for the mask's positions again; that of a copy is copied back."""
    x = device.put(torch.arange(4.0)).requires_grad_()
    picked = x[x > 1].sum()
    assert device.waits == 1
    picked.backward()
    assert device.waits == 2
    host = torch.ones(4, requires_grad=True)
    host.to(device.device).sum().backward()
    assert (device.waits, device.bytes_out) == (3, 16)
    assert host.grad.tolist() == [1, 1, 1, 1]


# Copies


def test_copies_to_the_device_are_counted_with_their_bytes(device):
    host = torch.arange(6, dtype=torch.uint8).view(2, 3)
    expected = Traffic()
    for copy_in, size in [
        (lambda: host.to(device.device), 6),
        (lambda: host.to(device.device, torch.float32), 24),  # converted before it travels
        (lambda: host.to(device="meta"), 6),
        (lambda: torch.tensor([1, 2, 3], device=device.device), 24),
        (lambda: torch.tensor(1.0, device=device.device), 4),
        (lambda: torch.as_tensor(np.ones(2), device=device.device), 16),
        (lambda: torch.as_tensor([1, 2], dtype=torch.uint8, device=device.device), 2),
        (lambda: torch.asarray([1.0], device=device.device), 4),
        (lambda: torch.zeros(2, device=device.device).new_tensor([1.0, 2.0]), 8),
        (lambda: torch.zeros(2, 3, device=device.device).copy_(host), 24),
        (lambda: torch.zeros(4, 3, device=device.device).__setitem__(slice(2), host), 24),
        (lambda: torch.zeros(3, device=device.device).__setitem__(0, 1.0), 4),
        (lambda: nn.Linear(2, 3, bias=False).to(device.device), 24),
    ]:
        copy_in()
        expected.add(Traffic(copies_in=1, blocking_copies_in=1, bytes_in=size))
        assert traffic(device.counts) == expected
    torch.zeros(0).to(device.device)  # nothing travels
    assert traffic(device.counts) == expected


def test_copies_that_do_not_block_are_distinguished(device):
    pinned = torch.zeros(4).pin_memory()
    pinned.to(device.device, non_blocking=True)
    torch.zeros(4, device=device.device).copy_(pinned, non_blocking=True)
    torch._foreach_copy_([device.put(pinned)], [torch.ones(4, pin_memory=True)], non_blocking=True)
    assert (device.copies_in, device.blocking_copies_in, device.bytes_in) == (3, 0, 48)
    with pytest.raises(RuntimeError, match="cannot pin"):
        device.put(pinned).pin_memory()


def test_copies_to_the_host_are_counted_with_their_bytes(device):
    x = device.put(torch.arange(6, dtype=torch.uint8).view(2, 3))
    x.cpu()
    assert (device.waits, device.bytes_out) == (1, 6)
    x.to("cpu", torch.float32)  # converted after it has travelled
    assert (device.waits, device.bytes_out) == (2, 12)
    torch.zeros(2, 3).copy_(x)
    assert (device.waits, device.bytes_out) == (3, 18)
    x[0, 0].item()
    assert (device.waits, device.bytes_out) == (4, 19)
    assert device.copies_in == 0


def test_host_positions_are_copied_to_the_device(device):
    x = device.put(torch.arange(6.0).view(2, 3))
    for index, copies, size, *waits in [
        (torch.tensor([1, 0]), 1, 16),
        ((torch.tensor([1, 0]), torch.tensor([2, 2])), 2, 32),
        ((slice(None), torch.tensor([1])), 1, 8),
        ([0, 1, 1], 1, 24),
        ((slice(None), [2, 0]), 1, 16),
        (np.array([1]), 1, 8),
        ([True, False], 1, 2, 1),  # a mask of the device when it is used
        (torch.tensor([False, True]), 1, 8),
        (torch.tensor([[True, False, True], [False, False, True]]), 2, 48),
        (torch.tensor(1), 0, 0),  # a number, read on the host
    ]:
        values = torch.arange(6.0).view(2, 3)
        with device.counting() as counts:
            picked = x[index]
        assert (counts.copies_in, counts.bytes_in) == (copies, size)
        assert counts.waits == sum(waits)
        assert torch.equal(device.read(picked), values[index])
        values[index] = values[index] * 2
        with device.counting() as counts:
            changed = x.clone()
            changed[index] = picked * 2
        assert counts.copies_in == copies
        assert torch.equal(device.read(changed), values)


# Attribution


def code_of_ours(source, name="src/acr/somewhere/file.py"):
    scope = {"torch": torch}
    exec(compile(source, f"/elsewhere/{name}", "exec"), scope)
    return scope


def test_traffic_is_attributed_to_the_line_that_caused_it(device):
    ours = code_of_ours("def read(x, then=None):\n    y = x.sum()\n    then and then(y)\n    return y.item()\n")
    inner = code_of_ours("def copy(y):\n    return y.cpu()\n", "src/acr/inner.py")
    x = device.put(torch.ones(3))
    ours["read"](x)
    assert device.by_line == {"src/acr/somewhere/file.py:4": Traffic(waits=1, bytes_out=4)}
    ours["read"](x, inner["copy"])
    ours["read"](x, lambda y: y.cpu())  # innermost of ours, not of the test
    assert {line: t.waits for line, t in device.by_line.items()} == {
        "src/acr/somewhere/file.py:4": 3,
        "src/acr/inner.py:2": 1,
        "src/acr/somewhere/file.py:3": 1,
    }


def test_backward_is_attributed_to_the_line_that_calls_it(device):
    ours = code_of_ours("def learn(loss):\n\n    loss.backward()\n")
    x = device.put(torch.ones(3)).requires_grad_()
    x.register_hook(lambda gradient: print(gradient[0].item()))
    ours["learn"](x.sum())
    assert list(device.by_line) == ["src/acr/somewhere/file.py:3"]


def test_what_no_line_of_ours_caused_is_attributed_to_the_test(device):
    device.put(torch.ones(3)).sum().item()
    (line,) = device.by_line
    name, number = line.split(":")
    assert name == "test_pretend_device.py"
    source = Path(__file__).read_text().splitlines()
    assert ".sum().item()" in source[int(number) - 1]


def test_counting_a_block_resetting_and_printing(device):
    x = device.put(torch.ones(3))
    x.tolist()
    with device.counting() as outer:
        x.tolist()
        with device.counting() as inner:
            torch.ones(2).to(device.device)
        x.tolist()
    x.tolist()
    assert (device.waits, outer.waits, inner.waits) == (4, 2, 0)
    assert (device.copies_in, outer.copies_in, inner.copies_in) == (1, 1, 1)
    assert (device.bytes_in, device.bytes_out, outer.bytes_out) == (8, 48, 24)
    assert sum(t.waits for t in outer.by_line.values()) == 2
    assert str(outer).splitlines()[1].split() == ["2", "1", "(1)", "8", "24", "all"]
    device.reset()
    assert traffic(device.counts) == Traffic()
    assert device.by_line == {}


def test_tests_may_look_without_being_counted(device):
    x = torch.arange(3.0)
    there = device.put(x)
    assert there.device == device.device == torch.device("meta")
    assert isinstance(there, DeviceTensor)
    assert torch.equal(device.read(there), x)
    x += 1
    device.read(there).add_(1)
    there.requires_grad_().sum().backward()
    assert device.read(there).tolist() == [0, 1, 2]
    assert device.read(there.grad).tolist() == [1, 1, 1]
    assert traffic(device.counts) == Traffic()


# The block


def test_tensors_outlive_the_block_to_be_looked_at_only():
    with PretendDevice() as device:
        x = torch.ones(2, device=device.device)
    assert device.read(x).tolist() == [1, 1]
    assert repr(x) == "DeviceTensor(tensor([1., 1.]))"
    assert device.waits == 0
    with pytest.raises(RuntimeError, match="outside of its `with` block"):
        x + 1


def test_the_block_leaves_no_trace_even_after_an_error():
    def fail():
        with PretendDevice():
            raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            fail()
    assert type(torch.zeros(2, device="meta")) is Tensor
    with PretendDevice(), pytest.raises(RuntimeError, match="already"), PretendDevice():
        pass


def test_pickling_is_refused(device):
    with pytest.raises(TypeError, match="Copy it to the host"):
        torch.save(device.put(torch.ones(2)), io.BytesIO())


# Values


def in_place(d):
    x = draws(4, 5).to(d)
    x.add_(1).mul_(2).clamp_(0, 3)
    x[1].neg_()
    x[:, 2:4].zero_()
    x.T[0] = 7
    x += x.sum()
    x.t_().unsqueeze_(0).squeeze_(0)
    return x, x.reshape(-1)[3:].view(1, -1), x.data.fill_(2), x


def in_place_under_autograd(d):
    x = draws(4, 5).to(d).requires_grad_()
    y = x * 2
    y[1].mul_(3)
    y[:, 0] = 0
    y.t()[1].add_(x[:, 1])
    y.relu_().pow(2).sum().backward()
    return y, x.grad


def indexing(d):
    x, rows, mask = draws(6, 4).to(d).requires_grad_(), torch.tensor([3, 0, 3]).to(d), (draws(6, seed=1) > 0).to(d)
    y = x * 1
    y[rows, 1] = y[mask][0, 1]
    y.index_put_((rows,), x[:3], accumulate=True)
    picked = [y[rows], y[mask, 2], y[..., None, 1], y[rows[:, None], rows % 4], y.gather(1, rows[None] % 4)]
    sum(part.square().sum() for part in picked).backward()
    return *picked, y, x.grad, y.detach().index_select(0, rows), y.detach().index_add(0, rows, y.detach()[:3])


def joining(d):
    parts = [draws(2, 3, seed=i).to(d).requires_grad_() for i in range(3)]
    joined = torch.cat([torch.stack(parts).flatten(0, 1), *parts], 0)
    (joined.softmax(1) * joined.split(2)[0].sum()).sum().backward()
    return joined, *joined.unbind(1), *(part.grad for part in parts)


def layers(d, layout=torch.contiguous_format):
    net = conv_net(layout).to(d)
    images = IMAGES.clone().to(d).contiguous(memory_format=layout).requires_grad_()
    loss = F.cross_entropy(net(images), LABELS.to(d), label_smoothing=0.1)
    loss.backward()
    return loss, images.grad, *(p.grad for p in net.parameters()), *net.buffers()


def evaluation(d):
    net = conv_net().to(d).eval()
    with torch.no_grad():
        first = net(IMAGES.to(d))
    with torch.inference_mode():
        scores = net(IMAGES.to(d))
        parts = scores.reshape(-1), scores.contiguous(), scores.softmax(1).argmax(1), scores.double().to(torch.float32)
        made = torch.zeros(3, device=d) + torch.tensor(2.0)
        made[1:] *= 3
    return first, scores, *parts, made


def sampling(d):
    images, grid = IMAGES.clone().to(d).requires_grad_(), draws(6, 5, 5, 2).tanh().to(d).requires_grad_()
    view = F.grid_sample(images, grid, "bilinear", "border", align_corners=False)
    view.square().sum().backward()
    return view, images.grad, grid.grad, F.pad(images.detach(), [1] * 4), F.interpolate(view.detach(), scale_factor=2)


def per_sample_gradients(d):
    net = conv_net().to(d).eval()
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(parameters, image, label):
        return F.cross_entropy(functional_call(net, parameters, image[None]), label[None])

    found = vmap(grad(loss), (None, 0, 0))(parameters, IMAGES.to(d), LABELS.to(d))
    return tuple(found.values())


def batch_norm_under_vmap(d):
    net = conv_net().to(d)
    parameters, averages = dict(net.named_parameters()), {n: b.clone() for n, b in net.named_buffers()}
    averages = {name: torch.stack([value] * 2) for name, value in averages.items()}

    def scores(averages, images):
        return functional_call(net, {**parameters, **averages}, images)

    out = vmap(scores)(averages, IMAGES.to(d).view(2, 3, 3, 8, 8))
    return out, *torch.autograd.grad(out.square().sum(), list(parameters.values())), *averages.values()


def second_derivatives(d):
    x = draws(5).to(d).requires_grad_()
    (first,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad((first * x).sum(), x)
    return first, second, torch.func.jacrev(lambda x: x.outer(x).tanh())(x.detach())


def forward_mode(d):
    net = conv_net().to(d)
    values = {name: p.detach() for name, p in net.named_parameters()}
    along = {name: draws(*p.shape, seed=3).to(d) for name, p in values.items()}

    def losses(values):
        buffers = {name: b.clone() for name, b in net.named_buffers()}
        scores = functional_call(net, {**values, **buffers}, IMAGES.to(d))
        return F.cross_entropy(scores, LABELS.to(d), reduction="none")

    return jvp(losses, (values,), (along,))


def made_there(d):
    x = draws(2, 3).to(d)
    made = torch.zeros(2, device=d), torch.ones(2, dtype=torch.uint8, device=d), torch.full((2,), 3.5, device=d)
    made += torch.arange(5, device=d), torch.linspace(0, 1, 4, device=d), torch.eye(3, device=d), torch.ones_like(x)
    made += (
        x.new_zeros(4),
        x.new_full((2,), 2.0),
        torch.zeros_like(IMAGES, device=d),
        torch.scalar_tensor(2.0, device=d),
    )
    made += torch.zeros_like(x, device="cpu"), torch.tril_indices(3, 3, device=d), torch.empty(2, 3, device=d).fill_(1)
    made += torch.empty_like(IMAGES.to(d), memory_format=torch.channels_last).zero_(), torch.empty(0, device=d)
    return made


def outputs_given(d):
    x, sums, wrong = draws(3, 2).to(d), torch.zeros(3, 2).to(d), torch.empty(0, device=d)
    torch.addcmul(x[:, 0], x[:, 1], x[:, 1], value=-1, out=sums[:, 1])
    torch.mul(x, 2, out=wrong)
    return sums, wrong, torch.zeros(2, device=d).resize_(3, 2).fill_(1)


PROGRAMS = {
    "in place": in_place,
    "in place under autograd": in_place_under_autograd,
    "indexing": indexing,
    "cat, stack, split": joining,
    "convolution, batch norm, cross entropy": layers,
    "channels last": lambda d: layers(d, torch.channels_last),
    "no_grad and inference_mode": evaluation,
    "grid_sample": sampling,
    "vmap(grad)": per_sample_gradients,
    "batch norm under vmap": batch_norm_under_vmap,
    "second derivatives": second_derivatives,
    "forward mode": forward_mode,
    "factories": made_there,
    "out=": outputs_given,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_values_are_those_of_the_cpu(device, program):
    there, here = program(device.device), program(torch.device("cpu"))
    assert_same(there, here, device)
    assert device.waits == (4 if program is indexing else 0), device.counts  # two masks, and again backward


@pytest.mark.parametrize(
    ("layout", "settings"),
    [
        (torch.contiguous_format, {}),
        (torch.contiguous_format, {"momentum": 0.9, "weight_decay": 1e-3, "foreach": True}),
        (torch.channels_last, {"momentum": 0.5, "nesterov": True}),
        (torch.channels_last, {"foreach": True}),
    ],
)
def test_training_is_that_of_the_cpu_and_waits_for_nothing(device, layout, settings):
    images, labels = draws(5, 6, 3, 8, 8, seed=2), torch.arange(30).view(5, 6) % 5

    def train(d, read=lambda loss: None):
        net = conv_net(layout).to(d)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, **settings)
        data, targets = images.to(d), labels.to(d)
        losses = []
        for step in range(5):
            with device.counting() as counts:
                loss = F.cross_entropy(net(data[step]), targets[step])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                read(loss)
            losses.append(loss.detach())
        return losses, counts, net, optimizer

    losses, counts, net, optimizer = train(device.device)
    assert traffic(counts) == Traffic(), counts
    expected, _, cpu_net, cpu_optimizer = train(torch.device("cpu"))
    assert_same(losses, expected, device)
    assert_same(net.state_dict(), cpu_net.state_dict(), device)
    assert_same(optimizer.state_dict()["state"], cpu_optimizer.state_dict()["state"], device)
    _, counts, _, _ = train(device.device, read=Tensor.item)
    assert traffic(counts) == Traffic(waits=1, bytes_out=4)


def test_a_network_of_ours_trains_there_as_here(device):
    def train(d):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            net = resnet18(4, width=8, head="proxy", mean=[0.5] * 3, std=[0.2] * 3).to(d)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        images = (draws(4, 3, 8, 8) * 40 + 128).clamp(0, 255).byte()
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(net(images.to(d)), torch.arange(4).to(d)).backward()
            optimizer.step()
        return net.state_dict()

    there, here = train(device.device), train(torch.device("cpu"))
    assert device.waits == 0
    assert different_tensors({name: device.read(value) for name, value in there.items()}, here) == []


# Modules


def test_moving_a_module_keeps_its_parameters(device):
    """So that an optimiser made before the move optimises what the module has after it."""
    net = conv_net()
    before = list(net.parameters())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.to(device.device)
    assert all(a is b for a, b in zip(before, net.parameters(), strict=True))
    assert all(isinstance(p, nn.Parameter) and p.requires_grad and p.device == DEVICE for p in before)
    weights = device.read(net[0].weight)
    net(IMAGES.to(device.device)).sum().backward()
    optimizer.step()
    assert not torch.equal(device.read(net[0].weight), weights)
    device.reset()
    net.cpu()
    assert (device.waits, device.copies_in) == (len(net.state_dict()) + len(before), 0)  # gradients move as well
    assert all(type(tensor) is Tensor for tensor in net.state_dict().values())


@pytest.mark.parametrize("where", ["host", "device"])
def test_state_dicts_go_there_and_back(device, where, recwarn):
    source, target = conv_net(), conv_net().to(device.device)
    with torch.no_grad():
        for value in source.state_dict().values():
            value.add_(1)
    if where == "device":
        source.to(device.device)
    device.reset()
    target.load_state_dict(source.state_dict())
    assert device.copies_in == (len(target.state_dict()) if where == "host" else 0)
    assert device.waits == 0
    assert_same(target.state_dict(), {n: device.read(v) for n, v in source.state_dict().items()}, device)
    back = conv_net()
    back.load_state_dict(target.state_dict())
    assert device.waits == len(back.state_dict())
    assert_same(target.state_dict(), back.state_dict(), device)
    assert not recwarn.list


def test_optimizer_state_goes_there_and_back(device):
    def stepped(d):
        net = conv_net().to(d)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        net(IMAGES.to(d)).sum().backward()
        optimizer.step()
        return optimizer

    here, there = stepped("cpu"), stepped(device.device)
    there.load_state_dict(here.state_dict())
    assert_same(there.state_dict()["state"], here.state_dict()["state"], device)
    assert there.state_dict()["state"][0]["momentum_buffer"].device == DEVICE


def test_deep_copies_are_copies(device):
    net = conv_net(torch.channels_last).to(device.device)
    net(IMAGES.to(device.device)).sum().backward()
    device.reset()
    copied = copy.deepcopy(net)
    assert traffic(device.counts) == Traffic()
    assert_same(copied.state_dict(), {n: device.read(v) for n, v in net.state_dict().items()}, device)
    for one, other in zip(copied.parameters(), net.parameters(), strict=True):
        assert isinstance(one, nn.Parameter)
        assert one.requires_grad
        assert one.stride() == other.stride()
        assert torch.equal(device.read(one.grad), device.read(other.grad))
    with torch.no_grad():
        copied[0].weight.zero_()
    assert device.read(net[0].weight).any()
    shared = device.put(torch.ones(2))
    first, second = copy.deepcopy([shared, shared])
    assert first is second


def test_data_can_be_replaced(device):
    x = device.put(torch.zeros(2)).requires_grad_()
    x.data = device.put(torch.ones(3))
    (x * 2).sum().backward()
    assert device.read(x).tolist() == [1, 1, 1]
    assert device.read(x.grad).tolist() == [2, 2, 2]
    assert device.waits == 0


# What it cannot do


def test_there_is_no_autocast(device):
    """PyTorch has none for this device, and that of the CPU passes over it as it passes over a GPU."""
    with pytest.raises(RuntimeError):
        torch.autocast(device.device.type, dtype=torch.bfloat16)
    x = device.put(torch.ones(2, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.float32


def traffic(counts):
    return Traffic(counts.waits, counts.copies_in, counts.blocking_copies_in, counts.bytes_in, counts.bytes_out)


def assert_same(there, here, device):
    """Equal in structure, type, shape, strides and every bit."""
    if isinstance(here, Tensor):
        assert (there.dtype, there.shape, there.stride()) == (here.dtype, here.shape, here.stride())
        values = device.read(there)
        a, b = (x.detach().contiguous().reshape(-1).view(torch.uint8) for x in (values, here))
        assert torch.equal(a, b), f"differs by {(values.double() - here.double()).abs().max()}"
    elif isinstance(here, dict):
        assert there.keys() == here.keys()
        for name in here:
            assert_same(there[name], here[name], device)
    elif isinstance(here, (list, tuple)):
        for one, other in itertools.zip_longest(there, here):
            assert_same(one, other, device)
    elif isinstance(here, np.ndarray):
        np.testing.assert_array_equal(there, here)
    else:
        assert there == here
