import json
import re

import numpy as np
import pytest
from fabricated_runs import LEVEL, make_run

from acr.report.groups import gather
from acr.report.page.render import embedded, render, write_page
from acr.report.wording import with_interval
from acr.runs.run import find_runs, load_run
from acr.shift import PAPER_CORRUPTIONS

NASTY = "<script>alert(1)</script>"


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))


@pytest.fixture(scope="module")
def gathered(sweep):
    return gather(find_runs(sweep))


@pytest.fixture(scope="module")
def page(gathered):
    return render(gathered)


def test_numbers_on_the_page_are_the_runs_own(gathered, page):
    for group in gathered.groups:
        for name in ("acc", "bwt", "ood_acc"):
            assert with_interval(group.estimate(name), 100) in page
    charts = data_of(page)["charts"]
    matrix = charts["matrices"]["variants"]["s0|clean"]["panels"][0]["cells"]
    own = np.mean([run.accuracy["clean"] for run in gathered.comparisons[0].groups[0].runs], axis=0)
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            assert value is None if j > i else value == pytest.approx(100 * own[i, j], abs=0.051)
    shifted = charts["scatter"]["variants"]["s0"]["panels"][0]["data"][2]
    assert shifted["y"][0] == pytest.approx(100 * gathered.comparisons[0].groups[0].estimate("ood_acc").mean, abs=0.01)


def test_confusion_adds_up_over_seeds(gathered, page):
    cells = data_of(page)["charts"]["confusion"]["variants"]["s0|clean"]["panels"][0]["cells"]
    runs = gathered.comparisons[0].groups[0].runs
    summed = np.sum([run.results.stages[-1].scenarios["clean"].confusion for run in runs], axis=0)
    np.testing.assert_allclose(cells, 100 * summed / summed.sum(1, keepdims=True), atol=0.051)


def test_every_scenario_can_be_picked(page):
    pickers = data_of(page)["charts"]["matrices"]["pickers"]["s0"]
    assert [value for value, _ in pickers] == ["clean", "ood", *(f"{name}/1" for name in PAPER_CORRUPTIONS)]


def test_a_page_of_a_hundred_runs_is_under_eight_megabytes(tmp_path):
    for method in LEVEL:
        for seed in range(5):
            for size in (500,) if method == "finetune" else (500, 1000):
                make_run(tmp_path, method, seed, tasks=10, classes_per_task=5, buffer_size=size, side=32, channels=3,
                         train_per_class=100)  # fmt: skip
    runs = find_runs(tmp_path)
    for seed in range(100 - len(runs)):
        make_run(tmp_path, "er", 100 + seed, tasks=10, classes_per_task=5, buffer_size=500, side=32, channels=3)
    runs = find_runs(tmp_path)
    assert len(runs) == 100
    path = write_page(runs, tmp_path / "page.html")
    assert path.stat().st_size < 8_000_000
    memories = data_of(path.read_text(encoding="utf-8"))["memories"]
    assert len(memories) == len(LEVEL) - 1
    assert all(sum(len(g["variance"]) for g in m["groups"]) <= 200 for m in memories.values())


def test_names_from_outside_are_text(tmp_path):
    names = [NASTY, "</script><img src=x onerror=alert(2)>", "a\u2028b", "{{ 7 * 7 }}", *map(str, range(6))]
    make_run(tmp_path, "acr", 0, class_names=names, name="""it's "quoted" & <b>fat 🦊""")
    make_run(tmp_path, "<i>mine</i>", 0)
    page = render(gather(find_runs(tmp_path)))
    body = page.replace(re.search(r"<script>/\*\*.*?</script>", page, re.S).group(0), "")
    assert NASTY not in body
    assert "<img src=x" not in body
    assert "<b>fat" not in body
    assert "<i>mine" not in body
    assert "\u2028" not in body
    data = data_of(page)
    assert data["memories"]["ACR"]["groups"][0]["name"] == NASTY
    assert "&lt;script&gt;" in json.dumps(data["charts"]["classes"])
    assert "🦊" in page


def test_embedded_json_cannot_end_its_element():
    text = embedded({"a": "</script><!--\u2028&", "b": [None, 1.5]})
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == {"a": "</script><!--\u2028&", "b": [None, 1.5]}


def test_without_shift_or_samples_the_page_says_why(tmp_path):
    make_run(tmp_path, "finetune", 0, corruptions=())
    page = render(gather(find_runs(tmp_path)))
    charts = data_of(page)["charts"]
    for chart, key in (("scatter", "s0"), ("corruptions", "s0|all")):
        assert "--ood-every stage" in charts[chart]["variants"][key]["empty"]
    assert "stores samples" in charts["balance"]["variants"]["s0|class"]["empty"]
    assert "acr" in charts["confidence"]["variants"]["s0|none"]["empty"]
    assert data_of(page)["samples"] == {"s0": None}


def test_only_unfinished_runs_make_a_page_too(tmp_path):
    folder = make_run(tmp_path, "acr", 0, finished=False)
    page = write_page([load_run(folder)], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "No finished run was found" in page
    assert "unfinished" in page
    assert folder.name in page


def test_joint_training_has_a_last_row_only(tmp_path):
    folder = make_run(tmp_path, "joint", 0)
    assert len(json.loads((folder / "results.json").read_text())["stages"]) == 1
    make_run(tmp_path, "acr", 0)
    page = render(gather(find_runs(tmp_path)))
    assert "This could not be drawn" not in page
    assert "Joint training" in page


def test_a_real_run_makes_a_page(tmp_path):
    import acr

    run = acr.run(
        method="acr", out=tmp_path, epochs=2, width=2, samples_per_class=30, ood_every="never", buffer_size=20
    )
    path = write_page([run], tmp_path / "page.html")
    page = path.read_text(encoding="utf-8")
    assert with_interval(gather([run]).groups[0].estimate("acc"), 100) in page
    charts = data_of(page)["charts"]
    assert charts["confidence"]["variants"]["s0|m0"]["panels"]
    assert charts["cost"]["variants"]["s0"]["panels"]
    assert sum(len(g["variance"]) for g in data_of(page)["memories"]["ACR"]["groups"]) == 20
