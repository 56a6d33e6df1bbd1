"""Recipes: YAML files that describe many runs.

    title: Two methods, three memories
    fixed:                      # the same for all runs; any field of a run's config, any option of a method
      dataset: split-digits
    grid:                       # every combination of these
      method: [er, acr]
      buffer_size: [20, 50, 100]
      seed: 0-4
    exclude:                    # combinations to leave out; a list means any of its values
      - {method: er, buffer_size: [50, 100]}
    override:                   # what is different in some cases
      - when: {method: acr}
        set: {learning_rate: 0.05}
    scales:                     # named variants; their keys override those above
      quick: {fixed: {epochs: 2}, grid: {seed: [0]}}
    jobs: 1                     # at most this many runs at a time (for measuring time)
    extends: other.yaml         # start from another recipe; the keys of this one override its keys

Combinations that amount to the same run (such as fine-tuning with two buffer sizes) are one run.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from acr.config import RunConfig
from acr.errors import InputError, shown, unknown
from acr.methods.method import method_classes
from acr.runs import limits
from acr.runs.reading import read_yaml
from acr.runs.resolve import make_config

KEYS = ("title", "fixed", "grid", "exclude", "override", "scales", "jobs", "extends")
FULL = "full"
"""The scale that is the recipe itself, without any of its variants."""

Values = dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """A grid of runs, read and checked, not expanded yet."""

    name: str
    title: str = ""
    fixed: Values = field(default_factory=dict)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    exclude: list[Values] = field(default_factory=list)
    override: list[tuple[Values, Values]] = field(default_factory=list)
    scales: dict[str, Values] = field(default_factory=dict)
    jobs: int | None = None

    def at_scale(self, scale: str) -> Recipe:
        """The variant of this name; ``full`` is the recipe itself."""
        if scale == FULL:
            return self
        if scale not in self.scales:
            raise unknown(f"scale in the recipe {self.name}", scale, [FULL, *self.scales])
        return _checked(self.name, merged(_content(self), self.scales[scale]))

    def with_fixed(self, **values: Any) -> Recipe:
        """The recipe with other fixed values; None leaves a field as it is, and a list makes it part of the grid."""
        given = {name: value for name, value in values.items() if value is not None}
        grid = {name: axis for name, axis in self.grid.items() if name not in given}
        grid |= {name: value for name, value in given.items() if isinstance(value, list)}
        fixed = {name: value for name, value in self.fixed.items() if name not in grid}
        return replace(self, grid=grid, fixed={**fixed, **{n: v for n, v in given.items() if not isinstance(v, list)}})

    def combinations(self) -> list[Values]:
        """The values of every run: the combinations of the grid without the excluded ones, with overrides applied."""
        count = math.prod(map(len, self.grid.values()))
        if count > limits.RECIPE_RUNS:
            raise InputError(f"Recipe {self.name} has {_in_words(count)} combinations; a recipe may have up to "
                             f"{limits.RECIPE_RUNS:,}. Divide it into several.")  # fmt: skip
        chosen = []
        for combination in itertools.product(*self.grid.values()):
            values = {**self.fixed, **dict(zip(self.grid, combination, strict=True))}
            if any(matches(pattern, values) for pattern in self.exclude):
                continue
            for when, change in self.override:
                if matches(when, values):
                    values |= change
            chosen.append(values)
        return chosen

    def expand(self, **common: Any) -> list[RunConfig]:
        """The configs of all runs, each once. ``common`` values (folders, device) override the recipe, unless None."""
        given = {name: value for name, value in common.items() if value is not None}
        configs: dict[str, RunConfig] = {}
        for values in self.combinations():
            try:
                config = make_config({**values, **given})
            except InputError as error:
                case = ", ".join(f"{name}: {_shown(values[name])}" for name in self.grid if name in values)
                raise InputError(f"Recipe {self.name}, the run with {case or 'its fixed values'}: {error}") from None
            configs.setdefault(config.identity(), config)
        if not configs:
            raise InputError(f"Recipe {self.name} has no runs: its exclusions leave nothing.")
        return list(configs.values())


def matches(pattern: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether the values match a pattern in all its fields; a list in the pattern matches any of its items.

    >>> matches({"method": ["er", "acr"]}, {"method": "er", "seed": 1}), matches({"seed": 2}, {"seed": 1})
    (True, False)
    """
    return all(
        name in values and (values[name] == wanted or (isinstance(wanted, list) and values[name] in wanted))
        for name, wanted in pattern.items()
    )


