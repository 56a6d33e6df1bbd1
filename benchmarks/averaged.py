"""AVER against the methods it is compared with, each as trained and with averaged weights.

    python benchmarks/averaged.py rates --data-root DATA     the learning rate of every contender, on held-out images
    python benchmarks/averaged.py final --data-root DATA     the comparison, on test images, with these rates
    python benchmarks/averaged.py show                       the tables of docs/research.md and docs/averaging.md

Every contender gets the same grid of rates on held-out training images: at scale ``small`` with half as many epochs for
the photographs, and on split-digits for the digits. The best rate, by the mean of clean and shifted accuracy, is chosen
for the network as trained and for the averaged one; where they differ, the comparison has a run with each. (Contenders
that came last have one run, with the averaged network's rate.) All averages follow the rule ``auto``; most rates were
searched with 0.35 of a task, which is what the rule says in the last of five tasks. Rows are appended to
results/averaged_rates.csv and results/averaged.csv as runs end; runs that are there are not repeated, and interrupted
ones are resumed from their folders in ``--out``.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from acr.report.statistics import estimate, holm, paired_p
from acr.runs.resolve import make_config
from acr.runs.run import Run
from acr.sweeps.sweep import run_local
from acr.values import AUTO

Values = dict[str, Any]
CONTENDERS: dict[str, Values] = {
    "AVER": {"method": "aver"},
    "AVER, second round": {"method": "aver", "policy": "challenging"},
    "AVER, first round": {"method": "aver", "policy": "challenging", "images_per_place": 1},
    "ACR": {"method": "acr"},
    "ACR, dense memory": {"method": "acr", "images_per_place": AUTO},
    "ACR, two passes": {"method": "acr", "passes": "separate"},
    "ER": {"method": "er"},
    "ER, two views": {"method": "er", "second_view": "strong"},
    "ER, two views, dense memory": {"method": "er", "second_view": "strong", "images_per_place": AUTO},
    "DER++": {"method": "derpp"},
    "ER-ACE": {"method": "er-ace"},
    "joint training": {"method": "joint"},
    "joint training, two views": {"method": "joint", "second_view": "strong"},
}
RATES = (0.1, 0.03, 0.3)
TWENTY = {"class_order": "0-19", "tasks": 5, "width": 8, "epochs": 20, "buffer_size": 200}
SMALL = {**TWENTY, "dataset": "split-cifar100", "samples_per_class": 250, "test_samples_per_class": 100}
PLACES: dict[str, tuple[Values, range]] = {
    "split-digits": ({"dataset": "split-digits"}, range(5)),
    "part of Tiny-ImageNet": ({**TWENTY, "dataset": "split-tiny-imagenet", "image_size": 32}, range(3)),
    "part of Mini-ImageNet": ({**TWENTY, "dataset": "split-mini-imagenet", "image_size": 32}, range(3)),
    "small, B 200": (SMALL, range(5)),
    "small, B 100": ({**SMALL, "buffer_size": 100}, range(3)),
    "small, labels 20 to 39": ({**SMALL, "class_order": "20-39"}, range(3)),
}
"""Settings and seeds of the comparison."""
CHOSEN = {"small, labels 20 to 39": ("AVER", "ACR", "ACR, dense memory")}
"""The contenders of a place of classes that nobody had looked at."""
ONLY_IN = dict.fromkeys(
    ("AVER, second round", "ER, two views, dense memory"),
    ("part of Tiny-ImageNet", "part of Mini-ImageNet", "small, B 200"),
)
"""Contenders that are not compared everywhere: AVER with boundary samples in its dense memory, and plain replay
with all that AVER has but its loss and its samples."""
ONE_RATE = ("AVER", "ER, two views, dense memory")
"""Contenders of the third round: one run per seed, at the rate of the averaged network, gives both networks."""
EVERYWHERE = tuple(contender for contender in CONTENDERS if contender not in ONLY_IN)
SAME_BUT_FOR_MEMORY = {"small, B 100": "small, B 200"}
"""Joint training has no memory, so its runs in the second place count in the first, too."""
WHOLE = {
    "AVER, second round": "AVER, first round",
    "ACR, dense memory": "ACR",
    "ER, two views, dense memory": "ER, two views",
}
"""On the digits, which are small and grey, the rule for images per place says one: these are the same runs."""
TWINS = tuple(WHOLE)
"""The names by which they are not listed there."""
HELD_OUT: dict[str, tuple[Values, range]] = {
    "small": ({**SMALL, "epochs": 10, "validation_fraction": 0.5}, range(100, 101)),
    "split-digits": ({"dataset": "split-digits", "validation_fraction": 0.1112}, range(100, 104)),
}
"""Where rates are chosen, and with which seeds."""
COLUMNS = (
    "place",
    "contender",
    "learning_rate",
    "seed",
    "network",
    "clean",
    "severity_1",
    "severity_3",
    "seconds",
    "jpeg",
)
"""The last one is the accuracy under jpeg_compression at severity 1, since a dense memory compresses in a similar way.
Rows of the first runs do not have it."""
IDENTITY, MEASURES = ("place", "contender", "network"), COLUMNS[5:8]
NETWORKS = AVERAGED, AS_TRAINED = "averaged", "as trained"


def config_of(place: Values, contender: str, rate: float, seed: int, severities: str, folder: Values) -> Any:
    """The config of one run."""
    shift = {"ood_every": "end", "ood_severities": severities}
    values = {"average_weights": AUTO, **shift, "threads": 1, "learning_rate": rate, "seed": seed}
    return make_config({**place, **CONTENDERS[contender], **values, **folder})


def rows_of(run: Run) -> list[list[Any]]:
    """One row per network: clean accuracy, shifted accuracy at severities 1 and 3 where they were measured, seconds."""
    rows = []
    for network, matrices in ((AVERAGED, run.accuracy), (AS_TRAINED, run.accuracy_as_trained)):
        last = {name: float(matrix[-1].mean()) for name, matrix in matrices.items()}
        shifted = [[value for name, value in last.items() if name.endswith(f"/{s}")] for s in (1, 3)]
        means = [round(fmean(values), 4) if values else "" for values in shifted]
        jpeg = round(last["jpeg_compression/1"], 4)
        rows.append([network, round(last["clean"], 4), *means, round(run.results.timing.seconds), jpeg])
    return rows


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a file; none if there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def best_rates(path: Path) -> dict[tuple[str, str], dict[str, float]]:
    """By place and contender: the best rate of each of its two networks, by mean of clean and shifted."""
    figures: dict[tuple[str, str, str], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read(path):
        key = row["place"], row["contender"], row["network"]
        figures[key][float(row["learning_rate"])].append((float(row["clean"]) + float(row["severity_1"])) / 2)
    best: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for (place, contender, network), by_rate in figures.items():
        best[place, contender][network] = max(by_rate, key=lambda rate: fmean(by_rate[rate]))
    for (_, contender), of_networks in best.items():
        if contender in ONE_RATE and AVERAGED in of_networks:
            of_networks[AS_TRAINED] = of_networks[AVERAGED]
    for contender, whole in WHOLE.items():
        if ("split-digits", whole) in best:
            best["split-digits", contender] = best["split-digits", whole]
    return dict(best)


def show_rates(path: Path) -> None:
    """Print one table per place where rates are chosen: the best rate of both networks, and what they reach with it."""
    best = best_rates(path)
    for place in HELD_OUT:
        print(f"\n{place}, held-out images\n\n| | as trained | rate | averaged | rate |\n|---|---|---|---|---|")
        for contender in CONTENDERS:
            cells = []
            for network in reversed(NETWORKS):
                rate = best.get((place, contender), {}).get(network)
                which = (place, source(place, contender)[1], network, rate)
                rows = [
                    row for row in read(path) if which == (*itemgetter(*IDENTITY)(row), float(row["learning_rate"]))
                ]
                means = [100 * fmean(float(row[m]) for row in rows) for m in MEASURES[:2]] if rows else []
                cells += [" / ".join(f"{mean:.1f}" for mean in means), f"{rate:g}" if rate else ""]
            print(f"| {contender} | {' | '.join(cells)} |")


def contenders_in(name: str) -> Sequence[str]:
    """Who is compared in a place; where two are the same, one of them."""
    there = tuple(contender for contender in CONTENDERS if name in ONLY_IN.get(contender, PLACES))
    return CHOSEN.get(name, tuple(c for c in there if name != "split-digits" or c not in TWINS))


def held_out_place(place: Values) -> str:
    """Where the rates for a place of the comparison are chosen."""
    return "split-digits" if place["dataset"] == "split-digits" else "small"


def source(place: str, contender: str) -> tuple[str, str]:
    """The place and the contender whose runs count for a contender in a place."""
    if CONTENDERS[contender]["method"] == "joint":
        return SAME_BUT_FOR_MEMORY.get(place, place), contender
    return place, WHOLE.get(contender, contender) if place == "split-digits" else contender


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
            if source(name, contender) == (name, contender) and (not only or name in only)
        ]
    best, chosen = best_rates(rates), []
    for name, (place, seeds) in PLACES.items():
        if only and name not in only:
            continue
        where = held_out_place(place)
        missing = [contender for contender in contenders_in(name) if (where, contender) not in best]
        if missing:
            raise SystemExit(f"No rate has been chosen yet for {', '.join(missing)} on {where}. Run rates first.")
        chosen += [
            (name, place, contender, rate, seed)
            for seed in seeds
            for contender in contenders_in(name)
            for rate in sorted(set(best[where, contender].values()))
            if source(name, contender) == (name, contender)
        ]
    return chosen


Figures = dict[tuple[str, str], dict[str, dict[int, float]]]
"""By contender and network, and by measure: the percentage that each seed gave."""
OURS = "AVER", AVERAGED


def figures_of(name: str, path: Path, rates: Path, contenders: Sequence[str] = ()) -> Figures:
    """What the runs in a place gave, every network at its own rate; by default those of the contenders there."""
    best, (place, seeds) = best_rates(rates), PLACES[name]
    found: Figures = defaultdict(lambda: defaultdict(dict))
    rows = read(path)
    for contender, network in itertools.product(contenders or contenders_in(name), NETWORKS):
        wanted = best.get((held_out_place(place), contender), {}).get(network)
        for row in rows:
            here = (row["place"], row["contender"]) == source(name, contender) and row["network"] == network
            if here and int(row["seed"]) in seeds and float(row["learning_rate"]) == wanted:
                for measure in MEASURES:
                    found[contender, network][measure][int(row["seed"])] = 100 * float(row[measure])
    return found


def finished(name: str, found: Figures) -> bool:
    """Whether a place has both networks of all its contenders with every seed."""
    wanted = len(PLACES[name][1])
    return len(found) == 2 * len(contenders_in(name)) and all(len(by[MEASURES[0]]) == wanted for by in found.values())


def best_first(found: Figures) -> list[tuple[str, str]]:
    """Contenders' networks by the mean of clean and severity 1."""
    return sorted(found, key=lambda key: -sum(fmean(found[key][m].values()) for m in MEASURES[:2]))


