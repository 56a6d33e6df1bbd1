"""How the defaults of split-digits were chosen: a small grid on held-out training images, never on the test set.

    python benchmarks/search_digits.py results/digits_search.csv

16 of the 144 training images of every class are held out and evaluated instead of the test images, which leaves 8 full
batches per task. Every method gets the same grid (fine-tuning forgets whatever its settings are); a row is one run.
Rows are appended to the file as runs finish, and runs that it already contains are not repeated.
"""

from __future__ import annotations

import csv
import itertools
import sys
import tempfile
from pathlib import Path

from acr.config import RunConfig
from acr.runs.resolve import make_config
from acr.runs.run import Run
from acr.storage.workers import cores
from acr.sweeps.sweep import run_local

SIZES = ((10, 8), (20, 8))  # epochs, width
RATES = (0.03, 0.1)
SEEDS = (0, 1, 2)
METHODS: dict[str, list[dict[str, str]]] = {
    "er": [{}],
    "acr": [{"passes": "separate"}, {"passes": "joint"}, {"passes": "joint", "second_view": "crop-flip"}],
    "joint": [{}],
}
FIXED = {"dataset": "split-digits", "validation_fraction": 0.1112, "ood_every": "never", "threads": 1}
COLUMNS = ("method", "passes", "second_view", "epochs", "width", "learning_rate", "seed", "acc", "bwt")


def main(path: Path) -> None:
    done = set()
    if path.exists():
        with path.open(newline="") as file:
            done = {tuple(row[c] for c in COLUMNS[:-2]) for row in csv.DictReader(file)}
    with path.open("a", newline="") as file, tempfile.TemporaryDirectory() as out:
        writer = csv.writer(file)
        if not done:
            writer.writerow(COLUMNS)
        cells: dict[str, tuple[object, ...]] = {}
        configs: list[RunConfig] = []
        for (epochs, width), rate, seed in itertools.product(SIZES, RATES, SEEDS):
            grid = {"epochs": epochs, "width": width, "learning_rate": rate, "seed": seed}
            for method, variants in METHODS.items():
                for variant in variants:
                    cell = (method, variant.get("passes", ""), variant.get("second_view", ""), *grid.values())
                    if tuple(map(str, cell)) not in done:
                        configs.append(make_config({"method": method, "out": out, **FIXED, **grid, **variant}))
                        cells[configs[-1].identity()] = cell

        def note(run: Run) -> None:
            figures = run.summary()
            cell = cells[run.config.identity()]
            writer.writerow([*cell, round(figures["acc"], 4), round(figures["bwt"], 4)])
            file.flush()

        run_local(configs, jobs=cores(), on_done=note)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
