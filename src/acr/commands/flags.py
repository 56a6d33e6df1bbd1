"""Flags made from the config: every field of RunConfig and every option of every method, with its docstring as help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from cyclopts import Group, Parameter
from pydantic import BaseModel

from acr.config import RunConfig
from acr.methods.method import Method, method_class, method_names

GROUPS: dict[str, tuple[str, ...]] = {
    "What to run": ("method", "dataset", "seed", "buffer_size", "protocol", "quirk", "no_quirk"),
    "Training": ("epochs", "batch_size", "replay_size", "learning_rate", "momentum", "weight_decay", "lr_milestones",
                 "lr_decay", "network", "width"),
    "Data and tasks": ("tasks", "classes_per_task", "class_order", "samples_per_class", "test_samples_per_class",
                       "validation_fraction", "data_seed", "image_size", "skip_broken", "data_root", "data_cache"),
    "Evaluation under shift": ("ood_every", "ood_corruptions", "ood_severities", "ood_constants"),
}  # fmt: skip
OTHER = "How to run it"
OPTIONS = "Method options"


def flag_type(annotation: Any) -> Any:
    """The type as which a flag is parsed: simple types as they are, anything else as text that the config converts."""
    if get_origin(annotation) is Annotated:
        return str
    if get_origin(annotation) in (Union, type(int | None)):
        members = [member for member in get_args(annotation) if member is not type(None)]
        return flag_type(members[0]) if len(members) == 1 else str
    if get_origin(annotation) is Literal or annotation in (int, float, bool, str, Path):
        return annotation
    return str


def config_flags() -> list[inspect.Parameter]:
    """One keyword parameter per config field and method option, None by default, for a command that takes a config."""
    group_of = {field: title for title, fields in GROUPS.items() for field in fields}
    groups = {title: Group(title, sort_key=place) for place, title in enumerate([*GROUPS, OTHER, OPTIONS])}
    flags = []
    for name, field in RunConfig.model_fields.items():
        if name != "options":
            kind = list[str] if name in ("quirk", "no_quirk") else flag_type(_declared(RunConfig, name))
            flags.append(_flag(name, kind, field.description or "", groups[group_of.get(name, OTHER)]))

    owners: dict[str, list[type[Method]]] = {}
    for method in map(method_class, method_names()):
        for name in method.Options.model_fields:
            owners.setdefault(name, []).append(method)
    # Methods may share an option: it becomes one flag, whose help names all of them.
    for name, methods in owners.items():
        kinds = {str(kind): kind for kind in (flag_type(_declared(m.Options, name)) for m in methods)}
        kind = next(iter(kinds.values())) if len(kinds) == 1 else str
        text = f"{methods[0].Options.model_fields[name].description} ({', '.join(m.name for m in methods)})"
        flags.append(_flag(name, kind, text, groups[OPTIONS]))
    return flags


def _flag(name: str, kind: Any, text: str, group: Group) -> inspect.Parameter:
    annotation = Annotated[kind | None, Parameter(help=text, group=group, negative=())]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _declared(model: type[BaseModel], name: str) -> Any:
    """The annotation of a field; a field with a validator of its own gets one that is parsed as text."""
    field = model.model_fields[name]
    if field.metadata and any("Validator" in type(part).__name__ for part in field.metadata):
        return Annotated[Any, "read by the config"]
    return field.annotation


def with_config_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``(own parameters, **values)`` all flags of a config; those not given are not passed on."""
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.kind is not p.VAR_KEYWORD]
    own_names = {p.name for p in own}

    def wrapped(*positional: Any, **given: Any) -> None:
        values = {name: value for name, value in given.items() if value is not None and name not in own_names}
        return command(*positional, **{n: v for n, v in given.items() if n in own_names}, **values)

    flags = [p for p in config_flags() if p.name not in own_names]
    signature = inspect.Signature([*own, *flags])
    wrapped.__signature__ = signature  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    return wrapped