def table(name: str, found: Figures, rates: Path) -> list[str]:
    """Every contender's two networks in a place, and how far AVER's averaged one is ahead, as lines of a page.

    Figures are means over seeds with their 95 % intervals; p is that of the paired t test of AVER's averaged network
    against the row, corrected by Holm for the rows of the table.
    """
    best, where = best_rates(rates), held_out_place(PLACES[name][0])
    ours, others = found[OURS], [key for key in found if key != OURS]
    tests = {m: holm([paired_p(ours[m], found[key][m]) for key in others]) for m in MEASURES[:2]}
    heads = ("", "network", "rate", "seeds", "clean", "severity 1", "severity 3", "AVER ahead by", "p")
    lines = ["|" + "|".join(f" {head} " if head else " " for head in heads) + "|", "|---" * len(heads) + "|"]
    for key in best_first(found):
        estimates = [estimate(found[key][m].values()) for m in MEASURES]
        told = [f"{e.mean:.1f}" + ("" if e.half != e.half else f" ± {e.half:.1f}") for e in estimates]
        cells = [*key, f"{best[where, key[0]][key[1]]:g}", str(estimates[0].n), *told]
        if key == OURS:
            cells = [f"**{cell}**" if place not in (2, 3) else cell for place, cell in enumerate(cells)]
            lines.append(f"| {' | '.join(cells)} | | |")
            continue
        pairs = [[(v, found[key][m][s]) for s, v in ours[m].items() if s in found[key][m]] for m in tests]
        ahead = " / ".join(f"{fmean(a - b for a, b in pair):+.1f}".replace("-", "−") for pair in pairs if pair)
        p = " / ".join(f"{tests[m][others.index(key)]:.3f}".replace("nan", "–") for m in tests)
        lines.append(f"| {' | '.join(cells)} | {ahead} | {p} |")
    return lines


