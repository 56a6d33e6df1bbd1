"""Which device a run uses, and where it keeps its images."""

from __future__ import annotations

import torch

from acr.config import DataDevice
from acr.errors import InputError

SHARE = 0.5
"""Share of the device's free memory that images may take up under ``auto``; the rest is for the network's work."""


def find_device(name: str) -> torch.device:
    """The device of this name, or the best one there is for ``auto``."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        raise InputError(f"--device {name}: this machine or this build of PyTorch has no such device.") from None
    return device


def image_device(device: torch.device, choice: DataDevice, size: int) -> torch.device:
    """Where ``size`` bytes of images are kept: on the run's device if they fit, or as ``choice`` says."""
    host = torch.device("cpu")
    if choice == "host" or device.type == "cpu":
        return host
    if choice == "auto" and device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return device if size <= SHARE * free else host
    return device
