"""The comparison on docs/research.md and docs/averaging.md is what the rows of its runs give, cell by cell."""

import importlib.util
from pathlib import Path
from statistics import fmean

import pytest

PROJECT = Path(__file__).parent.parent
ROWS, RATES = PROJECT / "results/averaged.csv", PROJECT / "results/averaged_rates.csv"


@pytest.fixture(scope="module")
def averaged():
    spec = importlib.util.spec_from_file_location("averaged", PROJECT / "benchmarks/averaged.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(name: str) -> str:
    return (PROJECT / "docs" / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def places(averaged):
    found = {name: averaged.figures_of(name, ROWS, RATES) for name in averaged.PLACES}
    return {name: figures for name, figures in found.items() if averaged.finished(name, figures)}


@pytest.fixture(scope="module")
def of_all(averaged):
    """The places that have every contender that is compared everywhere, some of them by the runs of another."""
    return averaged.of_all_contenders(ROWS, RATES)


def test_every_place_that_was_run_to_the_end_is_on_the_page(averaged, places):
    assert set(places) == set(averaged.PLACES)
    for name, figures in places.items():
        assert "\n".join(averaged.table(name, figures, RATES)) in page("research.md"), name


def test_the_summaries_are_on_the_pages(averaged, of_all):
    assert "\n".join(averaged.summary(of_all)) in page("research.md")
    assert "\n".join(averaged.gains(of_all)) in page("averaging.md")


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ("**AVER**", ("AVER", "averaged")),
        ("ACR", ("ACR", "as trained")),
        ("ACR, averaged weights", ("ACR", "averaged")),
        ("ACR, averaged weights, dense memory", ("ACR, dense memory", "averaged")),
        ("ER, two views, averaged weights", ("ER, two views", "averaged")),
        ("joint training, averaged weights", ("joint training", "averaged")),
    ],
)
def test_the_table_of_avers_page_is_part_of_the_comparison(of_all, row, key):
    line = next(line for line in page("methods/aver.md").splitlines() if line.startswith(f"| {row} |"))
    cells = [cell.strip(" *") for cell in line.strip("|").split("|")][1:]
    means = [[fmean(figures[key][m].values()) for m in ("clean", "severity_1")] for figures in of_all.values()]
    assert cells == [f"{clean:.1f} / {shifted:.1f}" for clean, shifted in means]


def test_nothing_is_said_of_a_place_that_was_not_run_to_the_end(averaged, places):
    part = {key: by for key, by in next(iter(places.values())).items() if key != ("ER", "averaged")}
    assert not averaged.finished(next(iter(places)), part)


def test_the_figures_are_those_of_the_rows(averaged, places, of_all):
    """Two cells by hand: AVER on the digits, clean, seeds 0 to 4, all with the one rate that both networks have."""
    rows = [line.split(",") for line in ROWS.read_text().splitlines()]
    clean = [
        100 * sum(float(row[5]) for row in rows if row[:2] == ["split-digits", "AVER"] and row[4] == network) / 5
        for network in ("averaged", "as trained")
    ]
    table = averaged.table("split-digits", places["split-digits"], RATES)
    ours = next(line for line in table if line.startswith("| **AVER**"))
    assert f"| **{clean[0]:.1f} ± " in ours
    gain = next(line for line in averaged.gains({"split-digits": of_all["split-digits"]}) if line.startswith("| AVER"))
    assert f"| {clean[0] - clean[1]:+.1f} / " in gain
