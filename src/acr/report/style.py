"""How a method looks: the same colour, marker and dash wherever it is drawn.

The colours are those of Okabe and Ito with a few more of like lightness, chosen so that readers who see colours
differently can tell them apart on white and on near-black; markers and dashes say it a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

COLORS = {
    "acr": "#D55E00",
    "er": "#0072B2",
    "gem": "#009E73",
    "agem": "#56B4E9",
    "gss": "#CC79A7",
    "gdumb": "#A08020",
    "hal": "#E69F00",
    "metasp": "#8A63C6",
    "soif": "#1B9EA8",
    "derpp": "#B03A5B",
    "er-ace": "#6B8E23",
    "finetune": "#8C8C8C",
    "joint": "#6C7A96",
}
SPARE = ("#4E79A7", "#C0623B", "#59A14F", "#9C6B9E", "#B6992D", "#5F9EA0")
SYMBOLS = (
    ("circle", "o"),
    ("square", "s"),
    ("diamond", "D"),
    ("triangle-up", "^"),
    ("cross", "P"),
    ("x", "X"),
    ("triangle-down", "v"),
    ("star", "*"),
    ("hexagon", "h"),
    ("pentagon", "p"),
    ("triangle-left", "<"),
    ("triangle-right", ">"),
    ("bowtie", "d"),
)
DASHES = (("solid", "-"), ("dash", "--"), ("dot", ":"), ("dashdot", "-."))


@dataclass(frozen=True)
class Look:
    """Colour, and marker and dash in the words of plotly and of matplotlib."""

    color: str
    symbol: str
    marker: str
    dash: str
    line: str


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """A look for each label ("method" or "method, what differs"); variants of a method share its colour.

    >>> two = looks(["acr, policy hard", "acr, policy easy"])
    >>> [look.color for look in two.values()], [look.dash for look in two.values()]
    (['#D55E00', '#D55E00'], ['solid', 'dash'])
    """
    methods = list(dict.fromkeys(label.partition(",")[0] for label in labels))
    strangers = [method for method in methods if method not in COLORS]
    known = list(COLORS)
    seen: dict[str, int] = {}
    found = {}
    for label in labels:
        method = label.partition(",")[0]
        stranger = method in strangers
        color = SPARE[strangers.index(method) % len(SPARE)] if stranger else COLORS[method]
        place = len(known) + strangers.index(method) if stranger else known.index(method)
        variant = seen[method] = seen.get(method, -1) + 1
        symbol, marker = SYMBOLS[(place + variant) % len(SYMBOLS)]
        dash, line = DASHES[variant % len(DASHES)]
        found[label] = Look(color, symbol, marker, dash, line)
    return found


def nice(scenario: str) -> str:
    """A scenario in words.

    >>> nice("clean"), nice("ood"), nice("gaussian_noise/3")
    ('clean images', 'mean over all shifts', 'gaussian noise, severity 3')
    """
    if scenario == "clean":
        return "clean images"
    if scenario == "ood":
        return "mean over all shifts"
    corruption, _, severity = scenario.partition("/")
    return corruption.replace("_", " ") + (f", severity {severity}" if severity else "")
