"""Runs with averaged weights: two networks are evaluated, and training is what it would have been without."""

import json

import numpy as np
import pytest
from device_runs import on_cpu, on_device

import acr
from acr.errors import InputError
from acr.methods.method import method_class, method_names
from acr.report.columns import summary_rows
from acr.runs.resolve import make_config
from acr.runs.schema import Results, read_results

SMALL = {"width": 2, "samples_per_class": 20, "batch_size": 8, "buffer_size": 30, "epochs": 2, "threads": 1,
         "ood_corruptions": "fog,snow"}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    return {name: acr.run("er", out=out, average_weights=name, **SMALL) for name in ("off", "0.5t")}


def test_the_network_as_trained_is_that_of_a_run_without(runs):
    plain, averaged = runs["off"].results, runs["0.5t"].results
    assert [stage.as_trained for stage in averaged.stages] == [stage.scenarios for stage in plain.stages]
    assert [stage.as_trained for stage in plain.stages] == [{}] * 5
    assert averaged.stages[-1].scenarios != averaged.stages[-1].as_trained
    assert runs["off"].config.identity() != runs["0.5t"].config.identity()


def test_the_summary_and_the_tables_have_both(runs):
    plain, averaged = runs["off"].summary(), runs["0.5t"].summary()
    assert averaged["as_trained_acc"] == plain["acc"]
    assert averaged["as_trained_ood_acc"] == plain["ood_acc"]
    assert "as_trained_acc" not in plain
    assert averaged["acc"] == pytest.approx(runs["0.5t"].accuracy["clean"][-1].mean())
    np.testing.assert_array_equal(runs["0.5t"].accuracy_as_trained["ood"], runs["off"].accuracy["ood"])
    assert not runs["off"].accuracy_as_trained
    heads, rows = summary_rows([runs["0.5t"], runs["off"]])
    assert rows[0][heads.index("raw ACC %")] == rows[1][heads.index("ACC %")]
    assert rows[1][heads.index("raw ACC %")] == "–"


def test_the_table_of_counts_says_which_weights_answered(runs):
    table = runs["0.5t"].to_frame()
    assert set(table.weights) == {"averaged", "as trained"}
    right = table[(table.stage == 4) & (table.scenario == "clean")].groupby("weights").accuracy.mean()
    assert right["averaged"] == pytest.approx(runs["0.5t"].summary()["acc"])
    assert right["as trained"] == pytest.approx(runs["off"].summary()["acc"])
    assert set(runs["off"].to_frame().weights) == {"as trained"}


def test_the_log_has_both(runs):
    stages = [event for event in runs["0.5t"].events() if event["event"] == "stage"]
    assert all(event["accuracies"].keys() == event["as_trained"].keys() for event in stages)
    assert not any("as_trained" in event for event in runs["off"].events())


def test_results_that_lack_a_scenario_of_the_network_as_trained_are_damaged(runs):
    content = json.loads((runs["0.5t"].folder / "results.json").read_text())
    assert isinstance(read_results(content), Results)
    content["stages"][1]["as_trained"].pop("fog/1")
    with pytest.raises(ValueError, match="stage 1 has other scenarios for the network as trained"):
        read_results(content)


@pytest.mark.parametrize("method", [name for name in method_names() if method_class(name).no_average])
def test_a_method_to_which_it_does_not_apply_says_why(method):
    with pytest.raises(InputError, match=f"--average-weights does not apply to {method}: it"):
        make_config({"method": method, "average_weights": "0.5t"})


def test_only_gdumb_and_cls_er_are_such_methods():
    assert [name for name in method_names() if method_class(name).no_average] == ["gdumb", "cls-er"]


@pytest.mark.parametrize("value", ["0.50t", ".5t", "0.5t"])
def test_one_half_life_is_one_run_however_it_is_written(value):
    assert make_config({"average_weights": value}).average_weights == "0.5t"


@pytest.mark.parametrize("value", ["fast", True, "0", -3, None, [1]])
def test_what_is_no_half_life_is_refused_in_a_sentence(value):
    with pytest.raises(InputError, match=r"--average-weights .*: expected off, auto, a number of steps"):
        make_config({"average_weights": value})


def test_off_is_the_run_that_earlier_versions_made():
    assert make_config({"average_weights": False}).identity() == make_config({}).identity()


def test_nothing_waits_for_a_device(plain_convolutions):
    there, here = on_device("er", average_weights="0.3t"), on_cpu("er", average_weights="0.3t")
    assert there.losses == here.losses == on_cpu("er").losses
    assert max(counts.waits for counts in there.steady()) == 0
    assert there.average.keys() == here.average.keys()
    for name, value in here.average.items():
        assert (there.average[name] == value).all(), name
