import itertools

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from acr.errors import InputError
from acr.reproduce.plan import RECIPES
from acr.sweeps.recipe import find_recipe, matches, merged

BUNDLED = sorted(path.stem for path in RECIPES.glob("*.yaml"))
SCALES = ("quick", "reduced", "full")


def recipe(tmp_path, text, name="mine.yaml"):
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else yaml.safe_dump(text, sort_keys=False))
    return find_recipe(path)


METHODS = st.lists(st.sampled_from(["acr", "er", "finetune", "joint"]), min_size=1, max_size=4, unique=True)
BUFFERS = st.lists(st.sampled_from([20, 50, 100]), min_size=1, max_size=3, unique=True)
SEEDS = st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True)
PATTERNS = st.lists(
    st.fixed_dictionaries(
        {}, optional={"method": st.sampled_from(["acr", "er"]), "buffer_size": st.sampled_from([20, 50])}
    ).filter(bool),
    max_size=2,
)


@settings(max_examples=40, deadline=None)
@given(methods=METHODS, buffers=BUFFERS, seeds=SEEDS, exclude=PATTERNS)
def test_a_grid_is_every_combination_once_without_the_excluded(tmp_path_factory, methods, buffers, seeds, exclude):
    content = {"grid": {"method": methods, "buffer_size": buffers, "seed": seeds}, "exclude": exclude}
    mine = recipe(tmp_path_factory.mktemp("recipe"), content)
    kept = [
        (method, size, seed)
        for method, size, seed in itertools.product(methods, buffers, seeds)
        if not any(matches(p, {"method": method, "buffer_size": size}) for p in exclude)
    ]
    assert [(v["method"], v["buffer_size"], v["seed"]) for v in mine.combinations()] == kept
    # Fine-tuning and joint training have no memory: one run serves all buffer sizes.
    runs = {(method, 0 if method in ("finetune", "joint") else size, seed) for method, size, seed in kept}
    if not runs:
        with pytest.raises(InputError, match="has no runs: its exclusions leave nothing"):
            mine.expand()
        return
    configs = mine.expand()
    assert {(c.method, c.buffer_size, c.seed) for c in configs} == runs
    assert len(configs) == len(runs) == len({c.identity() for c in configs})


def test_fixed_values_overrides_ranges_and_hyphens(tmp_path):
    mine = recipe(
        tmp_path,
        """
        fixed: {dataset: split-digits, ood-every: never}
        grid: {method: [er, acr], seed: 0-2, buffer-size: 30}
        override:
          - when: {method: acr, seed: [1, 2]}
            set: {learning-rate: 0.05, confidence-epochs: 3}
        """,
    )
    configs = mine.expand(out=tmp_path)
    assert len(configs) == 6
    assert {c.ood_every for c in configs} == {"never"}
    assert {c.out for c in configs} == {tmp_path}
    changed = [(c.method, c.seed) for c in configs if c.learning_rate == 0.05]
    assert changed == [("acr", 1), ("acr", 2)]
    assert [c.options.confidence_epochs for c in configs if c.method == "acr"] == [5, 3, 3]


def test_scales_and_extends_replace_key_by_key(tmp_path):
    (tmp_path / "base.yaml").write_text(
        "grid: {method: [er, acr], seed: 0-4}\nscales: {quick: {fixed: {epochs: 1}, grid: {seed: [0]}}}"
    )
    mine = recipe(tmp_path, "extends: base.yaml\nfixed: {method: acr}\nscales: {quick: {fixed: {width: 2}}}")
    assert [(c.method, c.seed) for c in mine.expand()] == [("acr", seed) for seed in range(5)]
    (quick,) = mine.at_scale("quick").expand()
    assert (quick.method, quick.seed, quick.epochs, quick.width) == ("acr", 0, 1, 2)


def test_a_field_said_later_to_be_fixed_leaves_the_grid_and_the_other_way_round():
    base = {"grid": {"seed": [0, 1]}, "fixed": {"width": 2}}
    assert merged(base, {"fixed": {"seed": 3}}) == {"grid": {}, "fixed": {"width": 2, "seed": 3}}
    assert merged(base, {"grid": {"width": [1]}}) == {"grid": {"seed": [0, 1], "width": [1]}, "fixed": {}}


