"""A classifier that is kept up to date: its accuracy after each of four visits, by method.

    python benchmarks/visits.py --data-root DATA [--only AVER ACR] [--seeds 0 1 2]
    python benchmarks/visits.py show

Twenty classes of Mini-ImageNet at 32 pixels (labels 20 to 39, which the comparison of docs/research.md does not use)
arrive in four visits of five, with all their training images. ``ContinualClassifier`` with 400 places in its memory, a
network of width 16, 20 epochs per visit, and for the rest its own defaults, whatever the method. After each visit it is
asked about test images of all classes so far, clean and under the paper's eleven corruptions at severity 1, and about
clean ones of the first visit's classes. Rows are appended to results/visits.csv when the four visits of a seed are
over; those that are there are not made again. One thread, so that two of these commands can run beside each other.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from acr import ContinualClassifier
from acr.data.images import ImageSet
from acr.data.loading import load_dataset
from acr.report.statistics import estimate

VISITS = tuple(tuple(range(first, first + 5)) for first in range(20, 40, 5))
CONTENDERS: dict[str, dict[str, Any]] = {
    "AVER": {"method": "aver"},
    "ACR": {"method": "acr"},
    "ACR, averaged": {"method": "acr", "average_weights": "auto"},
    "ER": {"method": "er"},
    "fine-tuning": {"method": "finetune"},
}
COLUMNS = ("contender", "seed", "visit", "classes", "clean", "shifted", "first_visit", "seconds")


def images_of(part: ImageSet, classes: tuple[int, ...]) -> tuple[np.ndarray, list[str]]:
    """Images of some classes, and the names of their classes."""
    rows = np.flatnonzero(np.isin(part.labels, classes))
    return np.asarray(part.images[rows]), [part.class_names[int(label)] for label in part.labels[rows]]


def visits(contender: str, seed: int, data_root: Path) -> list[list[object]]:
    """One row per visit."""
    data = load_dataset("split-mini-imagenet", data_root=data_root, image_size=32)
    settings: dict[str, Any] = {
        "width": 16,
        "epochs": 20,
        "buffer_size": 400,
        "threads": 1,
        "device": "cpu",
        "verbose": False,
    }
    classifier = ContinualClassifier(**CONTENDERS[contender], seed=seed, **settings)
    rows: list[list[object]] = []
    for number, classes in enumerate(VISITS, 1):
        classifier.partial_fit(*images_of(data.train, classes))
        known = tuple(label for visit in VISITS[:number] for label in visit)
        found = classifier.evaluate_shift(*images_of(data.test, known))
        first = classifier.score(*images_of(data.test, VISITS[0]))
        figures = [round(figure, 4) for figure in (found["clean"], found["shifted"], first)]
        rows.append([contender, seed, number, len(known), *figures, round(classifier.history_[-1]["seconds"])])
        print(*rows[-1], flush=True)
    return rows


def show(rows: list[dict[str, str]]) -> None:
    """Print the table of docs/classifier-commands.md: means over seeds, with 95 % intervals where there are several."""
    cells: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        cells[row["classes"], row["contender"]].append(row)
    contenders = [name for name in CONTENDERS if any(row["contender"] == name for row in rows)]
    print(f"| classes | {' | '.join(contenders)} |\n{'|---' * (len(contenders) + 1)}|")
    for classes in dict.fromkeys(row["classes"] for row in rows):
        told = []
        for name in contenders:
            clean, shifted = (
                estimate(100 * float(row[measure]) for row in cells[classes, name]) for measure in ("clean", "shifted")
            )
            interval = "" if clean.half != clean.half else f" ± {clean.half:.1f}"
            told.append(f"{clean.mean:.1f}{interval} ({shifted.mean:.1f})")
        print(f"| {classes} | {' | '.join(told)} |")
    last = [fmean(100 * float(row["first_visit"]) for row in cells[classes, name]) for name in contenders]
    print(f"| {classes}, the first five only | {' | '.join(f'{mean:.1f}' for mean in last)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("show", nargs="?", choices=["show"])
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--file", type=Path, default=Path("results/visits.csv"))
    given = parser.parse_args()
    if not given.file.exists():
        given.file.write_text(",".join(COLUMNS) + "\n")
    with given.file.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if given.show:
        return show(rows)
    if given.data_root is None:
        parser.error("name --data-root, the folder with the data sets")
    done = {(row["contender"], int(row["seed"])) for row in rows}
    for contender, seed in ((c, s) for s in given.seeds for c in given.only if (c, s) not in done):
        made = visits(contender, seed, given.data_root)
        with given.file.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(made)


if __name__ == "__main__":
    main()
