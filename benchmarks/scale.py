"""How the cost of a training step grows with memory, classes, image side and width, for ER and ACR.

    python benchmarks/scale.py [--width 16] [--repeats 5] [--threads 1]

Each line shows the ratio to the first line of its table. The cases are timed in turn and the best of several repeats
counts, so that other work on the machine affects all cases alike. docs/scale.md shows the results.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from acr.data.stream import TaskStream
from acr.launch import build_loop
from acr.methods.bases import ReplayMethod
from acr.methods.method import Batch
from acr.randomness import Position
from acr.runs.resolve import make_config
from acr.testing import toy_data

STEPS = 3


def stepper(method: str, width: int, buffer_size: int = 500, classes: int = 10, side: int = 32) -> Callable[[], None]:
    """A function that takes a few steps of a method whose memory is full."""
    values = {"method": method, "dataset": "split-cifar10", "buffer_size": buffer_size, "width": width, "tasks": 2}
    config = make_config({**values, "epochs": 50, "policy": "reservoir"})
    data = toy_data(classes, max(1, 64 // classes), 1, side=side)
    stream = TaskStream.split(data, 2)
    loop = build_loop(config, stream)
    learner, context = loop.method, loop.context
    assert isinstance(learner, ReplayMethod)
    context.seen = list(range(classes))
    plain = torch.randint(0, 256, (32, 3, side, side), dtype=torch.uint8)
    numbers = iter(range(10**9))

    def next_batch() -> Batch:
        context.position = Position(0, 0, 9, next(numbers))
        return Batch(torch.arange(32), plain, torch.arange(32) % classes, context.position, context.views)

    while len(learner.buffer) < buffer_size:
        learner.remember(next_batch())
    learner.network.train()

    def steps() -> None:
        for _ in range(STEPS):
            learner.observe(next_batch())

    return steps


def compare(title: str, cases: dict[str, Callable[[], None]], repeats: int) -> None:
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(repeats):
        for name, run in cases.items():
            started = time.process_time()
            run()
            best[name] = min(best[name], (time.process_time() - started) / STEPS)
    first = next(iter(best.values()))
    print(f"\n{title}")
    for name, seconds in best.items():
        print(f"  {name:24} {1000 * seconds:8.1f} ms per step (CPU time)   {seconds / first:6.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for method in ("er", "acr"):
        width, repeats = options.width, options.repeats
        memory = {f"B = {size}": stepper(method, width, buffer_size=size) for size in (200, 2000, 20_000)}
        compare(f"{method}: memory", memory, repeats)
        many = {
            f"{count} classes": stepper(method, width, classes=count, buffer_size=1000) for count in (10, 100, 1000)
        }
        compare(f"{method}: classes", many, repeats)
        sides = {f"{side} x {side} images": stepper(method, width, side=side) for side in (16, 32, 64)}
        compare(f"{method}: image side", sides, repeats)
        widths = {f"width {size}": stepper(method, size) for size in (8, 16, 32)}
        compare(f"{method}: width", widths, repeats)


if __name__ == "__main__":
    main()
