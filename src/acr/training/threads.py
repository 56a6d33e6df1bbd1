"""How many CPU threads a run uses: measured once per kind of run and machine, because more is often slower.

Threads pay off only where one operation is long. Small networks on small images spend their time starting threads and
waiting for them, and on a machine that others use as well a thread that waits for one that is not running costs far
more than it brings. So a few training steps are timed with one thread and with all cores, and more than one thread is
used only if it is clearly faster. The choice is kept in the cache, so that the same kind of run uses the same number
every time on a machine: the number of threads changes the order of floating-point sums, and with it the last bits.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from acr.config import RunConfig
from acr.methods.method import Context, Method
from acr.randomness import keyed_global
from acr.storage import files
from acr.storage.location import cache_folder
from acr.storage.workers import cores
from acr.training.loop import TrainingLoop

CLEARLY_FASTER = 1.25
"""By how many times all cores must be faster than one thread to be used."""
STEPS = 3
"""Steps per turn; one thread and all cores take turns."""
TURNS = 2
PATIENCE = 4.0
"""Seconds after which no further turn is taken."""


@dataclass(frozen=True)
class ThreadChoice:
    """The number of threads of a run, and why."""

    threads: int
    reason: str


def set_threads(config: RunConfig, begun: int | None, loop: TrainingLoop) -> ThreadChoice:
    """Decide on the number of CPU threads of a run, and set it.

    It is the number given, or the one that the run began with (``begun``; None: it is new), or what a measurement
    suggests. On an accelerator nothing is measured: the CPU has little to do there.
    """
    if config.threads is not None:
        return ThreadChoice(config.threads, "--threads")
    if begun is not None:
        choice = ThreadChoice(begun, "the run began with them")
    else:
        choice = measured_threads(config, loop.method)
    torch.set_num_threads(choice.threads)
    return choice


def measured_threads(config: RunConfig, method: Method) -> ThreadChoice:
    """The number of threads for steps of this kind; on an accelerator nothing is measured."""
    context = method.context
    if context.device.type != "cpu":
        return ThreadChoice(torch.get_num_threads(), f"the run is on {context.device}")
    images = config.batch_size + (config.replay_size if method.uses_memory else 0)
    shape = (images, *context.image_shape)
    kind = {"network": config.network, "width": config.width, "images": shape}
    if config.stem != "cifar":
        kind["stem"] = config.stem
    return choose_threads(kind, lambda: trial_step(context, shape), cache_folder(config.data_cache))


def trial_step(context: Context, shape: tuple[int, ...]) -> Callable[[], None]:
    """A forward and backward pass of a network of the run's kind on random images of this shape."""
    network, draws = context.build_network("threads"), torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=draws)

    def step() -> None:
        network.zero_grad(set_to_none=True)
        with keyed_global(0, "threads"):  # an encoder may draw, for dropout
            network(pixels).logsumexp(1).mean().backward()

    return step


def choose_threads(kind: dict[str, Any], make_step: Callable[[], Callable[[], object]], folder: Path) -> ThreadChoice:
    """The number of threads for a kind of run.

    Args:
        kind: what the time of a step depends on, such as the width of the network and the size of the images.
        make_step: makes a function that takes one training step; called only if the kind was not measured before.
        folder: where measurements are kept.
    """
    most = cores()
    if most == 1:
        return ThreadChoice(1, "this machine has one core")
    key = json.dumps({**kind, "cores": most, "processor": processor(), "torch": torch.__version__}, sort_keys=True)
    path = folder / "threads.json"
    known = _read(path)
    if key not in known:
        known[key] = measure(make_step(), most)
        with suppress(OSError):  # a cache that cannot be written costs a measurement per run, nothing else
            files.write_text(path, json.dumps(known, indent=1) + "\n")
    one, many = known[key]["1"], known[key]["all"]
    threads = most if one >= CLEARLY_FASTER * many else 1
    times = f"a step took {1000 * one:.1f} ms with 1 thread and {1000 * many:.1f} ms with {most}"
    return ThreadChoice(threads, times)


def measure(step: Callable[[], object], most: int) -> dict[str, float]:
    """Seconds of a step with one thread and with all cores; they take turns, and the fastest turn counts."""
    before = torch.get_num_threads()
    best = {1: float("inf"), most: float("inf")}
    began = time.perf_counter()
    try:
        for _ in range(TURNS):
            for threads in best:
                torch.set_num_threads(threads)
                step()  # the first step with another number of threads starts them
                for _ in range(STEPS):
                    start = time.perf_counter()
                    step()
                    best[threads] = min(best[threads], time.perf_counter() - start)
            if time.perf_counter() - began > PATIENCE:
                break
    finally:
        torch.set_num_threads(before)
    return {"1": best[1], "all": best[most]}


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _read(path: Path) -> dict[str, dict[str, float]]:
    """The choices kept so far; a damaged file counts as empty and is written anew."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {str(key): {"1": float(times["1"]), "all": float(times["all"])} for key, times in content.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}