def summary(found: dict[str, Figures]) -> list[str]:
    """Clean / severity 1 of every network in every place, as lines of a page; best first by the mean over places."""
    lines = [f"| | network | {' | '.join(found)} |", "|---" * (len(found) + 2) + "|"]
    means = {
        (key, name): [fmean(by[key][m].values()) for m in MEASURES[:2]] for name, by in found.items() for key in by
    }
    keys = dict.fromkeys(key for key, _ in means)
    for key in sorted(keys, key=lambda key: -sum(sum(means[key, name]) for name in found)):
        cells = [*key, *(" / ".join(f"{mean:.1f}" for mean in means[key, name]) for name in found)]
        lines.append(f"| {' | '.join(f'**{cell}**' if key == OURS else cell for cell in cells)} |")
    return lines


def gains(found: dict[str, Figures]) -> list[str]:
    """Points that averaging brings each contender in every place, clean / severity 1, as lines of a page."""
    lines = [f"| | {' | '.join(found)} |", "|---" * (len(found) + 1) + "|"]
    for contender in EVERYWHERE:
        cells = []
        for by in found.values():
            two = [[fmean(by[contender, network][m].values()) for m in MEASURES[:2]] for network in NETWORKS]
            cells.append(
                " / ".join(f"{mean - former:+.1f}".replace("-", "−") for mean, former in zip(*two, strict=True))
            )
        lines.append(f"| {contender} | {' | '.join(cells)} |")
    return lines


