"""Loading all of CIFAR-100 the second time: seconds and added memory. Goals: under 1 s and 250 MiB.

    python benchmarks/data.py [--data-root DIR]

If CIFAR-100 is not present, random images of the same number and layout are generated in a temporary folder.
Every measurement runs in a new process; the best of five is printed.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

MEASURE = """
import json, sys, time
import psutil
import acr.data.loading, acr.data.sources.cifar  # the imports are not what is measured
process = psutil.Process()
before, start = process.memory_info().rss, time.perf_counter()
data = acr.data.loading.load_dataset("split-cifar100", data_root=sys.argv[1], data_cache=sys.argv[2], quiet=True)
seconds, added = time.perf_counter() - start, process.memory_info().rss - before
total = int(data.train.images.sum(dtype="uint64")) + int(data.test.images.sum(dtype="uint64"))
touched = process.memory_info().rss - before
print(json.dumps({"seconds": seconds, "added": added / 2**20, "touched": touched / 2**20, "images": len(data.train)}))
"""


def synthetic(root: Path) -> None:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for split, each in (("train", 500), ("test", 100)):
        labels = np.repeat(np.arange(100), each)
        content = {b"data": rng.integers(0, 256, (len(labels), 3072), dtype=np.uint8), b"fine_labels": labels.tolist()}
        (folder / split).write_bytes(pickle.dumps(content, protocol=2))
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": [b"c%d" % i for i in range(100)]}, protocol=2))


def measure(root: Path, cache: Path) -> dict[str, float]:
    command = [sys.executable, "-c", MEASURE, str(root), str(cache)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", type=Path)
    root = parser.parse_args().data_root
    with tempfile.TemporaryDirectory() as scratch:
        if root is None:
            root = Path(scratch) / "data"
            synthetic(root)
        first = measure(root, Path(scratch) / "cache")
        runs = [measure(root, Path(scratch) / "cache") for _ in range(5)]
    best = {key: min(run[key] for run in runs) for key in first}
    print(f"CIFAR-100, {int(first['images']):,} training images")
    print(f"  first load (read, check, write the cache)  {first['seconds']:6.2f} s  {first['added']:6.0f} MiB added")
    print(f"  second load, every byte checked            {best['seconds']:6.2f} s  {best['added']:6.0f} MiB added")
    print(
        f"  after touching every image                           {best['touched']:6.0f} MiB added (pages of the file)"
    )


if __name__ == "__main__":
    main()
