from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acr.methods.maths.fitting import cutmix, learning_rates


def test_learning_rates_of_the_first_epochs() -> None:
    printed = [0.005, 0.05, 0.05, 0.02525, 0.05, 0.0428, 0.0253, 0.0077, 0.05]
    assert learning_rates(9) == pytest.approx(printed, abs=6e-5)
    assert learning_rates(0) == []


def test_learning_rates_are_torchs_warm_restarts() -> None:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimiser, T_0=1, T_mult=2, eta_min=5e-4)
    rates = []
    for _ in range(69):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    assert learning_rates(70)[1:] == pytest.approx(rates)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_cutmix_share_is_the_share_of_pixels(seed: int, count: int, height: int, width: int, floating: bool) -> None:
    labels = torch.arange(count)
    images = (labels[:, None, None, None] + 1).expand(count, 3, height, width).to(torch.uint8)
    images = images.float() if floating else images
    before = images.clone()
    mixed, own, partner, share = cutmix(images, labels, torch.Generator().manual_seed(seed))
    assert torch.equal(images, before)
    assert mixed.dtype == images.dtype
    assert sorted(partner.tolist()) == own.tolist() == labels.tolist()
    assert 0 <= share <= 1
    for image, a, b in zip(mixed, own, partner, strict=True):
        kept = (image == a + 1).double().mean().item()
        if a == b:
            assert kept == 1
        else:
            assert kept == pytest.approx(share)
            assert (image == b + 1).double().mean().item() == pytest.approx(1 - share)


def test_cutmix_keeps_about_the_share_that_clipping_allows() -> None:
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.zeros(2, 1, 256, 256), torch.arange(2)
    shares = torch.tensor([cutmix(images, labels, generator)[3] for _ in range(3000)])
    # λ is uniform, the box of side √(1-λ) = a loses what its uniform centre puts outside: 1 - E(a - a²/4)² = .679.
    assert shares.mean().item() == pytest.approx(0.679, abs=0.02)
    assert shares.min() < 0.2
