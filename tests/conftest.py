"""What all tests share: a small stream that a small network learns in seconds, and settings of the libraries."""

import os

os.environ.setdefault("MKL_CBWR", "AUTO")  # as the command line sets it, before PyTorch is imported

import pytest
import torch
from hypothesis import settings
from torch import nn

from acr.networks.resnet import ResNet18
from acr.testing import toy_data

# No test asserts a time: on a busy machine the first example of a property may well take a second.
settings.register_profile("acr", deadline=None)
settings.load_profile("acr")


@pytest.fixture(autouse=True)
def _one_thread():
    """Tests run side by side; more threads each would only get into each other's way. `make test-cpus` tries three."""
    torch.set_num_threads(int(os.environ.get("ACR_TEST_THREADS", "1")))


@pytest.fixture(autouse=True)
def _no_data_from_outside(monkeypatch, tmp_path_factory):
    monkeypatch.delenv("ACR_DATA", raising=False)
    monkeypatch.setenv("ACR_CACHE", str(tmp_path_factory.getbasetemp() / "acr-cache"))


@pytest.fixture
def blob_data():
    return toy_data()


@pytest.fixture
def plain_convolutions(monkeypatch):
    """PyTorch's own convolutions, which take half the time of oneDNN's where networks and batches are tiny.

    For tests of what a method does. Tests that compare runs bit for bit keep what users have.
    """
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)


@pytest.fixture
def shallow_networks(monkeypatch):
    """ResNets with one block per stage instead of two: for tests of what a method does, which take a third less time.

    All kinds of layers and shortcuts are still there.
    """
    whole = ResNet18.__init__

    def shallow(self, *args, **kwargs):
        whole(self, *args, **kwargs)
        self.stages = nn.Sequential(*(nn.Sequential(stage[0]) for stage in self.stages))

    monkeypatch.setattr(ResNet18, "__init__", shallow)
