import numpy as np
import pytest
import torch

from acr.errors import InputError
from acr.evaluation.scenarios import DrawnAtEvaluation, released_ood_images
from acr.methods.second_views import wrapped_view
from acr.networks import resnet18
from acr.protocols import QUIRKS, Protocol, hash_set_order
from acr.shift import corrupt_float, wrapped_bytes

MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)


def images(n=4, side=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=generator)


def test_sound_has_no_quirk_and_published_all():
    assert not Protocol.make("sound").quirks
    assert Protocol.make("published").quirks == set(QUIRKS)
    one = Protocol.make("sound", on=["unseen-outputs"])
    assert one.quirks == {"unseen-outputs"}
    assert one.headline == "all"
    assert Protocol.make("published", off=["unseen-outputs"]).headline == "seen"


def test_unknown_names():
    for call in (lambda: Protocol.make("fair"), lambda: Protocol.make(on=["x"]), lambda: "x" in Protocol()):
        with pytest.raises(InputError, match="There is no"):
            call()


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (30, [*range(32, 40), 30, 31]),
        (60, [*range(64, 70), *range(60, 64)]),
        (90, [*range(96, 100), *range(90, 96)]),
        (0, list(range(10))),
    ],
)
def test_hash_order_of_ten_labels(first, expected):
    assert hash_set_order(list(range(first, first + 10))) == expected


def test_hash_order_of_twenty_labels():
    assert hash_set_order(list(range(120, 140))) == [*range(128, 140), *range(120, 128)]


def test_replay_border():
    published = Protocol.make("published")
    assert Protocol().replay_border("split-cifar100", 4, MEAN) == (4, None)
    assert published.replay_border("split-cifar100", 4, MEAN) == (4, MEAN)
    assert published.replay_border("split-tiny-imagenet", 4, MEAN) == (1, MEAN)


def test_released_ood_images_reach_the_network_unnormalised():
    """What the network sees after its own normalisation is the corrupted wrapped byte over 255, as it is."""
    network = resnet18(2, width=1, mean=MEAN, std=STD)
    plain = images()
    handed = released_ood_images(plain, "fog", 1, "imagenet-c", 3, [5, 6, 7, 8], MEAN, STD)
    expected = corrupt_float(wrapped_bytes(plain, MEAN, STD), "fog", 1, "imagenet-c", 3, [5, 6, 7, 8])
    torch.testing.assert_close(network.normalise(handed), expected, atol=1e-5, rtol=0)


def test_second_view_of_the_released_program():
    """With the quirk, the view is made from wrapped bytes and reaches the network as bytes over 255."""
    network = resnet18(2, width=1, mean=MEAN, std=STD)
    plain = images()
    seen = []

    def view(bytes_):
        seen.append(bytes_)
        return bytes_

    handed = wrapped_view(plain, view, network.mean, network.std)
    wrapped = wrapped_bytes(plain, MEAN, STD)
    assert (seen[0].int() - wrapped.int()).abs().remainder(255).max() <= 1  # float rounding may cut one level lower
    torch.testing.assert_close(network.normalise(handed), seen[0].float() / 255, atol=1e-5, rtol=0)


def test_fresh_noise_differs_by_stage_and_fixed_noise_does_not():
    test = images(6).numpy()
    positions = np.array([4, 1])

    def scenario(fresh, wrapped):
        return DrawnAtEvaluation(test, "gaussian_noise", 1, "imagenet-c", 0, MEAN, STD, wrapped, fresh)

    for wrapped in (False, True):
        fixed, fresh = scenario(False, wrapped), scenario(True, wrapped)
        assert fixed.name == "gaussian_noise/1"
        assert torch.equal(fixed.images(positions, 0), fixed.images(positions, 1))
        assert not torch.equal(fresh.images(positions, 0), fresh.images(positions, 1))
        assert torch.equal(fresh.images(positions, 1), fresh.images(positions, 1))
        assert torch.equal(fixed.images(positions[::-1].copy(), 0), fixed.images(positions, 0).flip(0))
