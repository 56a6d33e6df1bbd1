"""Config files and run folders of earlier versions."""

import json

import pytest
import yaml

from acr.errors import InputError
from acr.launch import resume_run, run_config
from acr.runs.former import in_todays_terms
from acr.runs.resolve import make_config, read_config_file
from acr.runs.run import load_run

QUIRK = "misplaced-soif-weight"
QUICK = {"tasks": 2, "classes_per_task": 2, "class_order": "0-3", "samples_per_class": 8, "test_samples_per_class": 5,
         "buffer_size": 8, "batch_size": 4, "epochs": 1, "width": 2, "ood_every": "never", "threads": 1}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "weighting"),
    [
        ({}, "batch-share"),
        ({"quirk": [QUIRK]}, "released"),
        ({"quirk": f"unseen-outputs,{QUIRK}"}, "released"),
        ({"protocol": "published"}, "released"),
        ({"protocol": "published", "no_quirk": [QUIRK]}, "batch-share"),
        ({"weighting": "equal"}, "equal"),
    ],
)
def test_an_old_soif_run_shows_the_weighting_it_had(values, weighting):
    today = in_todays_terms({"method": "soif", **values}, revision=1)
    assert today["weighting"] == weighting
    assert QUIRK not in str(today)
    assert make_config(today).options.weighting == weighting


def test_a_users_own_file_is_translated_where_it_names_the_quirk(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(f"method: soif\nquirk: [{QUIRK}, unseen-outputs]\n")
    assert read_config_file(path) == {"method": "soif", "quirk": ["unseen-outputs"], "weighting": "released"}
    path.write_text("method: soif\n")
    assert read_config_file(path) == {"method": "soif"}
    path.write_text(f"method: er\nprotocol: published\nno_quirk: {QUIRK}\n")
    assert make_config(read_config_file(path)).no_quirk == ()


def test_a_former_quirk_is_refused_with_what_to_do():
    with pytest.raises(InputError, match=r"no longer a quirk.*--weighting released"):
        make_config({"method": "soif", "quirk": [QUIRK]})


def as_of_revision_1(folder, **changes):
    """Make a run folder look like one that was written before methods had revisions."""
    path = folder / "config.yaml"
    values = yaml.safe_load(path.read_text())
    del values["revision"], values["weighting"]
    path.write_text(yaml.safe_dump({**values, **changes}, sort_keys=False))


def test_an_old_run_is_read_but_neither_resumed_nor_taken_for_a_new_one(tmp_path):
    config = make_config({"method": "soif", "weighting": "batch-share", "out": tmp_path, "quiet": True, **QUICK})
    run = run_config(config)
    as_of_revision_1(run.folder, protocol="sound")
    old = load_run(run.folder)
    assert old.finished
    assert (old.revision, old.config.options.weighting) == (1, "batch-share")
    assert old.summary()["acc"] == run.summary()["acc"]
    assert resume_run(run.folder).folder == run.folder  # finished: nothing is to be done

    results = run.folder / "results.json"
    content = json.loads(results.read_text())
    results.unlink()
    with pytest.raises(InputError, match=r"soif worked differently.*acr run --config"):
        resume_run(run.folder)
    results.write_text(json.dumps(content))


def test_the_revision_of_a_method_is_part_of_its_identity(monkeypatch):
    config = make_config({"method": "soif"})
    before = config.identity()
    monkeypatch.setattr(type(config.options), "revision", 1)
    assert config.identity() != before
    assert make_config({"method": "er"}).options.revision == 1


@pytest.mark.parametrize("revision", ["two", 0, 1.5, None, [1]])
def test_a_damaged_revision_is_refused(tmp_path, revision):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"schema": 1, "revision": revision, "method": "er"}))
    with pytest.raises(InputError, match="revision"):
        read_config_file(path)


@pytest.mark.parametrize(("values", "epochs"), [({"fit_epochs": None}, 50), ({"fit_epochs": 7}, 7)])
def test_an_old_gdumb_run_shows_the_epochs_that_its_fit_had(values, epochs):
    today = in_todays_terms({"method": "gdumb", "epochs": 10, "fit_factor": 5.0, **values}, revision=1)
    assert make_config(today).options.fit_epochs == epochs


def test_a_factor_of_a_users_own_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("method: gdumb\nfit_factor: 2\n")
    with pytest.raises(InputError, match="--fit-epochs sets its epochs"):
        make_config(read_config_file(path))


def test_an_old_metasp_run_shows_the_replay_epochs_that_it_had():
    today = in_todays_terms({"method": "metasp", "epochs": 3, "replay_epochs": 5}, revision=1)
    assert make_config(today).options.replay_epochs == 2
