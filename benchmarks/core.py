"""Speed of the core, as ratios within one run. The sides of each pair alternate; the best of several repeats counts.

python benchmarks/core.py [--width 64] [--repeats 5] [--threads 1] [--only step,views,...]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance

from acr.data.images import DataSet, ImageSet
from acr.data.stream import TaskStream
from acr.data.views import Views
from acr.evaluation.evaluator import evaluate, images_at_once, predict
from acr.evaluation.scenarios import StoredImages
from acr.launch import build_loop
from acr.memory import Buffer, ConfidenceTable
from acr.memory.policies import make_policy
from acr.methods.method import Batch
from acr.networks import resnet18
from acr.randomness import Position, generator
from acr.runs.resolve import make_config

Side = Callable[[], object]


def best(sides: dict[str, Side], repeats: int) -> dict[str, float]:
    """Seconds of each side: they take turns, and the fastest turn of each counts.

    With one thread it is CPU time that is counted, which other work on the machine disturbs less.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times = {name: float("inf") for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            start = clock()
            side()
            times[name] = min(times[name], clock() - start)
    return times


def row(what: str, value: float, against: str, goal: str) -> None:
    print(f"{what:58} {value:8.3f}  {against:42} goal {goal}", flush=True)


def data(classes: int = 20, per_class: int = 100, side: int = 32) -> DataSet:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (classes * per_class, 3, side, side), dtype=np.uint8)
    part = ImageSet(images, np.repeat(np.arange(classes), per_class))
    return DataSet("random", part, part, (0.5,) * 3, (0.25,) * 3)


