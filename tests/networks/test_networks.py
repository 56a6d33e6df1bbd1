import pytest
import torch

from acr.errors import InputError
from acr.networks import resnet18


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def test_parameter_counts_of_the_paper():
    linear, proxy = resnet18(100), resnet18(100, head="proxy")
    assert parameters(linear.encoder) == 11_168_832
    assert parameters(linear.head) == 51_300
    assert parameters(proxy.head) == 51_200


@pytest.mark.parametrize("side", [8, 9, 16, 28, 32])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("head", ["linear", "proxy"])
def test_any_size_and_channels(side, channels, head):
    network = resnet18(7, width=2, head=head, channels=channels)
    images = torch.randint(0, 256, (3, channels, side, side), dtype=torch.uint8)
    assert network(images).shape == (3, 7)
    features = network.features(images)
    assert features.shape == (3, 16)
    assert (features >= 0).all()


def test_normalisation_is_inside():
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
    network = resnet18(2, width=1, mean=mean, std=std)
    images = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    expected = (images.float() / 255 - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1)
    torch.testing.assert_close(network.normalise(images), expected)
    torch.testing.assert_close(network.normalise(images.float() / 255), expected)
    network.eval()
    torch.testing.assert_close(network(images), network(images.float() / 255))


def test_proxy_scores_are_cosines_over_the_temperature():
    network = resnet18(4, width=1, head="proxy", temperature=0.5)
    features = torch.rand(3, 8)
    expected = torch.nn.functional.cosine_similarity(features[:, None], network.head.proxies[None], dim=2) / 0.5
    torch.testing.assert_close(network.head(features), expected, rtol=1e-4, atol=1e-4)


def test_one_small_image_in_training_mode_uses_running_averages():
    """An 8x8 image ends in a 1x1 map: one value a channel has no variance."""
    network = resnet18(3, width=2, channels=1)
    network.train()
    before = network.encoder.stages[3][1].bn2.running_mean.clone()
    scores = network(torch.randint(0, 256, (1, 1, 8, 8), dtype=torch.uint8))
    scores.sum().backward()
    assert torch.isfinite(scores).all()
    assert torch.equal(before, network.encoder.stages[3][1].bn2.running_mean)


@pytest.mark.parametrize("head", ["linear", "proxy"])
def test_growing_keeps_the_old_outputs(head):
    network = resnet18(3, width=1, head=head)
    features = torch.rand(2, 8)
    before = network.head(features)
    network.head.grow(5)
    assert network.num_classes == 5
    torch.testing.assert_close(network.head(features)[:, :3], before)


def test_refusals():
    with pytest.raises(InputError, match="one class or more"):
        resnet18(0)
    with pytest.raises(InputError, match="'linear' or 'proxy'"):
        resnet18(2, head="round")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="width"):
        resnet18(2, width=0)
