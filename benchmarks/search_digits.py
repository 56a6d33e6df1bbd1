"""How the defaults of split-digits were chosen: a small grid on held-out training images, never on the test set.

    python benchmarks/search_digits.py results/digits_search.csv
    python benchmarks/search_digits.py results/digits_search_cls_er.csv cls-er

16 of the 144 training images of every class are held out and evaluated instead of the test images, which leaves 8 full
batches per task. Every method of the first search gets the same grid (fine-tuning forgets whatever its settings are);
the second is for CLS-ER alone. A row is one run. Rows are appended to the file as runs finish, and runs that it already
contains are not repeated.
"""

from __future__ import annotations

import csv
import itertools
import sys
import tempfile
from pathlib import Path
from typing import Any

from acr.runs.resolve import make_config
from acr.runs.run import Run
from acr.storage.workers import cores
from acr.sweeps.sweep import run_local

SEEDS = (0, 1, 2)
FIXED = {"dataset": "split-digits", "validation_fraction": 0.1112, "ood_every": "never", "threads": 1}
Cell = dict[str, Any]


def general() -> list[Cell]:
    """Epochs, width and learning rate for all methods, and the passes and views of ACR."""
    methods: list[Cell] = [
        {"method": "er"},
        *({"method": "acr", "passes": passes} for passes in ("separate", "joint")),
        {"method": "acr", "passes": "joint", "second_view": "crop-flip"},
        {"method": "joint"},
    ]
    grid = itertools.product(((10, 8), (20, 8)), (0.03, 0.1), SEEDS)
    sizes = [{"epochs": e, "width": w, "learning_rate": rate, "seed": seed} for (e, w), rate, seed in grid]
    return [{"method": "", "passes": "", "second_view": "", **method, **size} for size in sizes for method in methods]


def cls_er() -> list[Cell]:
    """Decay and consistency weight of CLS-ER, at the frequencies that its program uses for Sequential MNIST."""
    frequencies = {"method": "cls-er", "plastic_frequency": 1.0, "stable_frequency": 0.9}
    grid = itertools.product(SEEDS, (0.95, 0.99), (0.15, 2.0))
    return [
        {**frequencies, "plastic_decay": decay, "stable_decay": decay, "consistency_weight": weight, "seed": seed}
        for seed, decay, weight in grid
    ]


def main(path: Path, cells: list[Cell]) -> None:
    columns = list(cells[0])
    done = set()
    if path.exists():
        with path.open(newline="") as file:
            done = {tuple(row[c] for c in columns) for row in csv.DictReader(file)}
    with path.open("a", newline="") as file, tempfile.TemporaryDirectory() as out:
        writer = csv.writer(file)
        if not done:
            writer.writerow([*columns, "acc", "bwt"])
        left = [cell for cell in cells if tuple(map(str, cell.values())) not in done]
        given = [{name: value for name, value in cell.items() if value != ""} for cell in left]
        configs = [make_config({**FIXED, **values, "out": out}) for values in given]
        rows = {config.identity(): list(cell.values()) for config, cell in zip(configs, left, strict=True)}

        def note(run: Run) -> None:
            figures = run.summary()
            row = rows[run.config.identity()]
            writer.writerow([*row, round(figures["acc"], 4), round(figures["bwt"], 4)])
            file.flush()

        run_local(configs, jobs=cores(), on_done=note)


if __name__ == "__main__":
    main(Path(sys.argv[1]), cls_er() if sys.argv[2:] == ["cls-er"] else general())