def prepared(method: str, width: int, buffer_size: int = 500, classes: int = 20, **options: object):
    """A method in its second task with a full memory, and a function that makes its next batch."""
    config = make_config({"method": method, "dataset": "split-cifar100", "width": width, "buffer_size": buffer_size,
                          "epochs": 50, "threads": None, **options})  # fmt: skip
    stream = TaskStream.split(data(classes, max(100, buffer_size * 2 // classes)), tasks=2)
    loop = build_loop(config, stream)
    made, context = loop.method, loop.context
    first = stream[0]
    made.begin_task(first)
    if hasattr(made, "confidence") and made.confidence is not None:
        made.confidence.values.uniform_(generator=torch.Generator().manual_seed(0))
    n = min(buffer_size, len(first))
    made.buffer.keep(torch.arange(0))
    columns = {name: torch.zeros(n) for name in made.buffer.column_names}
    made.buffer.append(first.images(torch.arange(n)), first.targets[:n], 0, **columns)
    made.begin_task(stream[1])
    made.network.train()
    count = iter(range(10**9))

    def batch() -> Batch:
        step = next(count)
        context.position = Position(0, 1, 10, step)
        indices = torch.randint(0, len(stream[1]), (32,), generator=generator(0, "bench", step))
        images, targets = stream[1].images(indices), stream[1].targets[indices]
        return Batch(indices, images, targets, context.position, context.views)

    return made, context, batch


def step(width: int, repeats: int) -> None:
    method, _, batch = prepared("acr", width)
    bare = resnet18(20, width, "proxy").to(memory_format=torch.contiguous_format)
    bare.layout = torch.contiguous_format
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.1)
    pixels = torch.rand(64, 3, 32, 32)
    labels = torch.randint(0, 20, (64,))

    def bare_step() -> None:
        optimizer.zero_grad()
        scores = torch.cat([bare(pixels), bare(pixels)])
        F.cross_entropy(scores, labels.repeat(2)).backward()
        optimizer.step()

    inner = {"seconds": 0.0}
    features, take = method.network.features, method.step

    def timed(function):
        def call(*arguments):
            start = time.perf_counter()
            result = function(*arguments)
            inner["seconds"] += time.perf_counter() - start
            return result

        return call

    times = best({"acr": lambda: method.observe(batch()), "bare": bare_step}, repeats)
    against = "bare 64 + 64 images, default layout"
    row("ACR step, 32 + 32 images and second views", times["acr"] / times["bare"], against, "<= 0.90")
    method.network.features, method.step = timed(features), timed(take)
    shares = []
    for _ in range(repeats):
        inner["seconds"] = 0.0
        start = time.perf_counter()
        method.observe(batch())
        total = time.perf_counter() - start
        shares.append((total - inner["seconds"]) / total)
    row("all of the step but forward, backward, optimiser", min(shares), f"the whole step, width {width}", "<= 0.02")


def views(width: int, repeats: int) -> None:
    images = torch.randint(0, 256, (64, 3, 32, 32), dtype=torch.uint8)
    rng = np.random.default_rng(0)

    def pil() -> torch.Tensor:
        """What a data loader does: tensor to picture, the view, picture to tensor, one image at a time."""
        done = []
        for image in images:
            picture = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
            side = int(32 * rng.uniform(0.45, 1))
            x, y = rng.integers(0, 33 - side, 2)
            view = picture.crop((x, y, x + side, y + side)).resize((32, 32), Image.Resampling.BILINEAR)
            if rng.random() < 0.5:
                view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            if rng.random() < 0.8:
                for kind in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
                    view = kind(view).enhance(rng.uniform(0.6, 1.4))
                hue, saturation, value = view.convert("HSV").split()
                hue = Image.fromarray((np.asarray(hue).astype(int) + int(rng.integers(-25, 26))).astype(np.uint8))
                view = Image.merge("HSV", (hue, saturation, value)).convert("RGB")
            if rng.random() < 0.2:
                view = view.convert("L").convert("RGB")
            done.append(torch.from_numpy(np.array(view)).permute(2, 0, 1).contiguous())
        return torch.stack(done)

    many = Views(4, True)
    times = best({"ours": lambda: many.strong(images, generator(0)), "pil": pil}, max(repeats, 20))
    row("PIL pipeline, image by image", times["pil"] / times["ours"], "second views of 64 images, batched", ">= 5")


def end_of_task(width: int, repeats: int) -> None:
    n, capacity = 5000, 2000
    images = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8)
    labels = torch.arange(n) % 10
    table = ConfidenceTable(n, 5)
    table.values.uniform_()

    def update() -> None:
        policy = make_policy("challenging")
        buffer = Buffer(capacity, (3, 32, 32), policy.columns)
        for task in range(2):
            policy.end_task(buffer, images, labels + 10 * task, task, generator(task), table)

    method, _, batch = prepared("acr", 16)
    times = best({"update": update, "step": lambda: method.observe(batch())}, repeats)
    share = times["update"] / 2 / (157 * times["step"])
    row("end of task, 5,000 samples, B = 2000", share, "an epoch of the task, width 16", "<= 0.01")


def evaluation(width: int, repeats: int) -> None:
    made = data(20, 100)
    stream = TaskStream.split(made, tasks=2)
    network = resnet18(20, 16).eval()
    scenario = StoredImages("clean", made.test.images)
    order = np.concatenate(stream.test_positions)
    size = images_at_once(torch.device("cpu"))
    images = torch.from_numpy(made.test.images[order])

    @torch.inference_mode()
    def bare(size: int) -> None:
        for part in torch.split(images, size):
            network(part)

    sides = {
        "ours": lambda: evaluate(network, scenario, stream, 1),
        "bare": lambda: bare(size),
        "500": lambda: bare(500),
    }
    times = best(sides, repeats)
    row(
        "evaluating stored images, counts and all", times["ours"] / times["bare"], "bare inference, width 16", "<= 1.05"
    )
    row(f"inference, {size} images at once", times["bare"] / times["500"], "500 images at once", "< 1")
    assert len(predict(network, scenario, order, 1)) == len(order)


def flat(width: int, repeats: int) -> None:
    for method in ("acr", "er"):
        for name, values in {"buffer_size": (200, 20_000), "classes": (10, 1000)}.items():
            sides = {}
            for value in values:
                made, _, batch = prepared(method, 8, **{"buffer_size": 1000, name: value})  # type: ignore[arg-type]
                sides[str(value)] = lambda made=made, batch=batch: made.observe(batch())
            times = best(sides, repeats * 4)
            row(f"{method} step, {name} {values[1]}", times[str(values[1])] / times[str(values[0])],
                f"{name} {values[0]}, width 8", "about 1")  # fmt: skip


def start(width: int, repeats: int) -> None:
    def run(*words: str) -> float:
        begun = time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - begun

    times = {"help": 9.0, "python": 9.0}
    for _ in range(repeats):
        times["help"] = min(times["help"], run("-m", "acr", "--help"))
        times["python"] = min(times["python"], run("-c", "pass"))
    row("acr --help, seconds more", times["help"] - times["python"], "python -c pass", "< 0.5")


PARTS = {
    "step": step,
    "views": views,
    "end-of-task": end_of_task,
    "evaluation": evaluation,
    "flat": flat,
    "start": start,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", default=",".join(PARTS))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{'what':58} {'ratio':>8}  against")
    for name in options.only.split(","):
        PARTS[name](options.width, options.repeats)


if __name__ == "__main__":
    main()