def find_recipe(name: str | Path, bundled: Path | None = None) -> Recipe:
    """Read a recipe, given the path of its file or the name of a recipe in the folder ``bundled``."""
    path = Path(name)
    if bundled is not None and not path.exists() and path.suffix == "":
        names = sorted(found.stem for found in bundled.glob("*.yaml"))
        if str(name) not in names:
            raise unknown("recipe file or bundled recipe", str(name), names)
        path = bundled / f"{name}.yaml"
    return _checked(path.stem, _read(path, ()))


def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> Values:
    """Mappings merged key by key, at every depth; anything else is replaced."""
    result = dict(base)
    for key, value in change.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    # A field is either in the grid or fixed: the later definition counts.
    for mine, other in (("fixed", "grid"), ("grid", "fixed")):
        given = change.get(mine)
        if isinstance(given, Mapping) and isinstance(result.get(other), Mapping):
            result[other] = {k: v for k, v in result[other].items() if k not in given or k in change.get(other, {})}
    return result


def _read(path: Path, seen: tuple[Path, ...]) -> Values:
    """The content of a recipe file, merged with that of the recipe it extends; ``seen``: the files that extend it."""
    if path.resolve() in seen:
        raise InputError(f"Recipe {path} extends itself, by way of {' → '.join(p.name for p in seen)}.")
    if len(seen) > limits.RECIPE_PARENTS:
        raise InputError(f"Recipe {path}: more than {limits.RECIPE_PARENTS} recipes extend one another in a row.")
    content = read_yaml(path, "recipe")
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold the keys of a recipe: {', '.join(KEYS)}.")
    content = {str(key): value for key, value in content.items()}
    for key in content:
        if key not in KEYS:
            raise unknown(f"key in the recipe {path.name}", key, KEYS)
    content = _with_field_names(content, path.name)
    parent = content.pop("extends", None)
    if parent is None:
        return content
    if not isinstance(parent, str) or "\0" in parent:
        raise InputError(f"Recipe {path}: extends is {shown(parent)}; expected the name of a recipe file.")
    return merged(_read(path.parent / str(parent), (*seen, path.resolve())), content)


def _with_field_names(content: Values, where: str) -> Values:
    """``buffer-size`` and ``buffer_size`` are the same field."""
    result = dict(content)
    for key in ("fixed", "grid"):
        if content.get(key) is not None:
            result[key] = _fields(content[key], f"{key} in the recipe {where}")
    for key in ("exclude", "override"):
        if content.get(key) is not None and not isinstance(content[key], list):
            raise InputError(f"{key} in the recipe {where} is a list of cases, each on a line that begins with '- '.")
    if content.get("exclude"):
        result["exclude"] = [_fields(case, f"exclude in the recipe {where}") for case in content["exclude"]]
    if content.get("override"):
        result["override"] = [_case(case, where) for case in content["override"]]
    scales = content.get("scales")
    if scales is not None:
        if not isinstance(scales, dict):
            raise InputError(f"scales in the recipe {where} holds one block per scale.")
        result["scales"] = {str(name): _scale(block, str(name), where) for name, block in scales.items()}
    return result


def _fields(block: Any, what: str) -> Values:
    if not isinstance(block, dict) or not all(isinstance(name, str) for name in block):
        raise InputError(f"{what} must hold lines of the form 'field: value'.")
    return {name.replace("-", "_"): value for name, value in block.items()}


def _case(case: Any, where: str) -> Values:
    if not isinstance(case, dict) or set(case) != {"when", "set"}:
        raise InputError(f"override in the recipe {where}: every case has a 'when' and a 'set', each 'field: value'.")
    return {part: _fields(case[part], f"override in the recipe {where}, {part}") for part in ("when", "set")}


def _scale(block: Any, name: str, where: str) -> Values:
    allowed = [key for key in KEYS if key not in ("scales", "extends")]
    content = _fields(block, f"scale {name} in the recipe {where}")
    for key in content:
        if key not in allowed:
            raise unknown(f"key in the scale {name} of the recipe {where}", key, allowed)
    return _with_field_names(content, where)


