"""Waits, copies and bytes of a training step on an accelerator, counted on a pretend one (no GPU is needed).

    python benchmarks/device.py [--methods acr er ...] [--lines]

A pretend device (tests/helpers/pretend_device.py) holds real values, raises where host and device would meet, and
counts what a real one would make the host wait for. Per method: the largest counts of a step after the first task,
between two log lines and not at the beginning of an epoch.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import torch
from device_runs import on_device

from acr.methods.method import method_names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--methods", nargs="*", default=[name for name in method_names() if name != "joint"])
    parser.add_argument("--lines", action="store_true", help="also show the lines that the counts come from")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'per step':10} {'waits':>6} {'copies in':>10} {'bytes in':>9} {'bytes out':>10}")
    for method in given.methods:
        steps = on_device(method).steady()
        row = [max(getattr(step, name) for step in steps) for name in ("waits", "copies_in", "bytes_in", "bytes_out")]
        print(f"{method:10} {row[0]:6} {row[1]:10} {row[2]:9,} {row[3]:10,}", flush=True)
        if given.lines:
            print(max(steps, key=lambda step: (step.waits, step.copies_in)))


if __name__ == "__main__":
    main()
