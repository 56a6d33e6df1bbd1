"""What a second thread brings, on an idle machine and on a busy one, with threads that spin and threads that sleep.

    python benchmarks/threads.py [--width 8] [--side 32] [--busy 4] [--seconds 4]

Every row is a process of its own, because threads learn how to wait when PyTorch is loaded: a forward and backward pass
of a ResNet-18 on 64 images, in milliseconds, the mean over a few seconds. ``--busy`` other processes count as fast as
they can during the second half of the table.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from acr.storage.workers import PASSIVE, cores

STEP = """
import sys, time, torch
from acr.networks import resnet18
threads, width, side, seconds = (int(word) for word in sys.argv[1:])
torch.set_num_threads(threads)
network = resnet18(10, width)
pixels = torch.randint(0, 256, (64, 3, side, side), dtype=torch.uint8)
def step():
    network.zero_grad(set_to_none=True)
    network(pixels).logsumexp(1).mean().backward()
step()
began, steps = time.perf_counter(), 0
while time.perf_counter() - began < seconds:
    step()
    steps += 1
print(1000 * (time.perf_counter() - began) / steps)
"""

BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
"""Ends with the benchmark, even if that is killed."""


def milliseconds(threads: int, waiting: dict[str, str], given: argparse.Namespace) -> float:
    words = [sys.executable, "-c", STEP, *map(str, (threads, given.width, given.side, given.seconds))]
    plain = {name: value for name, value in os.environ.items() if name not in PASSIVE}
    return float(subprocess.run(words, env={**plain, **waiting}, check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, default in (("width", 8), ("side", 32), ("busy", 4), ("seconds", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    print(f"{'other processes':>16} {'threads':>8} {'they':>6} {'ms per step':>12}")
    for busy in (0, given.busy):
        others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
        try:
            for threads, how, waiting in ((1, "–", {}), (cores(), "spin", {}), (cores(), "sleep", PASSIVE)):
                print(f"{busy:16} {threads:8} {how:>6} {milliseconds(threads, waiting, given):12.0f}", flush=True)
        finally:
            for other in others:
                other.kill()


if __name__ == "__main__":
    main()
