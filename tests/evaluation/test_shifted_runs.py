"""Runs under shift, from the config to the figures."""

import json

import numpy as np
import pytest

import acr
import acr.errors
from acr.cli import main

SMALL = {"epochs": 1, "width": 2, "buffer_size": 20, "method": "er", "threads": 1,
         "ood_corruptions": "gaussian_noise,fog"}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return acr.run(out=tmp_path_factory.mktemp("runs"), data_cache=tmp_path_factory.mktemp("cache"),
                   ood_severities="1,5", **SMALL)  # fmt: skip


def test_every_stage_and_scenario_is_counted(run):
    names = ["clean", "gaussian_noise/1", "gaussian_noise/5", "fog/1", "fog/5"]
    assert run.scenarios == names
    for stage in run.results.stages:
        assert list(stage.scenarios) == names
        for counts in stage.scenarios.values():
            assert len(counts.total) == stage.stage + 1
    assert sum(map(sum, run.results.stages[-1].scenarios["fog/5"].total)) == 357


def test_clean_images_do_not_count_as_shifted(run):
    shifted = [run.accuracy[name] for name in run.scenarios if name != "clean"]
    np.testing.assert_allclose(run.accuracy["ood"], np.mean(shifted, axis=0))


def test_summary_is_in_the_results(run):
    summary = run.summary()
    assert summary["ood_acc"] == pytest.approx(float(np.mean(run.accuracy["ood"][-1])))
    assert summary["relative_robustness"] == pytest.approx(summary["ood_acc"] / summary["acc"])
    stored = json.loads((run.folder / "results.json").read_text())["summary"]
    assert stored["ood_acc"] == summary["ood_acc"]
    assert 0 <= stored["ood_calibration_error"] <= 1


def test_samples_show_the_same_images_under_every_shift(run):
    samples = np.load(run.folder / "samples.npz", allow_pickle=False)
    assert samples["images"].shape == samples["fog/5"].shape == (10, 1, 8, 8)
    assert not np.array_equal(samples["images"], samples["gaussian_noise/5"])


def test_only_at_the_end(tmp_path):
    run = acr.run(out=tmp_path, data_cache=tmp_path, ood_every="end", **SMALL)
    matrix = run.accuracy["fog/1"]
    assert np.isnan(matrix[:-1]).all()
    assert not np.isnan(matrix[-1]).any()
    assert np.isnan(run.summary()["ood_bwt"])


def test_published_protocol(tmp_path):
    run = acr.run(out=tmp_path, data_cache=tmp_path, protocol="published", **SMALL)
    assert run.results.headline == "all"
    every = [run.accuracy[name] for name in run.scenarios]
    np.testing.assert_allclose(run.accuracy["ood"], np.mean(every, axis=0))  # the clean image among them
    assert not list(tmp_path.glob("shift/*"))  # drawn at evaluation, not cached


def test_mean_corruption_error(run):
    assert run.mean_corruption_error(run) == pytest.approx(100)
    errors = {name: 1 - float(np.mean(run.accuracy[name][-1])) for name in run.scenarios}
    fake = acr.load_run(run.folder)
    fake.results = run.results.model_copy(deep=True)
    for counts in (c for stage in fake.results.stages for c in stage.scenarios.values()):
        counts.correct["seen"] = [[n / 2 for n in row] for row in counts.total]
    noise = (errors["gaussian_noise/1"] + errors["gaussian_noise/5"]) / 1.0
    fog = (errors["fog/1"] + errors["fog/5"]) / 1.0
    assert run.mean_corruption_error(fake) == pytest.approx(100 * (noise + fog) / 2)


def test_a_baseline_is_a_question_about_finished_runs(tmp_path, run):
    assert "mean_corruption_error" not in run.summary()
    assert run.summary(baseline=run)["mean_corruption_error"] == pytest.approx(100)
    with pytest.raises(acr.errors.InputError, match="acr report RUNS --baseline RUN"):
        acr.run(out=tmp_path, seed=3, ood_baseline=tmp_path, **SMALL)


def test_shift_commands(tmp_path, capsys):
    main(["shift", "list"])
    assert "glass_blur" in capsys.readouterr().out
    words = ["split-digits", "--ood-corruptions", "fog,snow", "--data-cache", str(tmp_path), "--quiet"]
    main(["shift", "build", *words])
    assert "2 shifted copies of 357 test images" in capsys.readouterr().out
    main(["shift", "show", *words, "-o", str(tmp_path / "sheet.png")])
    assert (tmp_path / "sheet.png").stat().st_size > 1000
    for wrong, says in ((["--ood-corruptions", "fgo"], "Did you mean 'fog'"), (["--ood-severities", "0"], "1 to 5")):
        with pytest.raises(SystemExit) as exit:
            main(["shift", "build", "split-digits", *wrong])
        assert exit.value.code == 2
        assert says in capsys.readouterr().err


def test_data_commands(tmp_path, capsys):
    main(["data", "check", "split-digits", "--quiet"])
    assert "can be used" in capsys.readouterr().out
    main(["data", "show", "split-digits", "--by", "task", "-o", str(tmp_path / "digits.png"), "--quiet"])
    main(["data", "show", "split-digits", "--by", "view", "-o", str(tmp_path / "views.png"), "--quiet"])
    assert (tmp_path / "digits.png").exists()
    for words, says in (
        (["data", "check", "split-cifar10"], "acr data fetch split-cifar10"),
        (["data", "fetch", "split-mini-imagenet"], "no public download"),
        (["data", "show", "split-digits", "-o", str(tmp_path / "x.xyz"), "--quiet"], ".png"),
        (["run", "--dataset", "split-cifar100"], "acr data fetch split-cifar100"),
    ):
        with pytest.raises(SystemExit) as exit:
            main([*words, *(["--data-root", str(tmp_path)] if words[1] in ("check", "run") else [])])
        assert exit.value.code == 2
        assert says in capsys.readouterr().err
