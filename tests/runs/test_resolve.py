from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from acr.config import RunConfig
from acr.data.catalog import CATALOG
from acr.errors import InputError
from acr.methods.method import REGISTRY
from acr.runs.resolve import defaults_of, make_config, read_config_file


def test_defaults_come_from_the_data_set_and_the_user_goes_first():
    config = make_config({})
    assert (config.method, config.dataset, config.tasks) == ("acr", "split-digits", 5)
    assert make_config({"epochs": 3}).epochs == 3
    assert make_config({}, file={"epochs": 4}).epochs == 4
    assert make_config({"epochs": 3}, file={"epochs": 4}).epochs == 3


def test_options_of_the_method_stand_beside_the_fields():
    config = make_config({"temperature": 0.2, "policy": "hard"})
    assert config.options.temperature == 0.2
    assert config.flat()["policy"] == "hard"


def test_config_file_round_trip(tmp_path):
    config = make_config({"method": "er", "class_order": "3,1,2,0", "classes_per_task": "2", "checkpoint_every": "2m"})
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config.flat()))
    again = make_config({}, file=read_config_file(path))
    assert again == config
    assert again.identity() == config.identity()
    assert again.class_order == (3, 1, 2, 0)
    assert again.checkpoint_every == 120


def test_identity_is_of_what_changes_results():
    base = make_config({}).identity()
    for how in ({"out": "x"}, {"threads": 1}, {"quiet": True}, {"log_every": 3}, {"eval_every": 1}, {"device": "cpu"},
                {"checkpoint_every": "1m"}, {"data_root": "x"}, {"keep": 3}):  # fmt: skip
        assert make_config(how).identity() == base
    for what in ({"seed": 1}, {"epochs": 2}, {"temperature": 0.1}, {"quirk": ["unseen-outputs"]}, {"method": "er"},
                 {"class_order": "random:1"}, {"ood_every": "end"}):  # fmt: skip
        assert make_config(what).identity() != base


def test_methods_without_a_memory_have_no_buffer_size():
    a, b = (make_config({"method": "finetune", "buffer_size": n}) for n in (10, 500))
    assert a.identity() == b.identity()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"buffer_sise": 3}, "Did you mean 'buffer_size'"),
        ({"method": "acrr"}, "Did you mean 'acr'"),
        ({"dataset": "split-digit"}, "Did you mean 'split-digits'"),
        ({"method": "er", "temperature": 0.1}, "an option of acr, pcr, scr, aver, not of er"),
        ({"buffer_size": -1}, "--buffer-size -1: expected at least 0"),
        ({"class_order": [0.5] * 2000}, r"(?s)^(?=.{,400}\Z).*--class-order 0.5: expected a whole number"),
        ({"class_order": [n + 0.5 for n in range(2000)]}, r"(?s)^(?=.{,1000}\Z).*And 1991 more of the kind\.$"),
        ({"epochs": "many"}, "--epochs 'many': expected a whole number"),
        ({"learning_rate": 0}, "--learning-rate 0: expected a number above 0"),
        ({"policy": "best"}, "--policy 'best': expected 'reservoir'"),
        ({"confidence_epochs": 11, "epochs": 10}, "between 1 and the epochs of a task, 10"),
        ({"ood_severities": "0-3"}, "from 1 to 5; got 0"),
        ({"ood_severities": "6"}, "from 1 to 5; got 6"),
        ({"quirk": "wrapped-odd"}, "Did you mean 'wrapped-ood'"),
        ({"protocol": "mine"}, "--protocol 'mine'"),
        ({"options": {}}, "no config field 'options'"),
        ({"dataset": "folder:"}, "no data set|has no path"),
    ],
)
def test_refusals(values, words):
    with pytest.raises(InputError, match=words):
        make_config(values)


def test_ranges_and_lists():
    assert make_config({"ood_severities": "1-3,5"}).ood_severities == (1, 2, 3, 5)
    assert make_config({"lr_milestones": "35 45"}).lr_milestones == (35, 45)
    assert make_config({"classes_per_task": "4,3,3"}).tasks is None


@settings(deadline=None)  # an unknown name imports every method, to say whose option it is
@given(
    st.dictionaries(
        st.one_of(st.sampled_from(sorted(RunConfig.model_fields)), st.text(max_size=8)),
        st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=8), st.lists(st.integers(), max_size=3)),
        max_size=4,
    )
)
def test_any_values_make_a_config_or_an_input_error(values):
    try:
        config = make_config(values)
    except InputError:
        return
    assert config.identity()


@given(st.binary(max_size=60))
def test_any_file_is_read_or_refused(tmp_path_factory, content):
    path = Path(tmp_path_factory.mktemp("fuzz")) / "config.yaml"
    path.write_bytes(content)
    try:
        values = read_config_file(path)
    except InputError:
        return
    assert isinstance(values, dict)


def test_every_default_of_the_package_has_a_source():
    """What `acr methods NAME` prints: nothing that decides how well a method learns comes from nowhere."""
    for method in (name for name, found in REGISTRY.items() if isinstance(found, str)):
        for dataset in CATALOG:
            for default in defaults_of(method, dataset.replace("PATH", "photos")):
                assert default.source, f"{method}: where does the default of {default.name} come from?"


def test_the_source_is_that_of_the_layer_that_decides():
    found = {default.name: default for default in defaults_of("derpp", "split-tiny-imagenet", 500)}
    assert (found["alpha"].value, found["learning_rate"].value) == (0.2, 0.03)
    assert "best_args" in found["alpha"].source
    assert found["epochs"].source == found["batch_size"].source == "the paper"
    assert found["buffer_size"].source == "given"
    found = {default.name: default for default in defaults_of("derpp", "split-digits")}
    assert "CIFAR-100" in found["alpha"].source
    assert "digits_search.csv" in found["learning_rate"].source
