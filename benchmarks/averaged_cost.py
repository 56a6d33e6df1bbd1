"""What a step of every contender of the comparison costs, as trained and with averaged weights, relative to ER's.

    python benchmarks/averaged_cost.py [--width 8 16] [--repeats 8]

The settings are those of scale ``small``, with random images, in the middle of the third of five tasks; the memory is
full. The contenders take turns, and the fastest step of each counts, in CPU time of one thread. ACR and AVER do more in
the first epochs of a task: all are measured in the first and in the last epoch, and the first counts for five of 20.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import defaultdict

import numpy as np
import torch

from acr.data.images import DataSet, ImageSet
from acr.data.stream import Task, TaskStream
from acr.launch import build_loop
from acr.runs.resolve import make_config
from acr.sweeps.cost_estimate import learn_earlier
from acr.training.loop import TrainingLoop
from acr.values import AUTO, OFF
from averaged import CONTENDERS, SMALL

STEPS = 4
"""Steps that a contender takes per turn; the first warms up."""


def random_stream() -> TaskStream:
    draws = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), SMALL["samples_per_class"])
    images = ImageSet(draws.integers(0, 256, (len(labels), 3, 32, 32), dtype=np.uint8), labels)
    return TaskStream.split(DataSet("random", images, images, (0.5,) * 3, (0.25,) * 3), tasks=5)


def in_the_middle(contender: str, average: str, width: int, stream: TaskStream) -> tuple[TrainingLoop, Task]:
    """A contender's loop, and the task that it is in."""
    values = {**SMALL, **CONTENDERS[contender], "width": width, "average_weights": average, "device": "cpu"}
    loop = build_loop(make_config({**values, "learning_rate": 0.01}), stream)
    task = loop.tasks[len(loop.tasks) // 2]
    learn_earlier(loop, task.index)
    loop.begin_task(task)
    return loop, task


def fastest(loop: TrainingLoop, task: Task, epoch: int) -> float:
    """CPU seconds of the fastest of a few steps."""
    clock = [time.process_time() for _ in itertools.islice(loop.steps(task, epoch), STEPS)]
    return float(np.diff(clock).min())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--width", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--repeats", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    stream, last, early = random_stream(), SMALL["epochs"] - 1, 5 / SMALL["epochs"]
    for width in given.width:
        pairs = list(itertools.product(CONTENDERS, (OFF, AUTO)))
        made = {pair: in_the_middle(*pair, width, stream) for pair in pairs}
        best: dict[tuple[str, str, int], float] = defaultdict(lambda: float("inf"))
        for _, pair, epoch in itertools.product(range(given.repeats), pairs, (0, last)):
            best[(*pair, epoch)] = min(best[(*pair, epoch)], fastest(*made[pair], epoch))
        step = {pair: early * best[(*pair, 0)] + (1 - early) * best[(*pair, last)] for pair in pairs}
        er = step["ER", OFF]
        print(f"\nwidth {width}: a step of ER takes {1000 * er:.0f} ms\n\n| | as trained | averaged |\n|---|---|---|")
        for contender in CONTENDERS:
            print(f"| {contender} | {step[contender, OFF] / er:.2f} | {step[contender, AUTO] / er:.2f} |", flush=True)


if __name__ == "__main__":
    main()
