"""Which device a run uses, and where it keeps its images."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

import torch

from acr.config import DataDevice, Precision
from acr.errors import InputError
from acr.networks import resnet18
from acr.storage.workers import child_command, cores

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


def check_precision(precision: Precision, device: torch.device) -> None:
    """Refuse bfloat16 on a processor that would end the process over it."""
    if precision == "bf16-mixed" and device.type == "cpu" and not bfloat16_works():
        raise InputError(
            "--precision bf16-mixed: this processor announces instructions for bfloat16 (AMX) that it does not carry "
            "out, as in some virtual machines. Use --precision 32, or set the variable ONEDNN_MAX_CPU_ISA to "
            "AVX512_CORE_FP16 before the start."
        )


@cache
def bfloat16_works() -> bool:
    """Whether a gradient in bfloat16 can be computed here; tried in a process of its own, which it may kill."""
    child = subprocess.run(child_command("acr.training.devices:try_bfloat16"), capture_output=True, check=False)
    return child.returncode == 0


def try_bfloat16() -> None:
    """A forward and a backward pass of small networks in bfloat16."""
    for width in (2, 16):
        network = resnet18(2, width)
        network.autocast = torch.bfloat16
        network(torch.zeros(8, 3, 8, 8, dtype=torch.uint8)).sum().backward()


def image_device(device: torch.device, choice: DataDevice, size: int) -> torch.device:
    """Where ``size`` bytes of images are kept: on the run's device if they fit, or as ``choice`` says."""
    host = torch.device("cpu")
    if choice == "host" or device.type == "cpu":
        return host
    if choice == "auto" and device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return device if size <= SHARE * free else host
    return device


def describe_devices() -> list[tuple[str, str]]:
    """What this machine computes with and what to set for it, as rows for ``acr doctor``."""
    rows = [("devices", ", ".join(_devices()))]
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            rows.append((f"cuda:{number}", _describe_gpu(number)))
    else:
        rows.append(("GPU", "none that PyTorch can use: runs use the CPU"))
    compiler = next((name for name in ("c++", "g++", "clang++", "cl") if shutil.which(name)), None)
    found = f"{compiler}: --compile can be used" if compiler else "no C++ compiler: --compile falls back to none"
    waiting = os.environ.get("OMP_WAIT_POLICY", "active").lower()
    threads = f"{cores()} cores; a run uses one or all, whichever it measures to be faster (--threads sets it)"
    sleeping = "they sleep while they wait" if waiting == "passive" else "they spin while they wait (OMP_WAIT_POLICY)"
    return [*rows, ("compiler", found), ("threads", f"{threads}; {sleeping}")]


def _devices() -> list[str]:
    """The names that ``--device`` takes here."""
    names = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    return [*names, "mps"] if torch.backends.mps.is_available() else names


def _describe_gpu(number: int) -> str:
    """Name and memory of a GPU, and the settings that suit it."""
    properties = torch.cuda.get_device_properties(number)
    free, total = torch.cuda.mem_get_info(number)
    recent = properties.major >= 8
    advice = "--precision bf16-mixed and --tf32 make it faster" if recent else "--precision 16-mixed makes it faster"
    return f"{properties.name}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free; {advice}"
