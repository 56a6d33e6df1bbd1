import numpy as np
import pytest
from fabricated_runs import make_run, make_sweep

from acr.report.charts.shift import corruption_estimate
from acr.report.exports import comparison_table
from acr.report.groups import gather
from acr.report.latex import tabular
from acr.report.page.render import leaders
from acr.report.page.sections import in_short
from acr.runs.run import find_runs


def test_figures_equal_the_runs_own_summaries(sweep):
    gathered = gather(find_runs(sweep))
    for group in gathered.groups:
        for name in ("acc", "bwt", "ood_acc", "ood_bwt", "cv_classes", "seconds"):
            own = [run.summary()[name] for run in group.runs]
            assert group.estimate(name).mean == pytest.approx(np.mean(own), nan_ok=True)
        stages = group.estimates("clean", lambda m: m[-1])
        assert [s.mean for s in stages] == pytest.approx(np.mean([r.accuracy["clean"][-1] for r in group.runs], axis=0))
        shifted = [name for name in group.scenarios if name != "clean"]
        assert corruption_estimate(group, shifted).mean == pytest.approx(group.estimate("ood_acc").mean)


def test_groups_differ_by_seed_alone_and_comparisons_hold_what_compares(sweep):
    gathered = gather(find_runs(sweep))
    assert [(g.label, g.place[1], g.seeds) for g in gathered.groups] == [
        ("ACR", 50, [0, 1, 2]), ("ER", 50, [0, 1, 2]), ("ACR", 100, [0, 1]), ("ER", 100, [0, 1]),
        ("Fine-tuning", 0, [0, 1, 2]),
    ]  # fmt: skip
    assert [[g.label for g in s.groups] for s in gathered.comparisons] == [["ACR", "ER", "Fine-tuning"]] * 2
    assert sorted(p.state for p in gathered.problems) == ["damaged", "unfinished"]


def test_variants_of_a_method_are_not_averaged_and_say_how_they_differ(tmp_path):
    for policy in ("challenging", "hard"):
        make_run(tmp_path / policy, "acr", 0, policy=policy)
    gathered = gather(find_runs(tmp_path))
    assert [g.label for g in gathered.groups] == ["ACR, policy challenging", "ACR, policy hard"]


def test_a_short_fit_of_gdumb_is_part_of_its_label(tmp_path):
    make_run(tmp_path, "gdumb", 0)
    config = next(tmp_path.glob("*/config.yaml"))
    config.write_text(config.read_text() + "revision: 2\nfit_epochs: 30\n")
    assert [g.label for g in gather(find_runs(tmp_path)).groups] == ["GDumb, fit epochs 30"]


def test_a_method_that_changed_is_not_averaged_with_what_it_was(tmp_path):
    for revision in (1, 2):
        folder = make_run(tmp_path / str(revision), "er", revision)
        with open(folder / "config.yaml", "a") as file:
            file.write(f"revision: {revision}\n")
    assert [g.label for g in gather(find_runs(tmp_path)).groups] == ["ER, revision 1", "ER, revision 2"]


def test_the_same_run_twice_counts_once(tmp_path):
    make_run(tmp_path, "er", 0, name="one")
    make_run(tmp_path, "er", 0, name="two")
    gathered = gather(find_runs(tmp_path))
    assert len(gathered.runs) == 1
    assert gathered.problems[0].state == "superseded"


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: (f / "results.json").write_text("[]"),
        lambda f: (f / "results.json").write_text('{"schema": 1, "finished": true}'),
        lambda f: (f / "results.json").write_text('{"schema": 99}'),
        lambda f: (f / "config.yaml").write_bytes(b"\xff\xfe\x00"),
        lambda f: (f / "config.yaml").write_text("- a list"),
        lambda f: (f / "results.json").write_bytes((f / "results.json").read_bytes()[:500]),
    ],
)
def test_a_damaged_run_is_listed_and_the_others_are_shown(tmp_path, damage):
    make_run(tmp_path, "acr", 0)
    damage(make_run(tmp_path, "er", 0))
    gathered = gather(find_runs(tmp_path))
    assert [g.label for g in gathered.groups] == ["ACR"]
    assert [p.state for p in gathered.problems] == ["damaged"]


def test_a_hundred_seeds_are_one_group(tmp_path):
    make_sweep(tmp_path, ("finetune",), seeds=5, corruptions=())
    gathered = gather(find_runs(tmp_path))
    assert len(gathered.groups) == 1
    assert gathered.comparisons[0].scenarios == ["clean"]


def test_a_bound_is_shown_but_never_ranked(tmp_path):
    for seed in (0, 1):
        for method in ("acr", "er", "joint"):
            make_run(tmp_path, method, seed)
    gathered = gather(find_runs(tmp_path))
    bounds = [place for place, group in enumerate(gathered.groups) if group.is_bound]
    assert [gathered.groups[place].method for place in bounds] == ["joint"]
    for name in ("acc", "ood_acc", "seconds"):
        ranks = leaders(gathered, name)
        assert not set(bounds) & set(ranks)
        assert sorted(ranks.values()) == [1, 2]
    named = {card["label"] for cards in in_short(gathered).values() for card in cards}
    assert named <= {"ACR", "ER"}
    text = tabular(comparison_table(gathered, "acc", "ACC"))
    assert text.count("textbf") == 1
    assert "Joint training" in text
