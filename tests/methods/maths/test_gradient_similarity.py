from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acr.methods.maths import gradient_similarity as module
from acr.methods.maths.gradient_similarity import gradient_similarity


def loop(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The gradient of each sample's cross-entropy, one after the other."""
    network.eval()
    rows = []
    for image, label in zip(images, labels, strict=True):
        grads = torch.autograd.grad(F.cross_entropy(network(image[None]), label[None]), list(network.parameters()))
        rows.append(torch.cat([g.flatten() for g in grads]))
    return torch.stack(rows)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("side", [3, 12])
@pytest.mark.parametrize("by_position", [None, False, True])
def test_equals_a_loop_over_samples(make_network, make_batch, monkeypatch, inplace, side, by_position) -> None:
    if by_position is not None:
        monkeypatch.setattr(module, "_few_positions", lambda *_: by_position)
        monkeypatch.setattr(module, "_GRADIENTS", 60)
        monkeypatch.setattr(module, "_TAPS", 100)
    network = make_network(inplace=inplace)
    (images_a, labels_a), (images_b, labels_b) = make_batch(5, 1, side), make_batch(7, 2, side)
    a, b = loop(network, images_a, labels_a), loop(network, images_b, labels_b)
    found = gradient_similarity(network, images_a, labels_a, images_b, labels_b)
    expected = F.cosine_similarity(a[:, None], b[None], dim=2)
    torch.testing.assert_close(found.samples, expected)
    torch.testing.assert_close(found.batch, F.cosine_similarity(a.mean(0)[None], b))


@pytest.mark.parametrize("options", [{"stride": (1, 2), "padding": (2, 0)}, {"dilation": (2, 1)}, {"kernel_size": 1}])
def test_taps_are_those_of_unfold(make_batch, options) -> None:
    images, _ = make_batch(2, side=7)
    layer = nn.Conv2d(3, 2, **{"kernel_size": (3, 2), **options})
    expected = F.unfold(images, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    assert torch.equal(module._taps(layer, images), expected)


def test_group_norm_and_frozen_layers(make_network, make_batch) -> None:
    network = make_network()
    network.norm = nn.GroupNorm(2, 8).double()
    nn.init.normal_(network.norm.weight)
    network.stem.requires_grad_(False)
    (images_a, labels_a), (images_b, labels_b) = make_batch(3, 1), make_batch(4, 2)
    found = gradient_similarity(network, images_a, labels_a, images_b, labels_b)
    start = network.stem.weight.numel()
    network.requires_grad_(True)
    a, b = loop(network, images_a, labels_a)[:, start:], loop(network, images_b, labels_b)[:, start:]
    expected = F.cosine_similarity(a[:, None], b[None], dim=2)
    torch.testing.assert_close(found.samples, expected)


def test_one_sample_against_itself_and_byte_images(make_network) -> None:
    class Bytes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = make_network()

        def forward(self, images: Tensor) -> Tensor:
            return self.inner(images.double() / 255)

    images = torch.randint(256, (1, 3, 6, 6), dtype=torch.uint8)
    found = gradient_similarity(Bytes(), images, torch.tensor([1]), images, torch.tensor([1]))
    assert found.samples.item() == pytest.approx(1)
    assert found.batch.item() == pytest.approx(1)


def test_nothing_to_compare_with(make_network, make_batch) -> None:
    network, (images, labels) = make_network(), make_batch(3)
    assert gradient_similarity(network, images, labels, images[:0], labels[:0]).samples.shape == (3, 0)
    assert gradient_similarity(network, images[:0], labels[:0], images, labels).batch.tolist() == [0, 0, 0]


def test_single_precision_is_close(make_network, make_batch) -> None:
    network, (images, labels) = make_network(), make_batch(6)
    exact = gradient_similarity(network, images, labels, images, labels)
    single = gradient_similarity(network.float(), images.float(), labels, images.float(), labels)
    assert single.samples.dtype == torch.float32
    torch.testing.assert_close(single.samples.double(), exact.samples, atol=1e-5, rtol=0)


def test_zero_gradients_are_similar_to_nothing(make_network, make_batch) -> None:
    network = make_network()
    images, labels = make_batch(3)
    found = gradient_similarity(network, images, labels, images, labels, loss=lambda logits, _: 0 * logits.sum(1))
    assert found.samples.abs().sum() == 0
    assert found.batch.abs().sum() == 0


def test_leaves_the_network_as_it_was(make_network, make_batch) -> None:
    network = make_network().train()
    network.norm.eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    images, labels = make_batch(3)
    with torch.no_grad():
        gradient_similarity(network, images, labels, images, labels)
    assert network.training
    assert network.stem_norm.training
    assert not network.norm.training
    assert all(p.grad is None for p in network.parameters())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())


class Doubled(nn.Linear):
    """Not what its base class computes."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, 2 * self.weight, self.bias)


class OnRows(nn.Module):
    """Lays the positions of all images one below the other, so that rows are not samples."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        rows = x.permute(0, 2, 3, 1)
        return self.layer(rows.reshape(-1, x.shape[1])).view(*rows.shape[:3], -1).permute(0, 3, 1, 2)


class WithoutCalling(nn.Module):
    """Uses the weights of a layer that is never called."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.layer.weight)


AWKWARD = {
    "another norm": ("norm", lambda: nn.LayerNorm(3)),
    "groups": ("conv", lambda: nn.Conv2d(4, 8, 3, 2, 1, groups=2)),
    "used twice": ("shortcut", None),
    "a layer of somebody's own": ("head", lambda: Doubled(8, 4)),
    "spectral norm": ("head", lambda: nn.utils.spectral_norm(nn.Linear(8, 4))),
    "a linear layer at every position": ("relu", lambda: nn.Linear(3, 3)),
    "rows that are not samples": ("norm", lambda: OnRows(nn.Linear(8, 8))),
    "a layer that is not called": ("head", lambda: WithoutCalling(nn.Linear(8, 4, bias=False))),
}  # fmt: skip


@pytest.mark.parametrize("case", AWKWARD)
def test_what_cannot_be_taken_apart_is_taken_one_sample_at_a_time(make_network, make_batch, case) -> None:
    name, make = AWKWARD[case]
    torch.manual_seed(0)
    network = make_network()
    (images_a, labels_a), (images_b, labels_b) = make_batch(3, 1), make_batch(4, 2)
    if case == "a linear layer at every position":
        network.stem_norm = nn.Sequential(network.stem_norm, nn.MaxPool2d(2))
        network.conv, network.shortcut = nn.Conv2d(4, 8, 3, padding=1).double(), nn.Conv2d(4, 8, 1).double()
    setattr(network, name, (make() if make else network.conv).double())
    with pytest.raises(module._NotByLayersError):  # noqa: PT012 - whichever of the two notices it
        module._refuse_unsupported(network)
        module._layer_by_layer(network.eval(), images_a, labels_a, images_b, labels_b, module.cross_entropy_each, 1)
    found = gradient_similarity(network.train(), images_a, labels_a, images_b, labels_b)
    a, b = loop(network, images_a, labels_a), loop(network, images_b, labels_b)
    torch.testing.assert_close(found.samples, F.cosine_similarity(a[:, None], b[None], dim=2))
    torch.testing.assert_close(found.batch, F.cosine_similarity(a.mean(0)[None], b))
    grouped = gradient_similarity(network, images_a, labels_a, images_b, labels_b, group=2)
    means = torch.stack([b[:2].mean(0), b[2:].mean(0)])
    torch.testing.assert_close(grouped.samples, F.cosine_similarity(a[:, None], means[None], dim=2))