def test_with_fixed_takes_a_value_or_a_list(tmp_path):
    mine = recipe(tmp_path, "grid: {method: [er], protocol: [sound]}")
    assert [c.protocol for c in mine.with_fixed(protocol="published").expand()] == ["published"]
    assert [c.protocol for c in mine.with_fixed(protocol=["sound", "published"]).expand()] == ["sound", "published"]
    assert mine.with_fixed(protocol=None) == mine


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gird: {method: [er]}", "Did you mean 'grid'"),
        ("grid: {bufer_size: [20]}", "Did you mean 'buffer_size'"),
        ("fixed: {epoch: 2}", "Did you mean 'epochs'"),
        ("grid: {method: [err]}", "Did you mean 'er'"),
        ("grid: {method: [er], epochs: [0]}", "the run with method: er, epochs: 0: --epochs 0"),
        ("grid: {method: []}", "the list of method is empty"),
        ("grid: [er]", "'field: value'"),
        ("grid: {method: [er]}\nfixed: {method: acr}", "method is under both fixed and grid"),
        ("grid: {method: [er]}\nexclude: {method: er}", "is a list of cases"),
        ("grid: {method: [er]}\nexclude: [{seed: 1}]", "exclude in the recipe mine names it"),
        ("grid: {method: [er]}\nexclude: [{method: er}]", "has no runs: its exclusions leave nothing"),
        ("grid: {method: [er]}\noverride: [{when: {method: er}}]", "every case has a 'when' and a 'set'"),
        ("grid: {method: [er]}\noverride: [{when: {method: er}, set: {widht: 2}}]", "Did you mean 'width'"),
        ("grid: {method: [er]}\nscales: {quick: {extends: x}}", "key in the scale quick"),
        ("grid: {method: [er]}\njobs: 0", "expected a whole number of at least 1"),
        ("extends: mine.yaml", "extends itself"),
        ("extends: none.yaml", "Cannot read the recipe"),
        ("- er", "must hold the keys of a recipe"),
        ("grid: {method: [er", "is not a YAML file"),
        ("grid: {method: [finetune], temperature: [0.1]}", "option of acr"),
    ],
)
def test_mistakes_are_told_in_a_sentence(tmp_path, text, says):
    with pytest.raises(InputError) as error:
        recipe(tmp_path, text).expand()
    assert says in str(error.value)


def test_unknown_recipes_and_scales_get_a_suggestion(tmp_path):
    with pytest.raises(InputError, match="Did you mean 'policies'"):
        find_recipe("policy", RECIPES)
    with pytest.raises(InputError, match="Cannot read the recipe"):
        find_recipe(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="Did you mean 'quick'"):
        find_recipe("acc", RECIPES).at_scale("quik")


@pytest.mark.parametrize("scale", SCALES)
def test_the_nine_share_their_runs(scale):
    """What one has run, another finds: by identity, which the folder's name holds."""
    runs = {name: find_recipe(name, RECIPES).at_scale(scale).expand() for name in BUNDLED}
    ids = {name: {c.identity() for c in configs} for name, configs in runs.items()}
    assert len(ids) == 9
    assert ids["ood"] == ids["acc"]
    assert ids["bwt"] < ids["acc"]
    assert ids["balance"] == ids["stages"] < ids["acc"]
    assert ids["time"] == ids["resources"]
    assert {c.identity() for c in runs["policies"] if c.options.policy == "challenging"} < ids["acc"]
    five = [c for c in runs["sensitivity"] if c.options.policy == "challenging" and c.options.confidence_epochs == 5]
    assert {c.identity() for c in five} < ids["acc"]
    assert {c.identity() for c in runs["policies"] if c.options.policy == "reservoir"} < ids["sensitivity"]


def test_numbers_of_runs_are_those_the_headers_tell():
    counts = {
        "acc": (54, 162, 405), "bwt": (48, 144, 360), "ood": (54, 162, 405), "balance": (18, 27, 45),
        "stages": (18, 27, 45), "policies": (8, 12, 20), "sensitivity": (22, 99, 165), "time": (16, 8, 8),
        "resources": (16, 8, 8),
    }  # fmt: skip
    for name, expected in counts.items():
        found = tuple(len(find_recipe(name, RECIPES).at_scale(scale).expand()) for scale in SCALES)
        assert found == expected, name
        header = (RECIPES / f"{name}.yaml").read_text().split("title:")[0]
        for scale, count in zip(SCALES, expected, strict=True):
            assert f"acr reproduce {name} --scale {scale}" in header
            assert f" {count} runs" in header
        assert "The paper printed" in header


def test_the_reduced_scale_is_what_it_says():
    for config in find_recipe("acc", RECIPES).at_scale("reduced").expand():
        assert config.class_order == tuple(range(50))
        assert (config.tasks, config.samples_per_class, config.test_samples_per_class) == (5, 100, 50)
        assert (config.width, config.epochs) == (16, 10)
        assert config.buffer_size in (200, 500)
