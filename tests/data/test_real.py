"""The published data sets themselves, where ``ACR_TEST_DATA`` names a folder that has them."""

import os
from pathlib import Path

import pytest

from acr.data.catalog import CATALOG, locate
from acr.data.inspect import check
from acr.data.loading import load_dataset

ROOT = os.environ.get("ACR_TEST_DATA", "")

pytestmark = pytest.mark.skipif(not ROOT, reason="ACR_TEST_DATA names no folder with the published data sets")


@pytest.mark.parametrize("name", ["split-cifar10", "split-cifar100", "split-mini-imagenet", "split-tiny-imagenet"])
def test_check_passes(name: str) -> None:
    if locate(CATALOG[name], Path(ROOT)) is None:
        pytest.skip(f"{name} is not in {ROOT}")
    report = check(name, data_root=ROOT, quiet=True)
    assert report.ok, report.errors
    assert report.facts["classes"] == CATALOG[name].classes
    assert not any("mean" in warning or "deviation" in warning for warning in report.warnings)


def test_the_constants_of_cifar100() -> None:
    if locate(CATALOG["split-cifar100"], Path(ROOT)) is None:
        pytest.skip(f"CIFAR-100 is not in {ROOT}")
    data = load_dataset("split-cifar100", data_root=ROOT, quiet=True)
    mean, std = data.train.statistics()
    assert mean == pytest.approx((0.50707, 0.48655, 0.44092), abs=1e-5)
    assert std == pytest.approx((0.26733, 0.25644, 0.27615), abs=1e-5)
    assert set(data.train.counts().values()) == {500}
    assert set(data.test.counts().values()) == {100}
