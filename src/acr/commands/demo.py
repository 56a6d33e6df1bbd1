"""``acr demo``: three methods on the embedded data set, and a report page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from acr.commands.shared import whole
from acr.console import say
from acr.report.columns import COLUMNS, print_summary
from acr.report.page.render import write_page
from acr.runs.resolve import make_config
from acr.storage.workers import cores
from acr.sweeps.progress import SweepProgress
from acr.sweeps.sweep import run_local

METHODS = ("finetune", "er", "acr")


def demo(
    *,
    out: Annotated[Path, Parameter(help="Folder for the runs and the report page.")] = Path("demo"),
    seed: Annotated[int, Parameter(converter=whole, help="Seed for all three runs.")] = 0,
) -> None:
    """Try it out: fine-tuning, ER and ACR on handwritten digits, clean and under shift, with a report page."""
    say("Ten handwritten digits arrive two at a time. Three methods, about a minute:")
    configs = [make_config({"method": m, "seed": seed, "out": out / "runs", "quiet": True}) for m in METHODS]
    jobs = min(len(configs), cores())
    longest_first = configs[::-1]
    with SweepProgress(jobs) as shown:
        # Without a terminal, the lines printed here are enough.
        watcher = shown if shown.live else None
        runs = run_local(longest_first, jobs, lambda run: say(f"  done: {run.results.method}"), watcher)
    runs = runs[::-1]
    say()
    print_summary(runs)
    say()
    for name in ("acc", "bwt", "ood_acc", "cv_classes"):
        if name in runs[-1].summary():
            say(f"  {COLUMNS[name].heading}: {COLUMNS[name].meaning}")
    page = write_page(runs, out / "report.html")
    say(f"\nLook at it: {page.resolve().as_uri()}")
    say("Then try:   acr run --method er-ace    (acr methods lists them all)")
    say("            acr run --dataset folder:YOUR-IMAGES --width 16 --epochs 10")
