"""What a step of each method costs and how much memory it keeps, relative to ER at the same width and batch size.

    python benchmarks/methods.py [--methods gem gss ...] [--width 16] [--buffer-size 500] [--threads 1] [--repeats 5]

A run with ten tasks of ten classes is in the middle of its sixth task, with a full memory of the earlier ones (random
32x32 colour images: the cost does not depend on their content). Steps of ER and of the method alternate, and the best
of several repeats counts for each side, in CPU time, which other work on the machine disturbs least. Methods that do
different things in different epochs are measured in each: the column ``mean`` weights them as in a task of 50 epochs
and includes the work at the end of a task (of long work, such as GDumb's fit, a part is measured and extrapolated).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from copy import deepcopy
from functools import partial

import numpy as np
import torch

from acr.data.images import DataSet, ImageSet
from acr.data.stream import Task, TaskStream
from acr.data.views import Views
from acr.methods.method import REGISTRY, Batch, Context, Method, method_class
from acr.networks import Network, resnet18
from acr.networks.averaging import WeightAverage
from acr.randomness import Position, generator, keyed_global
from acr.runs.resolve import make_config
from acr.training.building import codec_of
from acr.values import OFF, HalfLife

TASKS, CLASSES, EPOCHS, BATCH, TASK_SAMPLES = 10, 100, 50, 32, 5000
NOW = 5
"""The task in which steps are measured, counted from 0."""
PHASES: dict[str, list[tuple[int, int]]] = {
    # epoch in which a step is measured, and how many of the 50 are like it
    "metasp": [(1, 45), (EPOCHS - 1, 5)],
    "soif": [(0, 49), (EPOCHS - 1, 1)],
    "gdumb": [(0, 1), (1, 49)],
    "acr": [(0, 5), (EPOCHS - 1, 45)],
    "aver": [(0, 5), (EPOCHS - 1, 45)],
}


def make_stream(per_class: int = 20) -> TaskStream:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (CLASSES * per_class, 3, 32, 32), dtype=np.uint8)
    train = ImageSet(images, np.repeat(np.arange(CLASSES), per_class))
    data = DataSet("random", train, train, (0.5,) * 3, (0.25,) * 3)
    return TaskStream(data, np.arange(CLASSES).reshape(TASKS, -1).tolist())


class Bench:
    """A method in the middle of a stream."""

    def __init__(self, name: str, stream: TaskStream, width: int, buffer_size: int) -> None:
        cls = method_class(name)
        self.stream = stream

        def build_network(purpose: str) -> Network:
            with keyed_global(0, purpose):
                return resnet18(CLASSES, width, cls.head, 3, stream.data.mean, stream.data.std)

        config = make_config({"method": name, "dataset": "split-cifar100", "epochs": EPOCHS})
        self.context = Context(
            seed=0,
            buffer_size=buffer_size,
            batch_size=BATCH,
            epochs=EPOCHS,
            learning_rate=0.01,
            image_shape=(3, 32, 32),
            codec=codec_of(config, (3, 32, 32)),
            views=Views.for_side(32, flip=True),
            build_network=build_network,
            tasks=TASKS,
            classes=CLASSES,
        )
        options, self.times_longer = cls.shortened(config)
        self.method: Method = cls(build_network("run"), options, self.context)
        if config.average_weights != OFF:
            half_life = HalfLife.parse(config.average_weights)
            self.method.average = WeightAverage(deepcopy(self.method.network), half_life)
        self.task = stream[NOW]
        self.fill(self.context.memory_capacity)
        self.number = 0

    def fill(self, size: int) -> None:
        """Put samples of the earlier tasks into the memory, whatever the method's own way."""
        buffer = getattr(self.method, "buffer", None)
        if buffer is not None:
            draws = torch.Generator().manual_seed(0)
            for t in range(NOW):
                earlier, share = self.stream[t], size // NOW + (t < size % NOW)
                rows = torch.randint(len(earlier), (share,), generator=draws)
                columns = {name: torch.ones(share, *buffer.column(name).shape[1:]) for name in buffer.column_names}
                buffer.append(earlier.images(rows), earlier.targets[rows], t, **columns)
            buffer.seen = 10 * size
        if hasattr(self.method, "anchors"):
            columns = [c for t in range(NOW) for c in self.stream.columns(t)]
            self.method.anchors = {c: torch.rand(3, 32, 32) for c in columns}
        self.place(0)
        self.method.begin_task(self.task)

    def place(self, epoch: int) -> None:
        """Tell the method where the run stands."""
        context = self.context
        context.position = Position(0, NOW, epoch, getattr(self, "number", 0))
        context.seen = [c for t in range(NOW + 1) for c in self.stream.columns(t)]

    def step(self, epoch: int) -> None:
        """Observe a batch in this epoch."""
        self.number += 1
        self.place(epoch)
        rows = torch.randperm(len(self.task), generator=generator(0, "rows", self.number))[:BATCH]
        images, targets = self.task.images(rows), self.task.targets[rows]
        batch = Batch(rows, images, targets, self.context.position, self.context.views)
        self.method.network.train()
        self.method.observe(batch)
        if self.method.average is not None:
            self.method.average.update(self.method.network, EPOCHS * TASK_SAMPLES // BATCH, NOW + 1)

    def end(self, task: Task) -> None:
        """What comes after the last epoch."""
        self.place(EPOCHS)
        self.method.end_task(task)


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def memory_bytes(method: Method) -> int:
    return sum(value.numel() * value.element_size() for value in method.memory_as_stored().values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--methods", nargs="*", default=[name for name in REGISTRY if name != "joint"])
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--buffer-size", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    stream = make_stream()
    er = Bench("er", stream, given.width, given.buffer_size)
    er_bytes = memory_bytes(er.method)
    steps = -(-TASK_SAMPLES // BATCH) * EPOCHS
    print(f"width {given.width}, buffer {given.buffer_size}, batch {BATCH}, task {NOW + 1} of {TASKS}")
    print(f"{'method':<10}{'step ms':>16}{'ER ms':>8}{'ratio':>14}{'end s':>8}{'mean':>7}{'memory':>8}{'besides':>9}")
    for name in given.methods:
        bench = Bench(name, stream, given.width, given.buffer_size)
        phases = PHASES.get(name, [(1, EPOCHS)])
        if name == "metasp":
            for rows in torch.split(torch.arange(len(bench.task)), BATCH):  # what the first epoch would have stored
                bench.method.store.images[rows] = bench.task.images(rows)
                bench.method.store.labels[rows] = bench.task.targets[rows]
        besides = bench.method.side_memory_bytes()
        bests, er_best = [float("inf")] * len(phases), float("inf")
        for repeat in range(given.repeats + 1):
            er_time = seconds(partial(er.step, 1))
            times = [seconds(partial(bench.step, epoch)) for epoch, _ in phases]
            if repeat:  # the first warms up
                er_best = min(er_best, er_time)
                bests = [min(best, now) for best, now in zip(bests, times, strict=True)]
        besides = max(besides, bench.method.side_memory_bytes())
        size = memory_bytes(bench.method)
        end = seconds(partial(bench.end, bench.task)) * bench.times_longer
        per_step = sum(best * share for best, (_, share) in zip(bests, phases, strict=True)) / EPOCHS
        mean = (per_step + end / steps) / er_best
        milliseconds = " / ".join(f"{1000 * best:.0f}" for best in bests)
        ratios = " / ".join(f"{best / er_best:.2f}" for best in bests)
        print(
            f"{name:<10}{milliseconds:>16}{1000 * er_best:>8.0f}{ratios:>14}{end:>8.1f}{mean:>7.2f}"
            f"{size / er_bytes:>8.2f}{besides:>9}",
            flush=True,
        )


if __name__ == "__main__":
    main()
