"""``acr demo``: three methods on the embedded data set, and a report page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from acr.report.columns import COLUMNS, print_summary
from acr.report.page.render import write_page
from acr.runs.resolve import make_config
from acr.storage.workers import cores
from acr.sweeps.sweep import run_local

METHODS = ("finetune", "er", "acr")


def demo(
    *,
    out: Annotated[Path, Parameter(help="Folder for the runs and the report page.")] = Path("demo"),
    seed: Annotated[int, Parameter(help="Seed for all three runs.")] = 0,
) -> None:
    """Try it out: fine-tuning, ER and ACR on handwritten digits, clean and under shift, with a report page."""
    print("Ten handwritten digits arrive two at a time. Three ways to learn them:", flush=True)
    configs = [make_config({"method": m, "seed": seed, "out": out / "runs", "quiet": True}) for m in METHODS]
    jobs = min(len(configs), cores())
    longest_first = configs[::-1]
    runs = run_local(longest_first, jobs, lambda run: print(f"  done: {run.summary()['method']}", flush=True))[::-1]
    print()
    print_summary(runs)
    print()
    for name in ("acc", "bwt", "ood_acc", "cv_classes"):
        if name in runs[-1].summary():
            print(f"  {COLUMNS[name].heading}: {COLUMNS[name].meaning}")
    page = write_page(runs, out / "report.html")
    print(f"\nLook at it: {page.resolve().as_uri()}")
