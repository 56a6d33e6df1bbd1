"""AVER against the methods it is compared with, each as trained and with averaged weights.

    python benchmarks/averaged.py rates --data-root DATA     the learning rate of every contender, on held-out images
    python benchmarks/averaged.py final --data-root DATA     the comparison, on test images, with these rates

Every contender gets the same grid of rates on held-out training images: at scale ``small`` with half as many epochs for
the photographs, and on split-digits for the digits. The best rate, by the mean of clean and shifted accuracy, is chosen
for the network as trained and for the averaged one; where they differ, the comparison has a run with each. All averages
have AVER's half-life. Rows are appended to results/averaged_rates.csv and results/averaged.csv as runs end; runs that
are there are not repeated, and interrupted ones are resumed from their folders in ``--out``.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from acr.methods.aver import HALF_LIFE
from acr.runs.resolve import make_config
from acr.runs.run import Run
from acr.sweeps.sweep import run_local
from acr.values import HalfLife

Values = dict[str, Any]
CONTENDERS: dict[str, Values] = {
    "AVER": {"method": "aver"},
    "ACR": {"method": "acr"},
    "ACR, two passes": {"method": "acr", "passes": "separate"},
    "ER": {"method": "er"},
    "ER, two views": {"method": "er", "second_view": "strong"},
    "DER++": {"method": "derpp"},
    "ER-ACE": {"method": "er-ace"},
    "joint training": {"method": "joint"},
    "joint training, two views": {"method": "joint", "second_view": "strong"},
}
RATES = (0.1, 0.03, 0.3)
TWENTY = {"class_order": "0-19", "tasks": 5, "width": 8, "epochs": 20, "buffer_size": 200}
SMALL = {**TWENTY, "dataset": "split-cifar100", "samples_per_class": 250, "test_samples_per_class": 100}
PLACES: dict[str, tuple[Values, range]] = {
    "small, B 200": (SMALL, range(5)),
    "split-digits": ({"dataset": "split-digits"}, range(5)),
    "part of Mini-ImageNet": ({**TWENTY, "dataset": "split-mini-imagenet", "image_size": 32}, range(3)),
    "part of Tiny-ImageNet": ({**TWENTY, "dataset": "split-tiny-imagenet", "image_size": 32}, range(3)),
    "small, B 100": ({**SMALL, "buffer_size": 100}, range(3)),
}
"""Settings and seeds of the comparison."""
HELD_OUT: dict[str, tuple[Values, range]] = {
    "small": ({**SMALL, "epochs": 10, "validation_fraction": 0.5}, range(100, 101)),
    "split-digits": ({"dataset": "split-digits", "validation_fraction": 0.1112}, range(100, 102)),
}
"""Where rates are chosen, and with which seeds."""
STEPS_PER_TASK = {"split-digits": 180, "split-cifar100": 640, "split-mini-imagenet": 260, "split-tiny-imagenet": 140}
"""Of the comparison, for joint training, whose one task is as long as all others together."""
COLUMNS = ("place", "contender", "learning_rate", "seed", "network", "clean", "severity_1", "severity_3", "seconds")
AVERAGED, AS_TRAINED = "averaged", "as trained"


def config_of(place: Values, contender: str, rate: float, seed: int, severities: str, folder: Values) -> Any:
    """The config of one run."""
    own = CONTENDERS[contender]
    half_life = HALF_LIFE
    if own["method"] == "joint":
        steps = STEPS_PER_TASK[place["dataset"]] * place.get("epochs", 20) // 20
        half_life = str(round(HalfLife.parse(HALF_LIFE).steps(steps)))
    shift = {"ood_every": "end", "ood_severities": severities}
    values = {"average_weights": half_life, **shift, "threads": 1, "learning_rate": rate, "seed": seed}
    return make_config({**place, **own, **values, **folder})


def rows_of(run: Run) -> list[list[Any]]:
    """One row per network: clean accuracy, and shifted accuracy at severities 1 and 3 where they were measured."""
    rows = []
    for network, matrices in ((AVERAGED, run.accuracy), (AS_TRAINED, run.accuracy_as_trained)):
        last = {name: float(matrix[-1].mean()) for name, matrix in matrices.items()}
        shifted = [[value for name, value in last.items() if name.endswith(f"/{s}")] for s in (1, 3)]
        means = [round(fmean(values), 4) if values else "" for values in shifted]
        rows.append([network, round(last["clean"], 4), *means, round(run.results.timing.seconds)])
    return rows


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a file; none if there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def best_rates(path: Path) -> dict[tuple[str, str], set[float]]:
    """By place and contender: the best rate as trained and the best rate averaged, by mean of clean and shifted."""
    figures: dict[tuple[str, str, str], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read(path):
        key = row["place"], row["contender"], row["network"]
        figures[key][float(row["learning_rate"])].append((float(row["clean"]) + float(row["severity_1"])) / 2)
    best: dict[tuple[str, str], set[float]] = defaultdict(set)
    for (place, contender, _), by_rate in figures.items():
        best[place, contender].add(max(by_rate, key=lambda rate: fmean(by_rate[rate])))
    return dict(best)


def cells(stage: str, rates: Path, only: Sequence[str]) -> list[tuple[str, Values, str, float, int]]:
    """Place, its settings, contender, rate and seed of every run of a stage, in the order in which they are made."""
    unknown = set(only) - set(HELD_OUT if stage == "rates" else PLACES)
    if unknown:
        raise SystemExit(f"There is no place {', '.join(sorted(unknown))} in this stage.")
    if stage == "rates":
        return [
            (name, place, contender, rate, seed)
            for name, (place, seeds) in HELD_OUT.items()
            for seed in seeds
            for rate in RATES
            for contender in CONTENDERS
            if not only or name in only
        ]
    best, chosen = best_rates(rates), []
    for name, (place, seeds) in PLACES.items():
        if only and name not in only:
            continue
        where = "split-digits" if place["dataset"] == "split-digits" else "small"
        missing = [contender for contender in CONTENDERS if (where, contender) not in best]
        if missing:
            raise SystemExit(f"No rate has been chosen yet for {', '.join(missing)} on {where}. Run rates first.")
        chosen += [
            (name, place, contender, rate, seed)
            for seed in seeds
            for contender in CONTENDERS
            for rate in sorted(best[where, contender])
        ]
    return chosen


def main() -> None:
    """Make the runs that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["rates", "final"])
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/averaged"))
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--only", action="append", help="Name of a place; by default all of them.")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    rates = given.results / "averaged_rates.csv"
    path = rates if given.stage == "rates" else given.results / "averaged.csv"
    done = {(row["place"], row["contender"], float(row["learning_rate"]), int(row["seed"])) for row in read(path)}
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    severities = "1" if given.stage == "rates" else "1,3"
    folder = {"data_root": given.data_root, "out": given.out, "quiet": True, "device": "cpu"}
    wanted = {}
    for name, place, contender, rate, seed in cells(given.stage, rates, given.only or ()):
        if (name, contender, rate, seed) not in done:
            config = config_of(place, contender, rate, seed, severities, folder)
            wanted[config.identity()] = (config, [name, contender, rate, seed])

    def note(run: Run) -> None:
        which = wanted[run.config.identity()][1]
        with path.open("a", newline="") as file:
            csv.writer(file).writerows([*which, *row] for row in rows_of(run))
        print(*which, *(f"{row[0]} {100 * row[1]:.1f} / {100 * row[2]:.1f}" for row in rows_of(run)), flush=True)

    run_local([config for config, _ in wanted.values()], jobs=given.jobs, on_done=note)


if __name__ == "__main__":
    main()
