"""From the values that a user gives to a complete config: defaults of the data set and of the method fill the rest.

Values that are not given come, in this order, from the method's settings for the data set (the paper's), from the data
set's own defaults, and from :class:`acr.config.RunConfig`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from acr.config import RunConfig, validated
from acr.data.catalog import find
from acr.errors import InputError, shown, unknown
from acr.methods.method import method_class, method_classes
from acr.networks.weights import digest_of
from acr.runs.former import REMOVED, in_todays_terms
from acr.runs.reading import read_yaml
from acr.runs.schema import SCHEMA
from acr.values import OFF


class StoredConfig(NamedTuple):
    """What a config file holds."""

    values: dict[str, Any]
    """Flat values, in today's terms."""
    revision: int | None
    """The revision of the method that made the file's run; None if the file does not belong to a run."""


def make_config(values: Mapping[str, Any], *, file: Mapping[str, Any] | None = None) -> RunConfig:
    """A complete config from flat ``values``; what they lack comes from those of a ``file``, then from the defaults.

    Each unknown name or wrong value is reported in one sentence of an :class:`InputError`.
    """
    given = {**(file or {}), **values}
    method = method_class(str(given.get("method", "acr")))
    spec, _ = find(str(given.get("dataset", "split-digits")))
    option_names = set(method.Options.model_fields)
    if file and (others := [name for name in foreign_options(file, method.name) if name not in values]):
        raise InputError(
            f"The config file has options that {method.name} does not have: {', '.join(others)}. "
            "Remove them from the file, or add --other-method to leave them out."
        )
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
        # So that one run serves every memory of a comparison.
        layered |= {"buffer_size": 0, "images_per_place": 1}
    options = validated(method.Options, {n: v for n, v in layered.items() if n in option_names})
    fields = {n: v for n, v in layered.items() if n in RunConfig.model_fields}
    config = validated(RunConfig, {**fields, "options": options})
    if config.average_weights != OFF and method.no_average:
        raise InputError(f"--average-weights does not apply to {method.name}: {method.no_average}.")
    if config.images_per_place != 1 and (reason := method.exemptions.get("dense-memory")):
        raise InputError(f"--images-per-place does not apply to {method.name}: {reason}.")
    if config.weights is not None and config.weights_digest is None:  # the run is tied to the content of this file
        config = config.model_copy(update={"weights_digest": digest_of(config.weights)})
    return method.complete_config(config)


@dataclass(frozen=True)
class Default:
    """The value that a field of the config, or an option of the method, has if it is not given."""

    name: str
    value: Any
    source: str
    """Where it comes from: a paper, a program, or a measurement."""
    is_option: bool


TRAINING_FIELDS = (
    *("tasks", "epochs", "width", "learning_rate", "buffer_size", "images_per_place"),
    *("batch_size", "replay_size", "momentum", "weight_decay", "lr_milestones", "average_weights"),
)
"""The fields whose defaults decide how well a method learns."""


def defaults_of(method: str, dataset: str, buffer_size: int | None = None) -> list[Default]:
    """What a method runs with on a data set if nothing else is given, and the source of every value.

    First the fields of the training, then the options of the method. ``buffer_size`` None: the data set's.
    """
    given = {} if buffer_size is None else {"buffer_size": buffer_size}
    config = make_config({"method": method, "dataset": dataset, **given})
    cls, (spec, _) = method_class(method), find(dataset)
    settings = cls.settings_for(spec.name, config.buffer_size)
    values, options = config.flat(), cls.Options.model_fields

    def source(name: str) -> str:
        if name in given:
            return "given"
        if name in settings:
            return cls.settings_source
        if name in spec.run_defaults():
            return spec.defaults_from
        return cls.Options.source_of(name) if name in options else "the paper"

    return [Default(name, values[name], source(name), name in options) for name in (*TRAINING_FIELDS, *options)]


def foreign_options(values: Mapping[str, Any], method: str) -> list[str]:
    """The names among the values that are options of other methods and not of this one."""
    own = method_class(method).Options.model_fields
    names = [name for name in values if name not in RunConfig.model_fields and name not in own]
    return [name for name in names if _owners(name)]


def _owners(name: str) -> list[str]:
    """The methods that have an option of this name."""
    return [method.name for method in method_classes() if name in method.Options.model_fields]


def placed(config: RunConfig) -> RunConfig:
    """The config with absolute paths to its data, which mean the same wherever the run is resumed."""
    places = {name: getattr(config, name) for name in ("data_root", "data_cache")}
    update: dict[str, Any] = {name: _absolute(path) for name, path in places.items() if path is not None}
    _, path = find(config.dataset)
    if path is not None:
        update["dataset"] = f"{config.dataset.partition(':')[0]}:{_absolute(path)}"
    return config.model_copy(update=update)


def _absolute(path: Path) -> Path:
    """An absolute path. Links in it are kept: they are names that people chose."""
    return Path(os.path.abspath(path.expanduser()))


def _int_or(value: Any, default: int) -> int:
    """The value as an integer, or the default if it is not one; validation reports wrong values later."""
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()) else default


def _unknown_field(name: str, method: str, options: Iterable[str]) -> InputError:
    if name in REMOVED:
        return InputError(f"{shown(name)} is no longer a config field. {REMOVED[name]}")
    if owners := _owners(name):
        return InputError(f"{name!r} is an option of {', '.join(owners)}, not of {method}.")
    return unknown("config field", name, [*(n for n in RunConfig.model_fields if n != "options"), *options])


def read_config_file(path: Path) -> dict[str, Any]:
    """The flat values of a YAML file, of a user or of a run. Fields of earlier versions are translated or left out."""
    return read_stored_config(path).values


def read_stored_config(path: Path, *, of_a_run: bool = False) -> StoredConfig:
    """The content of a YAML file; ``of_a_run``: the file must carry a ``schema`` that this version reads.

    Tags that would create Python objects are refused.
    """
    content = read_yaml(path, "config file", follow=not of_a_run)
    content = {} if content is None and not of_a_run else content
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise InputError(f"{path} must hold lines of the form 'field: value'.")
    of_a_run = of_a_run or "schema" in content
    schema = content.pop("schema", None if of_a_run else SCHEMA)
    if type(schema) is not int or schema != SCHEMA:
        found = "no schema" if schema is None else f"schema {shown(schema, 20)}"
        raise InputError(f"{path} has {found}; this version reads schema {SCHEMA}.")
    revision = content.pop("revision", 1) if of_a_run else None
    if of_a_run and (type(revision) is not int or revision < 1):
        raise InputError(f"{path}: revision {str(revision)[:20]!r} must be a whole number from 1 on.")
    for name, value in content.items():
        if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, (list, dict)) for v in value)):
            raise InputError(f"{path}: {shown(name)} must be one value or a flat list.")
    values = {name.replace("-", "_"): value for name, value in content.items()}
    return StoredConfig(in_todays_terms(values, revision), revision)
