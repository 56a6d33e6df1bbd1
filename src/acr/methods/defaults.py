"""The paper's settings: what each method was run with on each data set, where it differs from the data set's default.

All of them with batches of 32 and 50 epochs. A value the user gives goes before these, and every run records what was
in force.
"""

from __future__ import annotations

from typing import Any

LARGE = ("split-mini-imagenet", "split-tiny-imagenet")

PAPER_SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "gem": {"split-cifar100": {"learning_rate": 0.03}, **{name: {"learning_rate": 0.01} for name in LARGE}},
    "agem": {"split-cifar100": {"learning_rate": 0.03}, **{name: {"learning_rate": 0.01} for name in LARGE}},
    "gss": {"split-cifar100": {"learning_rate": 0.03}},
}


def method_defaults(method: str, dataset: str, buffer_size: int) -> dict[str, Any]:
    """Field values for a method on a data set, empty where the data set's own hold.

    >>> method_defaults("gem", "split-cifar100", 500)
    {'learning_rate': 0.03}
    """
    settings = dict(PAPER_SETTINGS.get(method, {}).get(dataset, {}))
    if method == "er" and dataset == "split-tiny-imagenet" and buffer_size >= 1000:
        settings["learning_rate"] = 0.1
    return settings
