"""Settings of PyTorch that affect the whole process: set for a run, and restored afterwards."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from acr.storage.workers import SAME_SUMS

switches: Any = torch.utils.deterministic
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
VARIABLES = (WORKSPACE, *SAME_SUMS)
"""What a run may set for the libraries below PyTorch."""


@contextmanager
def torch_settings(
    device: torch.device, threads: int | None, deterministic: bool | None, tf32: bool = False
) -> Iterator[None]:
    """Run the block with this number of threads and, if requested, with deterministic algorithms and TensorFloat-32.

    ``deterministic=None`` means yes on a CPU, where it costs nothing, and no elsewhere. On a GPU such algorithms are
    slower, which a warning states; an operation that has no deterministic form then stops the run.
    """
    wanted = device.type == "cpu" if deterministic is None else deterministic
    before = (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        switches.fill_uninitialized_memory,
        {name: os.environ.get(name) for name in VARIABLES},
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
    )
    try:
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high" if tf32 else "highest")
            torch.backends.cudnn.allow_tf32 = tf32
        torch.set_num_threads(threads or before[0])
        if wanted:
            for name, value in SAME_SUMS.items():  # has an effect unless somebody in this process has used MKL before
                os.environ.setdefault(name, value)
            if device.type != "cpu":
                os.environ.setdefault(WORKSPACE, ":4096:8")  # without it cuBLAS may add in any order
                warnings.warn(
                    f"--deterministic on {device}: torch uses deterministic algorithms, which are slower.",
                    stacklevel=3,
                )
            switches.fill_uninitialized_memory = False  # helps only in debugging, and takes time
            torch.use_deterministic_algorithms(True, warn_only=deterministic is None)
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1], warn_only=before[2])
        switches.fill_uninitialized_memory = before[3]
        if device.type == "cuda":
            torch.set_float32_matmul_precision(before[5])
            torch.backends.cudnn.allow_tf32 = before[6]
        for name in [name for name, value in before[4].items() if value is None]:
            os.environ.pop(name, None)
