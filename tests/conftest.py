"""What all tests share: a small stream that a small network learns in seconds."""

import pytest
import torch

from acr.testing import toy_data


@pytest.fixture(autouse=True)
def _one_thread():
    """Tests run side by side; more threads each would only get into each other's way."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_data_from_outside(monkeypatch, tmp_path_factory):
    monkeypatch.delenv("ACR_DATA", raising=False)
    monkeypatch.setenv("ACR_CACHE", str(tmp_path_factory.getbasetemp() / "acr-cache"))


@pytest.fixture
def blob_data():
    return toy_data()
