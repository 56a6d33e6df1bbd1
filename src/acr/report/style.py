"""How a method looks: the same name, colour, marker and dash wherever it is shown or drawn.

Nothing here lists methods. A method's label comes from its class, its colour and its rank from its place in the
registry, so a new method is in every table and figure once it is registered. The palette starts with the colours of
Okabe and Ito and continues with others of like lightness, chosen so that readers with any common kind of colour vision
can tell them apart on white and on near-black; markers and dashes distinguish them a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from acr.methods.method import Method, method_class, method_names

PALETTE = (
    "#D55E00", "#0072B2", "#009E73", "#56B4E9", "#CC79A7", "#A08020", "#E69F00", "#8A63C6", "#1B9EA8", "#B03A5B",
    "#6B8E23", "#4E79A7", "#C0623B", "#59A14F", "#9C6B9E", "#B6992D", "#5F9EA0",
)  # fmt: skip
"""One colour per method, in the order of the registry; after the last one it starts over."""
REFERENCE_GREYS = ("#8C8C8C", "#6C7A96")
"""Colours of what methods are compared with: fine-tuning and joint training."""
SYMBOLS = (
    ("circle", "o"), ("square", "s"), ("diamond", "D"), ("triangle-up", "^"), ("cross", "P"), ("x", "X"),
    ("triangle-down", "v"), ("star", "*"), ("hexagon", "h"), ("pentagon", "p"), ("triangle-left", "<"),
    ("triangle-right", ">"), ("bowtie", "d"),
)  # fmt: skip
"""Markers, by plotly's name and by matplotlib's."""
DASHES = (("solid", "-"), ("dash", "--"), ("dot", ":"), ("dashdot", "-."))
"""Dashes, by plotly's name and by matplotlib's."""


@dataclass(frozen=True)
class Look:
    """Colour, and marker and dash by the names of plotly and of matplotlib."""

    color: str
    symbol: str
    marker: str
    dash: str
    line: str


def installed(method: str) -> type[Method] | None:
    """The class of a method; None if it is not known here."""
    try:
        return method_class(method)
    except ValueError:
        return None


def method_label(method: str) -> str:
    """What tables and pages call a method; its plain name if it is not installed here.

    >>> method_label("derpp"), method_label("somebody-elses")
    ('DER++', 'somebody-elses')
    """
    cls = installed(method)
    return cls.label or cls.name if cls is not None else method


def method_caveat(method: str, values: Mapping[str, Any]) -> str:
    """What must be said beside a method's name for runs with these config values; often nothing.

    >>> method_caveat("gdumb", {"fit_epochs": 20}), method_caveat("gdumb", {"fit_epochs": 250})
    ('fit epochs 20', '')
    """
    cls = installed(method)
    return cls.caveat(values) if cls is not None else ""


def method_rank(method: str) -> tuple[bool, int, str]:
    """Where a method is placed in tables: the order of the registry, references last, unknown methods after them."""
    names = method_names()
    cls = installed(method)
    place = names.index(method) if method in names else len(names)
    return cls is None or cls.reference, place, method


def method_look(method: str, variant: int = 0) -> Look:
    """The look of a method. Its variants share the colour and differ in marker and dash.

    >>> method_look("er").color, method_look("er", 1).color, method_look("er", 1).dash
    ('#0072B2', '#0072B2', 'dash')
    """
    cls = installed(method)
    reference = cls is not None and cls.reference
    names = [name for name in method_names() if (other := installed(name)) and other.reference == reference]
    slot = names.index(method) if method in names else len(names) + sum(map(ord, method))
    colors = REFERENCE_GREYS if reference else PALETTE
    symbol, marker = SYMBOLS[(slot + variant) % len(SYMBOLS)]
    dash, line = DASHES[variant % len(DASHES)]
    return Look(colors[slot % len(colors)], symbol, marker, dash, line)


def looks(labels: Mapping[str, str] | Iterable[tuple[str, str]]) -> dict[str, Look]:
    """One look per label. ``labels`` maps each label to its method; the second label of a method is its first variant.

    >>> two = looks({"ACR, policy hard": "acr", "ACR, policy easy": "acr"})
    >>> [look.color for look in two.values()], [look.dash for look in two.values()]
    (['#D55E00', '#D55E00'], ['solid', 'dash'])
    """
    found: dict[str, Look] = {}
    seen: dict[str, int] = {}
    for label, method in dict(labels).items():
        found[label] = method_look(method, seen.get(method, 0))
        seen[method] = seen.get(method, 0) + 1
    return found
