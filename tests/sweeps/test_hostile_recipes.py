"""Recipes and config files from anywhere: read, or refused with a sentence, in little time and memory."""

import random
import tracemalloc

import pytest
import yaml
from hostile_folders import ODD, bytes_spoiled, dump_yaml, spoil

from acr.errors import AcrError, InputError
from acr.runs import limits
from acr.runs.resolve import make_config, read_config_file
from acr.sweeps.recipe import find_recipe

RECIPE = {
    "title": "Two methods",
    "fixed": {"dataset": "split-digits", "epochs": 2},
    "grid": {"method": ["er", "acr"], "buffer_size": [20, 50], "seed": "0-2"},
    "exclude": [{"method": "er", "buffer_size": [50]}],
    "override": [{"when": {"method": "acr"}, "set": {"learning_rate": 0.05}}],
    "scales": {"quick": {"fixed": {"epochs": 1}, "grid": {"seed": [0]}}},
    "jobs": 2,
}
MEMORY = 64 << 20
"""Bytes that reading a recipe may take, at most."""


def read(path):
    """Everything that is done with a recipe before a run starts; returns what was said about it."""
    said = []
    for scale in ("full", "quick"):
        try:
            find_recipe(path).at_scale(scale).expand()
        except AcrError as error:
            said.append(str(error))
    try:
        make_config({}, file=read_config_file(path))
    except AcrError as error:
        said.append(str(error))
    assert all(len(sentence) < 3000 for sentence in said)
    return said


def try_number(number, path):
    rng = random.Random(number)
    if rng.random() < 0.7:
        path.write_bytes(dump_yaml(spoil(rng, RECIPE)))
    elif rng.random() < 0.5:
        config = make_config({}).flat()
        path.write_bytes(dump_yaml({name: rng.choice(ODD) for name in rng.sample(sorted(config), 3)}))
    else:
        path.write_bytes(bytes_spoiled(rng, yaml.safe_dump(RECIPE).encode()))
    try:
        read(path)
    except Exception as error:
        raise AssertionError(f"number {number} was not withstood") from error


def test_spoiled_recipes_are_read_or_refused(tmp_path):
    for number in range(60):
        try_number(number, tmp_path / "recipe.yaml")


@pytest.mark.slow
@pytest.mark.parametrize("thousand", range(1, 4))
def test_three_thousand_spoiled_recipes(tmp_path, thousand):
    for number in range(1000 * thousand, 1000 * thousand + 1000):
        try_number(number, tmp_path / "recipe.yaml")


def alias_bomb(levels=30, width=10):
    """A list of lists of lists ..., each the one before ten times: ten to the thirtieth values in a kilobyte."""
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines)


def merge_bomb(levels=12, width=10):
    """The same with merged mappings, which PyYAML writes out while it reads."""
    lines = ["a0: &a0 {k: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * width)}]}}" for n in range(1, levels)]
    return "\n".join(lines)


def chain(levels=500):
    """Each alias inside the next one: flat to look at, and hundreds of levels deep."""
    return "\n".join(["a0: &a0 {k: 1}", *(f"a{n}: &a{n} {{k: *a{n - 1}}}" for n in range(1, levels))])


BOMBS = {
    "aliases of aliases": (alias_bomb(), "more than 50,000 values"),
    "merged aliases": (merge_bomb(), "more than 50,000 values"),
    "a chain of aliases": (chain(), "levels deep"),
    "an alias of itself": ("grid: &a {method: [*a]}", "inside what it repeats"),
    "brackets": ("grid: " + "[" * 50_000, "levels deep"),
    "a billion combinations": (
        "grid: {" + ", ".join(f"{n}: 0-999" for n in ("seed", "buffer_size", "data_seed")) + "}", "combinations"
    ),
    "a billion seeds": ("grid: {seed: 0-999999999}", "values; a recipe may have up to 10,000 runs"),
    "odd digits": ("grid: {seed: ²-³}", "whole number"),
    "a number of 5000 digits": ("grid: {seed: [" + "9" * 5000 + "]}", "digits"),
    "a number of 5000 digits in hexadecimal": ("grid: {seed: [0x" + "f" * 5000 + "]}", "digits"),
    "many cases": (
        "grid: {seed: 0-9}\nexclude:\n- {seed: [" + ", ".join(map(str, range(10_001))) + "]}", "10,000 values"
    ),
    "too large a file": ("# " + "x" * (300 << 10), "larger than 256 KiB"),
    "an object": ("grid: !!python/object/apply:os.getcwd []", "not a YAML file"),
    "a title that gives orders": ("title: \"\\e[2J\"\ngrid: {seed: []}", "is empty"),
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_refused_in_little_memory(tmp_path, bomb):
    text, says = BOMBS[bomb]
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    if "cases" not in bomb:  # what is measured takes ten times as long
        tracemalloc.start()
    try:
        with pytest.raises(InputError) as refused:
            find_recipe(path).expand()
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    assert says in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_equal_values_of_an_axis_are_found_without_comparing_all_with_all(tmp_path):
    """Ten thousand values took a hundred million comparisons."""

    class Counted(int):
        compared = 0

        def __eq__(self, other):
            Counted.compared += 1
            return int(self) == int(other)

        __hash__ = int.__hash__

    from acr.sweeps.recipe import _unique

    assert len(_unique([*map(Counted, range(5000)), *map(Counted, range(5000))])) == 5000
    assert Counted.compared < 50_000


def test_recipes_that_extend_each_other_without_end_are_refused(tmp_path):
    for number in range(limits.RECIPE_PARENTS + 5):
        (tmp_path / f"{number}.yaml").write_text(f"extends: {number + 1}.yaml\n")
    with pytest.raises(InputError, match="extend one another"):
        find_recipe(tmp_path / "0.yaml")


def test_links_to_recipes_and_configs_are_followed_and_pipes_are_not_waited_for(tmp_path):
    import os

    (tmp_path / "real.yaml").write_text("grid: {seed: 0-1}\n")
    (tmp_path / "linked.yaml").symlink_to("real.yaml")
    assert len(find_recipe(tmp_path / "linked.yaml").expand()) == 2
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.yaml")
        with pytest.raises(InputError, match="it is a pipe"):
            find_recipe(tmp_path / "pipe.yaml")
        with pytest.raises(InputError, match="it is a pipe"):
            read_config_file(tmp_path / "pipe.yaml")