def of_all_contenders(path: Path, rates: Path) -> dict[str, Figures]:
    """The places that are finished, with all contenders that are compared everywhere, some by the runs of another."""
    ready = [name for name in PLACES if name not in CHOSEN and finished(name, figures_of(name, path, rates))]
    return {name: figures_of(name, path, rates, EVERYWHERE) for name in ready}


def show(path: Path, rates: Path) -> None:
    """Print summaries over the places that are finished, and one table per place that was begun."""
    found = {name: figures_of(name, path, rates) for name in PLACES}
    whole = {name: figures for name, figures in found.items() if finished(name, figures)}
    of_all = of_all_contenders(path, rates)
    print("\nAll places, clean / severity 1\n", *summary(of_all), sep="\n")
    print("\nPoints that averaging brings, clean / severity 1\n", *gains(of_all), sep="\n")
    for name, figures in found.items():
        if OURS in figures:
            print(f"\n{name}{'' if name in whole else ' (not finished)'}\n", *table(name, figures, rates), sep="\n")


def main() -> None:
    """Make the runs that are missing, or show what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["rates", "final", "show"])
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/averaged"))
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--only", action="append", help="Name of a place; by default all of them.")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    rates = given.results / "averaged_rates.csv"
    path = rates if given.stage == "rates" else given.results / "averaged.csv"
    if given.stage == "show":
        show_rates(rates)
        return show(path, rates)
    if given.data_root is None:
        parser.error("name --data-root, the folder with the data sets")
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
            csv.writer(file, lineterminator="\n").writerows([*which, *row] for row in rows_of(run))
        print(*which, *(f"{row[0]} {100 * row[1]:.1f} / {100 * row[2]:.1f}" for row in rows_of(run)), flush=True)

    run_local([config for config, _ in wanted.values()], jobs=given.jobs, on_done=note)


if __name__ == "__main__":
    main()
