"""A new method touches one file: once registered, it is named, coloured and ranked in everything that shows results."""

import re

import pytest
from fabricated_runs import make_run
from hand_worked_runs import fabricate

from acr.cli import main
from acr.methods.er import ER
from acr.methods.method import REGISTRY, method_names, register
from acr.report import drawing
from acr.report.groups import gather
from acr.report.page.render import render
from acr.report.style import PALETTE, method_label, method_look, method_rank
from acr.reproduce.cells import PlannedRun
from acr.reproduce.figures import FIGURES
from acr.reproduce.layouts import LAYOUTS
from acr.runs.resolve import make_config
from acr.runs.run import find_runs, load_run


@pytest.fixture
def gentle():
    """A method of one's own, known while the test runs."""

    @register
    class Gentle(ER):
        """ER with a kinder name."""

        name = "gentle"
        label = "Gentle & Co"
        summary = "ER with a kinder name"

    yield Gentle
    del REGISTRY["gentle"]


def test_it_has_a_label_a_colour_of_its_own_and_a_rank(gentle):
    colours = [method_look(name).color for name in method_names()]
    assert method_label("gentle") == "Gentle & Co"
    assert method_look("gentle").color in PALETTE
    assert len(set(colours)) == len(colours)
    assert method_rank("er") < method_rank("soif") < method_rank("gentle") < method_rank("joint")


def test_a_method_built_on_another_is_not_taken_for_it(gentle):
    class Gentler(gentle):
        """No label of its own."""

        name = "gentler"

    assert Gentler.label == ""
    REGISTRY["gentler"] = Gentler
    try:
        assert method_label("gentler") == "gentler"
    finally:
        del REGISTRY["gentler"]


def test_report_and_latex_table_show_it(gentle, tmp_path):
    for method in ("acr", "gentle", "finetune"):
        for seed in range(2):
            make_run(tmp_path / "runs", method, seed, corruptions=("fog",))
    gathered = gather(find_runs(tmp_path / "runs"))
    assert [group.label for group in gathered.comparisons[0].groups] == ["ACR", "Gentle & Co", "Fine-tuning"]
    page = render(gathered)
    swatch = re.search(r'background:(#\w{6})" aria-hidden="true"></span>Gentle &amp; Co<', page)
    assert swatch is not None
    assert swatch[1] == method_look("gentle").color
    main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "page.html"), "--latex", str(tmp_path / "tex")])
    assert r"Gentle \& Co & " in (tmp_path / "tex" / "acc.tex").read_text()


def test_a_paper_figure_shows_it(gentle, tmp_path):
    planned = []
    for method in ("er", "acr", "gentle"):
        for seed in range(3):
            config = make_config({"method": method, "dataset": "split-cifar100", "seed": seed, "out": tmp_path})
            planned.append(PlannedRun(config, load_run(fabricate(config, 0.3 + seed / 100, ood=0.2))))
    for name in ("ood", "stages"):
        (table,) = LAYOUTS[name](planned)
        with drawing.settings():
            figure = FIGURES[name](table, planned)
        (legend,) = figure.legends
        shown = {
            text.get_text(): handle for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True)
        }
        handle = shown["Gentle & Co"]
        colour = handle.get_facecolor() if name == "ood" else handle.get_color()
        from matplotlib.colors import to_hex

        assert to_hex(colour).upper() == method_look("gentle").color.upper()


def test_one_colour_per_method_on_the_page_and_in_the_papers_figures(tmp_path):
    """ER was once blue on the page and green in the figures."""
    config = make_config({"method": "er", "dataset": "split-cifar100", "out": tmp_path})
    planned = [PlannedRun(config, load_run(fabricate(config, 0.3, ood=0.2)))]
    (table,) = LAYOUTS["ood"](planned)
    figure = FIGURES["ood"](table, planned)
    (bar,) = figure.axes[0].patches
    from matplotlib.colors import to_hex

    page = gather([load_run(make_run(tmp_path / "runs", "er", 0))])
    assert to_hex(bar.get_facecolor()).upper() == page.looks["ER"].color.upper()
