"""What a memory of compressed images costs, and how much of the images it keeps.

    python benchmarks/dense_memory.py [--data-root DATA]

Time, on one thread: what a step of ER at width 8 and 16 takes, and what decoding its 32 replayed images adds to it.
With --data-root also the quality of 1,000 training images of CIFAR-100, as the mean of their peak signal-to-noise
ratios in decibels, beside that of Pillow's JPEG with as many bytes per image on average (without its header, which is
the same for all images).
"""

from __future__ import annotations

import argparse
import io
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from acr.data.loading import load_dataset
from acr.launch import build_loop
from acr.memory.codec import Codec
from acr.runs.resolve import make_config
from acr.sweeps.cost_estimate import learn_earlier
from averaged import SMALL
from averaged_cost import random_stream

SHAPE, BATCH = (3, 32, 32), 32
NUMBERS = (2, 4, 8, 16)


def fastest(work: Callable[[], object], repeats: int = 50) -> float:
    """CPU seconds of the fastest of many repeats."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def step_of_er(width: int) -> float:
    """CPU seconds of the fastest of some steps of ER, in the second task."""
    loop = build_loop(make_config({**SMALL, "method": "er", "width": width, "device": "cpu"}), random_stream())
    task = loop.tasks[1]
    learn_earlier(loop, task.index)
    loop.begin_task(task)
    clock = [time.process_time() for _ in itertools.islice(loop.steps(task, 0), 20)]
    return float(np.diff(clock).min())


def decibels(before: Tensor, after: Tensor) -> float:
    """The mean over images of their peak signal-to-noise ratio; an image without any error counts 58 dB."""
    errors = (before.float() - after.float()).square().mean((1, 2, 3)).clamp(min=0.1)
    return float((10 * torch.log10(255**2 / errors)).mean())


def jpeg(images: Tensor, size: int) -> tuple[int, float]:
    """The best quality with which images take no more than ``size`` bytes on average, and its decibels."""
    best = (0, 0.0)
    for quality in range(5, 96, 5):
        taken, back = [], []
        for image in images.permute(0, 2, 3, 1).numpy():
            file = io.BytesIO()
            Image.fromarray(image).save(file, "JPEG", quality=quality, optimize=True)
            taken.append(len(file.getvalue()) - file.getvalue().index(b"\xff\xda"))  # from the start of the scan
            back.append(np.asarray(Image.open(file)))
        if np.mean(taken) <= size:
            best = (quality, decibels(images, torch.from_numpy(np.stack(back)).permute(0, 3, 1, 2)))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data-root", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    codec = Codec(SHAPE, 8)
    images = torch.randint(0, 256, (BATCH, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    codes = codec.encode(images)
    decode, look = fastest(lambda: codec.decode(codes)), fastest(lambda: codec.as_stored(images))
    for width in (8, 16):
        step = step_of_er(width)
        print(f"width {width}: a step of ER takes {1000 * step:.0f} ms; decoding adds {100 * decode / step:.1f} %")
    print(f"encoding and decoding 32 images, once per task and not per step: {1000 * look:.1f} ms")
    if given.data_root is None:
        return
    data = load_dataset("split-cifar100", data_root=given.data_root)
    images = torch.from_numpy(np.ascontiguousarray(data.train.images[:: len(data.train) // 1000][:1000]))
    print("\n| images per place | bytes per image | dB | JPEG, dB |\n|---|---|---|---|")
    for number in NUMBERS:
        codec = Codec(SHAPE, number)
        quality, with_jpeg = jpeg(images, codec.nbytes)
        told = f"{with_jpeg:.1f} (quality {quality})"
        print(f"| {number} | {codec.nbytes} | {decibels(images, codec.as_stored(images)):.1f} | {told} |", flush=True)


if __name__ == "__main__":
    main()
