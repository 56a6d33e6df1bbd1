"""From a plan's runs to files, and the command that does it all."""

import shutil
import subprocess

import pytest
from hand_worked_runs import fill

from acr.cli import main
from acr.reproduce.plan import RECIPES, Plan, find_planned_runs, make_plan, names, write_reproduction
from acr.sweeps.recipe import find_recipe


def test_both_protocols_give_a_table_each(tmp_path):
    plan = make_plan("policies", "quick", "both", tmp_path)
    fill(plan)
    done = write_reproduction(plan, tmp_path)
    assert [protocol for protocol, _ in done.tables] == ["sound", "published"]
    assert "protocol published" in (tmp_path / "policies-quick" / "policies.md").read_text()


def test_the_same_runs_give_the_same_files(tmp_path):
    plan = make_plan("ood", "quick", "sound", tmp_path)
    fill(plan)
    first = {path: path.read_bytes() for path in write_reproduction(plan, tmp_path).files}
    assert first == {path: path.read_bytes() for path in write_reproduction(plan, tmp_path).files}


def test_samples_are_found_by_identity(tmp_path):
    configs = find_recipe("policies", RECIPES).at_scale("quick").expand(out=tmp_path / "runs")
    fill(Plan("policies", "quick", "", {"sound": configs[:3]}, None))
    assert [sample.run is not None for sample in find_planned_runs(configs)] == [True] * 3 + [False] * 5


def test_reproduce_command_on_finished_runs_has_nothing_to_do(tmp_path, capsys):
    fill(make_plan("policies", "quick", "sound", tmp_path))
    main(["reproduce", "policies", "--scale", "quick", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "8 of 8 runs finished (8 before this sweep), 0 failed" in out
    assert "Balanced Random" in out
    assert "policies.csv" in out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*its images cannot be compared")  # made-up runs of data sets that are not here
@pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="pdflatex is not there: apt install texlive-latex-recommended"
)
@pytest.mark.parametrize("name", names())
def test_latex_compiles(name, tmp_path):
    plan = make_plan(name, "full", "both" if name == "acc" else "sound", tmp_path)
    fill(plan, skip=lambda config: config.seed > 1 or config.method == "hal")
    written = write_reproduction(plan, tmp_path)
    (whole,) = [path for path in written.files if path.name.endswith("-document.tex")]
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", whole.name]
    done = subprocess.run(words, cwd=whole.parent, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:]
    assert whole.with_suffix(".pdf").stat().st_size > 10_000
