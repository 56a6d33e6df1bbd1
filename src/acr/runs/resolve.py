"""From the values that a user gives to a complete config: defaults of the data set and of the method fill the rest.

Values that are not given come, in this order, from the method's settings for the data set (the paper's), from the data
set's own defaults, and from :class:`acr.config.RunConfig`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from acr.config import RunConfig, validated
from acr.data.catalog import find
from acr.errors import InputError, unknown
from acr.methods.method import method_class, method_names
from acr.runs.schema import SCHEMA

REMOVED = {
    "ood_baseline": "The mean corruption error is now computed from finished runs: acr report RUNS --baseline RUN.",
}
"""Fields of earlier versions, and what to do instead. Files that hold them can still be read."""


def make_config(values: Mapping[str, Any], *, file: Mapping[str, Any] | None = None) -> RunConfig:
    """A complete config from flat ``values``; what they lack comes from those of a ``file``, then from the defaults.

    Each unknown name or wrong value is reported in one sentence of an :class:`InputError`.
    """
    given = {**(file or {}), **values}
    method = method_class(str(given.get("method", "acr")))
    spec, _ = find(str(given.get("dataset", "split-digits")))
    option_names = set(method.Options.model_fields)
    for name in given:
        if (name not in RunConfig.model_fields and name not in option_names) or name == "options":
            raise _unknown_field(name, method.name, option_names)

    # Later layers override earlier ones: data set, method on this data set, what the user gave.
    layered = spec.run_defaults()
    buffer_size = _int_or(given.get("buffer_size"), layered["buffer_size"])
    layered |= method.settings_for(spec.name, buffer_size)
    if given.get("classes_per_task") is not None and given.get("tasks") is None:
        layered["tasks"] = None  # the sizes given decide how many tasks there are
    layered |= given
    if not method.uses_memory:
        layered["buffer_size"] = 0  # so that one run serves every buffer size of a comparison
    options = validated(method.Options, {n: v for n, v in layered.items() if n in option_names})
    fields = {n: v for n, v in layered.items() if n in RunConfig.model_fields}
    return method.complete_config(validated(RunConfig, {**fields, "options": options}))


def _int_or(value: Any, default: int) -> int:
    """The value as an integer, or the default if it is not one; validation reports wrong values later."""
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()) else default


def _unknown_field(name: str, method: str, options: Iterable[str]) -> InputError:
    if name in REMOVED:
        return InputError(f"{name!r} is no longer a config field. {REMOVED[name]}")
    owners = [m for m in method_names() if m != method and name in method_class(m).Options.model_fields]
    if owners:
        return InputError(f"{name!r} is an option of {', '.join(owners)}, not of {method}.")
    return unknown("config field", name, [*(n for n in RunConfig.model_fields if n != "options"), *options])


def read_config_file(path: Path, *, of_a_run: bool = False) -> dict[str, Any]:
    """The flat values of a YAML file; ``of_a_run``: the file must carry a ``schema`` that this version reads.

    Tags that would create Python objects are refused. Fields that earlier versions had are left out.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Cannot read the config file {path}: {error.strerror}.") from None
    except RecursionError:
        raise InputError(f"{path} is nested too deeply for a config file.") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        # PyYAML raises some of these itself, and lets others through from malformed dates and tags.
        raise InputError(f"{path} is not a YAML file: {' '.join(str(error).split())}") from None
    content = {} if content is None and not of_a_run else content
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise InputError(f"{path} must hold lines of the form 'field: value'.")
    schema = content.pop("schema", None if of_a_run else SCHEMA)
    if type(schema) is not int or schema != SCHEMA:
        found = "no schema" if schema is None else f"schema {str(schema)[:20]}"
        raise InputError(f"{path} has {found}; this version reads schema {SCHEMA}.")
    for name, value in content.items():
        if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, (list, dict)) for v in value)):
            raise InputError(f"{path}: {name[:80]!r} must be one value or a flat list.")
    values = {name.replace("-", "_"): value for name, value in content.items()}
    return {name: value for name, value in values.items() if name not in REMOVED}