def _checked(name: str, content: Mapping[str, Any]) -> Recipe:
    """The recipe of this content; every field that it names must exist."""
    fixed, grid = content.get("fixed") or {}, content.get("grid") or {}
    axes = {axis: _axis(axis, values, name) for axis, values in grid.items()}
    both = sorted(set(fixed) & set(axes))
    if both:
        raise InputError(f"Recipe {name}: {', '.join(both)} is under both fixed and grid.")
    exclude = content.get("exclude") or []
    cases = [*exclude, *(case[part] for case in content.get("override") or [] for part in ("when", "set"))]
    if sum(_values_in(value) for case in cases for value in case.values()) > limits.RECIPE_CASES:
        raise InputError(f"Recipe {name}: the cases under exclude and override name more than {limits.RECIPE_CASES:,} "
                         "values.")  # fmt: skip
    override = [(case["when"], case["set"]) for case in content.get("override") or []]
    named = {**fixed, **axes}
    known = known_fields()
    for what, fields in (("fixed", fixed), ("grid", axes), *(("override", change) for _, change in override)):
        for one in fields:
            if one not in known:
                raise unknown(f"config field (under {what} in the recipe {name})", one, known)
    for what, patterns in (("exclude", exclude), ("override", [when for when, _ in override])):
        for one in itertools.chain(*patterns):
            if one not in named:
                raise unknown(f"field under fixed or grid ({what} in the recipe {name} names it)", one, named)
    jobs = content.get("jobs")
    if jobs is not None and (not isinstance(jobs, int) or isinstance(jobs, bool) or jobs < 1):
        raise InputError(f"Recipe {name}: jobs is {shown(jobs)}; expected a whole number of at least 1.")
    title = str(content.get("title") or name)
    return Recipe(name, title, dict(fixed), axes, exclude, override, dict(content.get("scales") or {}), jobs)


def known_fields() -> list[str]:
    """Every field of a config and every option of every method."""
    options = {option for method in method_classes() for option in method.Options.model_fields}
    return sorted({*(name for name in RunConfig.model_fields if name != "options"), *options})


def _axis(name: str, values: Any, recipe: str) -> list[Any]:
    """The values of one field of the grid as a list; ``0-4`` becomes 0, 1, 2, 3, 4."""
    if isinstance(values, str) and (span := SPAN.fullmatch(values)):
        first, last = int(span[1]), int(span[2])
        if last - first >= limits.RECIPE_RUNS:
            many = _in_words(last - first + 1)
            raise InputError(f"Recipe {recipe}: {name} {shown(values)} has {many} values; a recipe may have up to "
                             f"{limits.RECIPE_RUNS:,} runs.")  # fmt: skip
        values = list(range(first, last + 1))
    if not isinstance(values, list):
        values = [values]
    if not values:
        raise InputError(f"Recipe {recipe}: the list of {name} is empty, so there is nothing to run.")
    return _unique(values)


SPAN = re.compile(r"([0-9]{1,18})-([0-9]{1,18})", re.ASCII)


def _unique(values: Iterable[Any]) -> list[Any]:
    """Each value once. Lists and mappings, which cannot be keys, are told apart by how they are written.

    >>> _unique([1, 2, 1, [1], [1], "1"])
    [1, 2, [1], '1']
    """
    first: dict[Any, Any] = {}
    for value in values:
        first.setdefault(_key(value), value)
    return list(first.values())


def _key(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return ("written", repr(value))
    return value


def _values_in(value: Any) -> int:
    return len(value) if isinstance(value, list) else 1


def _in_words(number: int) -> str:
    """A number of runs: in digits, or roughly where there are too many of these.

    >>> _in_words(12345), _in_words(10**12)
    ('12,345', 'about 1e+12')
    """
    return f"{number:,}" if number < 10**9 else f"about {number:.0e}" if number < 10**300 else "far too many"


def _shown(value: Any) -> str:
    """A value of a recipe in a message, without quotes around text."""
    return shown(value).strip("'")


def _content(recipe: Recipe) -> Values:
    cases: Sequence[Values] = [{"when": when, "set": change} for when, change in recipe.override]
    return {"title": recipe.title, "fixed": recipe.fixed, "grid": recipe.grid, "exclude": recipe.exclude,
            "override": cases, "jobs": recipe.jobs}  # fmt: skip
