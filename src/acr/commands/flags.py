"""Flags made from the config: every field of RunConfig and every option of every method, with its docstring as help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from cyclopts import Group, Parameter
from pydantic import BaseModel

from acr.commands.shared import whole
from acr.config import RunConfig
from acr.data.catalog import CATALOG
from acr.methods.method import Method, method_classes

GROUPS: dict[str, tuple[str, ...]] = {
    "What to run": ("method", "dataset", "seed", "buffer_size", "protocol", "quirk", "no_quirk"),
    "Training": ("epochs", "batch_size", "replay_size", "learning_rate", "momentum", "weight_decay", "lr_milestones",
                 "lr_decay", "network", "width", "stem", "weights", "weights_digest"),
    "Data and tasks": ("tasks", "classes_per_task", "class_order", "samples_per_class", "test_samples_per_class",
                       "validation_fraction", "data_seed", "image_size", "skip_broken", "data_root", "data_cache"),
    "Evaluation under shift": ("ood_every", "ood_corruptions", "ood_severities", "ood_constants"),
}  # fmt: skip
OTHER = "How to run it"
OPTIONS = "Method options"
BRIEF = frozenset({
    "method", "dataset", "seed", "buffer_size", "protocol", "epochs", "learning_rate", "width", "tasks",
    "samples_per_class", "data_root", "ood_every", "ood_corruptions", "ood_severities", "out", "device", "quiet",
})  # fmt: skip
"""What most runs are made with: the flags of ``--help``; ``--help-all`` lists the others as well."""
EXAMPLE = "split-digits"
"""The data set whose defaults are shown where they differ between data sets."""


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


def config_flags(everything: bool) -> list[inspect.Parameter]:
    """One keyword parameter per config field and method option, None by default, for a command that takes a config.

    The help shows those in :data:`BRIEF`, or ``everything``.
    """
    group_of = {field: title for title, fields in GROUPS.items() for field in fields}
    groups = {title: Group(title, sort_key=place) for place, title in enumerate([*GROUPS, OTHER, OPTIONS])}
    flags = []
    for name, field in RunConfig.model_fields.items():
        if name != "options":
            several = name in ("quirk", "no_quirk")
            kind = list[str] if several else flag_type(_declared(RunConfig, name))
            text = with_default(field.description or "", field_default(name))
            group = groups[group_of.get(name, OTHER)]
            flags.append(_flag(name, kind, text, group, everything or name in BRIEF, several))

    owners: dict[str, list[type[Method]]] = {}
    for method in method_classes():
        for name in method.Options.model_fields:
            owners.setdefault(name, []).append(method)
    # Methods may share an option: it becomes one flag, whose help names all of them.
    for name, methods in owners.items():
        kinds = {str(kind): kind for kind in (flag_type(_declared(m.Options, name)) for m in methods)}
        kind = next(iter(kinds.values())) if len(kinds) == 1 else str
        text = f"{methods[0].Options.model_fields[name].description} ({', '.join(m.name for m in methods)})"
        flags.append(_flag(name, kind, with_default(text, option_default(name, methods)), groups[OPTIONS], everything))
    return flags


def with_default(text: str, default: str) -> str:
    """A help text with its default, unless the text says what holds by default."""
    return text if "by default" in text or not default else f"{text} [default: {default}]"


def field_default(name: str) -> str:
    """Where the value of a config field comes from if it is not given."""
    spec = CATALOG[EXAMPLE]
    by_method = f", or the method's on it ({', '.join(who)})" if (who := methods_that_set(name)) else ""
    if name in spec.run_defaults():
        return f"the data set's{by_method}; {EXAMPLE}: {in_words(spec.run_defaults()[name])}"
    default = in_words(RunConfig.model_fields[name].default)
    return f"{default}, or the method's on the data set ({', '.join(who)})" if who else default


def option_default(name: str, methods: list[type[Method]]) -> str:
    """The default of an option, which methods may not share."""
    each = {method.name: in_words(method.Options.model_fields[name].default) for method in methods}
    if len(set(each.values())) > 1:
        default = ", ".join(f"{value} ({method})" for method, value in each.items())
    else:
        default = next(iter(each.values()))
    return f"{default}; other values on some data sets" if methods_that_set(name) else default


def methods_that_set(name: str) -> list[str]:
    """The methods that have a value of their own for a field or option on some data set."""
    sizes = (100, 10_000)  # settings may depend on the buffer size; these are below and above every limit
    return [
        method.name
        for method in method_classes()
        if any(name in method.settings_for(data, size) for data in CATALOG for size in sizes)
    ]


def in_words(value: Any) -> str:
    """A default as one would type it.

    >>> in_words((1, 3)), in_words(()), in_words(None), in_words(0.1), in_words(False), in_words(300.0)
    ('1,3', 'none', 'none', '0.1', 'no', '300')
    """
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(map(in_words, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _flag(
    name: str, kind: Any, text: str, group: Group, shown: bool = True, several: bool = False
) -> inspect.Parameter:
    convert = whole if kind is int else None
    parameter = Parameter(help=text, group=group, negative=(), show=shown, consume_multiple=several, converter=convert)
    annotation = Annotated[kind | None, parameter]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _declared(model: type[BaseModel], name: str) -> Any:
    """The annotation of a field; a field with a validator of its own gets one that is parsed as text."""
    field = model.model_fields[name]
    if field.metadata and any("Validator" in type(part).__name__ for part in field.metadata):
        return Annotated[Any, "read by the config"]
    return field.annotation


def with_config_flags(command: Callable[..., None], everything: bool = False) -> Callable[..., None]:
    """Give a command ``(own parameters, **values)`` all flags of a config; those not given are not passed on.

    Its help shows the usual ones, or ``everything``.
    """
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.kind is not p.VAR_KEYWORD]
    own_names = {p.name for p in own}

    def wrapped(*positional: Any, **given: Any) -> None:
        values = {name: value for name, value in given.items() if value is not None and name not in own_names}
        return command(*positional, **{n: v for n, v in given.items() if n in own_names}, **values)

    flags = [p for p in config_flags(everything) if p.name not in own_names]
    signature = inspect.Signature([*own, *flags])
    wrapped.__signature__ = signature  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    return wrapped
