import math
import shlex

import numpy as np
import pytest
import yaml
from fabricated_runs import make_run, make_sweep

from acr.cli import main
from acr.report.charts.classes import class_accuracy, class_change
from acr.report.charts.shift import corruption_estimate, spread
from acr.report.exports import comparison_table
from acr.report.figures import write_figures
from acr.report.groups import gather
from acr.report.latex import tabular
from acr.report.page import rerun
from acr.report.page.pictures import TILES, memory_of, share_out
from acr.report.page.render import leaders
from acr.report.page.sections import in_short
from acr.report.statistics import estimate
from acr.runs.resolve import make_config
from acr.runs.run import Run, find_runs


def test_interval_by_hand():
    # t(0.975, 4) = 2.776445; sd of 1..5 is sqrt(2.5)
    value = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert value.mean == pytest.approx(3.0)
    assert value.half == pytest.approx(2.7764451 * math.sqrt(2.5) / math.sqrt(5))
    assert math.isnan(estimate([1.0]).half)
    assert estimate([1.0, math.nan]).n == 1
    assert not estimate([]).known


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


def test_the_same_run_twice_counts_once(tmp_path):
    make_run(tmp_path, "er", 0, name="one")
    make_run(tmp_path, "er", 0, name="two")
    gathered = gather(find_runs(tmp_path))
    assert len(gathered.runs) == 1
    assert gathered.problems[0].state == "repeated"


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


def test_damaged_arrays_leave_out_their_picture_only(tmp_path):
    folder = make_run(tmp_path, "acr", 0)
    for name in ("memory.npz", "confidence.npz", "samples.npz", "events.jsonl"):
        (folder / name).write_bytes(b"PK not a zip")
    with pytest.warns(UserWarning, match="Left out of the page: .*memory.npz is damaged"):
        main(["report", str(tmp_path), "-o", str(tmp_path / "page.html")])
    assert "This could not be drawn" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_forgetting_of_classes_is_the_change_since_first_seen(sweep):
    group = gather(find_runs(sweep)).groups[0]
    change = class_change(class_accuracy(group))
    run_changes = []
    for run in group.runs:
        stages = [s.scenarios["clean"] for s in run.results.stages]
        run_changes.append((stages[-1].correct["seen"][0][1] - stages[0].correct["seen"][0][1]) / 30)
    assert change[1] == pytest.approx(np.mean(run_changes))
    assert np.isnan(change[-2:]).all()


def test_memory_tiles_are_few_ordered_and_from_every_class(tmp_path):
    folder = make_run(tmp_path, "acr", 0, buffer_size=1000, side=32, channels=3)
    memory = memory_of(Run(folder), 10**7)
    assert sum(len(g["variance"]) for g in memory["groups"]) <= TILES
    assert len(memory["groups"]) == 10
    for group in memory["groups"]:
        assert group["variance"] == sorted(group["variance"], reverse=True)
        assert group["stored"] == 100
    small = memory_of(Run(folder), 40_000)
    assert len(small["sprite"]["src"]) < 0.75 * len(memory["sprite"]["src"])
    assert share_out({(0, 0): [1], (0, 1): list(range(50))}, 10)[0, 1][0] == 0


def test_names_beside_points_keep_their_distance():
    heights = spread([50, 51, 52, 90, 10], 0, 100, 5)
    assert all(b - a >= 5 - 1e-6 for a, b in zip(sorted(heights), sorted(heights)[1:], strict=False))


@pytest.mark.parametrize(
    "values",
    [
        {"method": "acr", "seed": 3, "policy": "hard", "confidence_epochs": 3, "temperature": 0.2},
        {"method": "er", "tasks": 2, "class_order": "random:4", "lr_milestones": "3,5", "protocol": "published"},
        {"method": "finetune", "classes_per_task": "4,3,3", "skip_broken": True, "quirk": ["clean-in-ood"]},
        {"method": "acr", "ood_corruptions": "fog,snow", "ood_severities": "1-3", "no_quirk": ["unseen-outputs"]},
    ],
)
def test_the_command_makes_the_same_run(tmp_path, values, monkeypatch):
    config = make_config(values)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump({"schema": 1, **config.flat()}))
    words = shlex.split(rerun.command(Run(folder)))
    seen = {}
    monkeypatch.setattr("acr.commands.run.run_config", lambda c, **_: (seen.update(config=c), Run(folder))[1])
    monkeypatch.setattr("acr.commands.run.show", lambda run: None)
    main([*words[1:], "--out", str(tmp_path / "elsewhere")])
    assert seen["config"].identity() == config.identity()


def test_tables_for_other_programs(sweep, tmp_path, capsys):
    words = ["--csv", str(tmp_path / "csv"), "--latex", str(tmp_path / "tex")]
    main(["report", str(sweep), "-o", str(tmp_path / "page.html"), *words])
    out = capsys.readouterr().out
    assert "13 runs in 5 groups" in out
    assert out.count("not counted") == 2
    rows = (tmp_path / "csv" / "runs.csv").read_text().splitlines()
    assert len(rows) == 14
    gathered = gather(find_runs(sweep))
    first = rows[1].split(",")
    assert float(first[rows[0].split(",").index("acc")]) == pytest.approx(gathered.runs[0].summary()["acc"])
    tex = (tmp_path / "tex" / "acc.tex").read_text()
    assert f"{100 * gathered.groups[0].estimate('acc').mean:.1f}" in tex
    assert tex.count(r"\textbf") == 2


def test_figures_for_papers(tmp_path):
    make_sweep(tmp_path / "runs", ("acr", "finetune"), seeds=2, corruptions=("fog", "snow"), tasks=3)
    make_run(tmp_path / "clean", "er", 0, corruptions=(), tasks=2)
    main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "page.html"), "--figures", str(tmp_path / "figures")])
    names = {path.name.split("-")[0] + path.suffix for path in (tmp_path / "figures").iterdir()}
    assert names == {a + b for a in ("stages", "scatter", "ood", "matrices") for b in (".pdf", ".png", ".svg")}
    assert (tmp_path / "figures").joinpath("stages-split-digits-buffer-50-sound.pdf").read_bytes().startswith(b"%PDF")
    written = write_figures(gather(find_runs(tmp_path / "clean")), tmp_path / "few")
    assert {path.name.split("-")[0] for path in written} == {"stages", "matrices"}


def test_words_that_are_wrong_are_said_in_one_sentence(tmp_path, capsys):
    for words in (["report"], ["report", str(tmp_path / "none")], ["report", str(tmp_path)]):
        with pytest.raises(SystemExit) as exit:
            main(words)
        assert exit.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1


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
