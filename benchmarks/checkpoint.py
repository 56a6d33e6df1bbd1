"""What checkpoints and resuming cost.

    python benchmarks/checkpoint.py [--width 64] [--buffer-size 2000] [--repeats 3] [--threads 1]

Two questions, answered in seconds and as a share of the time: how long a run of the size of CIFAR-100 pauses if it
saves a checkpoint once per minute, and how long after its imports `acr resume` takes its next step on split-digits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import acr
from acr.data.images import DataSet, ImageSet
from acr.data.stream import TaskStream
from acr.launch import build_loop
from acr.runs.resolve import make_config
from acr.runs.writer import RunWriter
from acr.training.checkpoint import Checkpoints
from acr.training.trainer import Trainer

MINUTE = 60.0
RESUME = """
import os, sys, time
import acr.commands.run, sklearn.datasets, torch._dynamo  # all that a run imports; the last comes with an optimiser
from acr.training.trainer import Trainer

start, start_cpu = time.perf_counter(), time.process_time()

def after_step(self, batch, loss):
    print(time.perf_counter() - start, time.process_time() - start_cpu, flush=True)
    os._exit(0)

Trainer.after_step = after_step
from acr.cli import main
main(["resume", sys.argv[1], "--quiet"])
"""
"""Resumes a run and prints, after its first step, the time since the end of the imports: wall clock and CPU."""


def full_state(width: int, buffer_size: int, folder: Path) -> Trainer:
    """ACR in the middle of its last task on 20 tasks of 5 classes with 500 images each, its memory full."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (100 * 500, 3, 32, 32), dtype=np.uint8)
    part = ImageSet(images, np.repeat(np.arange(100), 500))
    stream = TaskStream.split(DataSet("random", part, part, (0.5,) * 3, (0.25,) * 3), 20)
    values = {"method": "acr", "dataset": "split-cifar100", "width": width, "buffer_size": buffer_size, "device": "cpu"}
    config = make_config(values)
    loop = build_loop(config, stream)
    method = loop.method
    run = Trainer(config, stream, loop, [], RunWriter(folder, config), Checkpoints(folder / "c", "run"))
    for task in stream:  # what every task leaves behind, without its training
        loop.begin_task(task)
        assert method.confidence is not None
        method.confidence.values.uniform_(generator=torch.Generator().manual_seed(task.index))
        if task.index < len(stream) - 1:
            loop.end_task(task)
        run.confidence |= {f"{kind}_{task.index}": torch.rand(len(task)) for kind in ("mean", "variance")}
    return run


def saving(width: int, buffer_size: int, repeats: int, folder: Path) -> None:
    run = full_state(width, buffer_size, folder)
    times, cpu = [], []
    for step in range(repeats):
        start, start_cpu = time.perf_counter(), time.process_time()
        run.checkpoints.save(step + 1, run.state_dict())
        times.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    size = sum(path.stat().st_size for path in run.checkpoints.names()[0].iterdir())
    print(f"checkpoint of ACR at width {width}, buffer {buffer_size}: {size / 2**20:.1f} MiB")
    print(f"  one save {min(times):.3f} s (slowest {max(times):.3f}, CPU {min(cpu):.3f}); "
          f"once a minute {100 * min(times) / MINUTE:.2f} % of the time (goal < 1 %)")  # fmt: skip
    start = time.perf_counter()
    loaded = run.checkpoints.load()
    assert loaded is not None
    run.load_state_dict(loaded[1])
    print(f"  loading it {time.perf_counter() - start:.3f} s")


def resuming(repeats: int, folder: Path) -> None:
    """From the end of the imports to the end of the first new step."""
    config = {"epochs": 50, "width": 16, "ood_every": "never", "threads": 1}
    flags = [word for name, value in config.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    environment = {**os.environ, "PYTHONPATH": str(Path(acr.__file__).parents[1])}
    python = [sys.executable]
    first = subprocess.Popen([*python, "-m", "acr", "run", *flags, "--out", folder, "--log-every", "1", "--quiet",
                              "--checkpoint-every", "1s"], env=environment)  # fmt: skip
    events = _wait_for(folder, "checkpoint", 0)
    first.kill()
    first.wait()
    times = []
    for _ in range(repeats):
        told = subprocess.run([*python, "-c", RESUME, events.parent], check=True, env=environment, capture_output=True)
        times.append([float(word) for word in told.stdout.split()])
    wall, cpu = (min(column) for column in zip(*times, strict=True))
    print("acr resume on split-digits, from the end of its imports to the end of its first step:")
    print(f"  {wall:.2f} s, CPU {cpu:.2f} s (goal < 2 s)")


def _wait_for(folder: Path, event: str, offset: int) -> Path:
    while True:
        for path in folder.glob("*/events.jsonl"):
            with open(path, "rb") as file:
                file.seek(offset)
                for line in file:
                    if line.endswith(b"\n") and line.strip() and json.loads(line)["event"] == event:
                        return path
        time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--buffer-size", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        saving(given.width, given.buffer_size, given.repeats, Path(folder) / "saving")
        resuming(given.repeats, Path(folder) / "resuming")


if __name__ == "__main__":
    main()
