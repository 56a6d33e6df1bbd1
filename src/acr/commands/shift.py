"""``acr shift``: the corruptions, the shifted test sets, and what they look like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from acr.commands.data import save_picture
from acr.commands.shared import DataCache, DataRoot, Dataset, Quiet, Sheet
from acr.config import RunConfig
from acr.console import say
from acr.data.loading import load_dataset
from acr.report.screen import print_columns
from acr.runs.resolve import make_config
from acr.shift.severities import CORRUPTIONS, PAPER_CORRUPTIONS, constants_for

Corruptions = Annotated[str | None, Parameter(help="Names, such as fog,snow; by default the data set's.")]
Severities = Annotated[str | None, Parameter(help="Severities, such as 1,3 or 1-5; by default the data set's.")]
Constants = Annotated[
    Literal["imagenet-c", "cifar-c"] | None, Parameter(help="Table of constants; by default the data set's.")
]


def list_corruptions() -> None:
    """List the corruptions and their constants."""
    heads = ("name", "in the\npaper", "imagenet-c,\nseverity 1", "cifar-c,\nseverity 1")
    rows = []
    for name in CORRUPTIONS:
        shown = [" ".join(map(str, constants_for(name, 1, table))) for table in ("imagenet-c", "cifar-c")]
        rows.append([name, "yes" if name in PAPER_CORRUPTIONS else "", *shown])
    print_columns(heads, rows, names=2)


def build(
    name: Dataset,
    /,
    *,
    ood_corruptions: Corruptions = None,
    ood_severities: Severities = None,
    ood_constants: Constants = None,
    data_root: DataRoot = None,
    data_cache: DataCache = None,
    quiet: Quiet = False,
) -> None:
    """Build the shifted copies of a test set in advance, so that runs find them ready."""
    from acr.shift.suite import ShiftSpec, build_suite

    config = shift_config(name, ood_corruptions, ood_severities, ood_constants, data_root, data_cache, quiet)
    spec = ShiftSpec.make(config.ood_corruptions, config.ood_severities, config.ood_constants)
    test = load_dataset(config.dataset, config).test
    suite = build_suite(test, name, spec, data_cache, quiet)
    size = sum(images.nbytes for images in suite.values()) / 2**20
    say(f"{len(suite)} shifted copies of {len(test):,} test images are ready ({size:,.0f} MiB).")


def show(
    name: Dataset,
    /,
    *,
    output: Sheet = Path("shift.png"),
    ood_corruptions: Annotated[str | None, Parameter(help="Names, such as fog,snow; by default all.")] = None,
    ood_severities: Annotated[str, Parameter(help="Severities, such as 1,3; by default all five.")] = "1-5",
    ood_constants: Constants = None,
    data_root: DataRoot = None,
    data_cache: DataCache = None,
    quiet: Quiet = False,
) -> None:
    """Draw a sheet of real test images: one row per corruption, one column per severity."""
    import numpy as np

    from acr.shift.sheet import draw

    config = shift_config(name, ood_corruptions, ood_severities, ood_constants, data_root, data_cache, quiet)
    test = load_dataset(config.dataset, config).test
    first = [int(np.flatnonzero(test.labels == label)[0]) for label in test.classes[:15]]
    names = CORRUPTIONS if ood_corruptions is None or config.ood_corruptions is None else config.ood_corruptions
    save_picture(draw(np.array(test.images[first]), names, config.ood_severities, config.ood_constants), output)


def shift_config(
    name: str,
    corruptions: str | None,
    severities: str | None,
    constants: str | None,
    data_root: Path | None,
    data_cache: Path | None,
    quiet: bool,
) -> RunConfig:
    """The config that a run with these flags would have; what is None takes the data set's default."""
    given = {"ood_corruptions": corruptions, "ood_severities": severities, "ood_constants": constants,
             "data_root": data_root, "data_cache": data_cache, "quiet": quiet}  # fmt: skip
    return make_config({"dataset": name, **{key: value for key, value in given.items() if value is not None}})
