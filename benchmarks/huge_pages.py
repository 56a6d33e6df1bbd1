"""What large pages of memory bring to a training step on Linux: CPU time with them, relative to that without.

    python benchmarks/huge_pages.py [--repeats 5]

The C library reads its setting when a process starts, so every measurement is a process of its own; the two sides take
turns, and the fastest step of each counts: the images of a step of ACR (32 + 32 and their second views) forward,
backward and SGD, one thread. A kernel that gives large pages to all programs, or to none, shows a ratio of 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from acr.storage.workers import HUGE_PAGES

STEP = """
import sys, time, torch
from acr.networks import resnet18
torch.set_num_threads(1)
network = resnet18(20, int(sys.argv[1]), "proxy")
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
pixels = torch.randint(0, 256, (128, 3, 32, 32), dtype=torch.uint8)
labels = torch.randint(0, 20, (128,))
def step():
    began = time.process_time()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(network(pixels), labels).backward()
    optimizer.step()
    return time.process_time() - began
print(min(step() for _ in range(int(sys.argv[2]))))
"""


def seconds(width: int, environment: dict[str, str]) -> float:
    plain = {name: value for name, value in os.environ.items() if name not in HUGE_PAGES}
    words = [sys.executable, "-c", STEP, str(width), str(max(3, 400 // width))]
    return float(subprocess.run(words, env={**plain, **environment}, check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print(f"{'width':>6} {'ratio':>7}")
    for width in (8, 16, 32):
        times = [(seconds(width, HUGE_PAGES), seconds(width, {})) for _ in range(repeats)]
        large, plain = (min(side) for side in zip(*times, strict=True))
        print(f"{width:6} {large / plain:7.3f}", flush=True)


if __name__ == "__main__":
    main()
