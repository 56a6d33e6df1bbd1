"""How numbers, scenarios and config values are written for people, wherever they are shown."""

from __future__ import annotations

import math
from typing import Any

from acr.report.statistics import Estimate

UNKNOWN = "–"


def number(value: float | None, digits: int = 1) -> str:
    """A number with this many decimals, a true minus sign, and no minus before a zero.

    >>> number(-12.345), number(-0.01), number(None)
    ('−12.3', '0.0', '–')
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def with_interval(value: Estimate, scale: float = 1.0, digits: int = 1) -> str:
    """A mean with half its interval, or with the two values behind it, multiplied by ``scale`` (100 for percentages).

    >>> with_interval(Estimate(0.612, 0.0123, 5), 100), with_interval(Estimate(0.6, math.nan, 1), 100)
    ('61.2 ± 1.2', '60.0')
    >>> with_interval(Estimate(0.6, math.nan, 2, (0.5, 0.7)), 100)
    '60.0 (50.0, 70.0)'
    """
    if not value.known:
        return UNKNOWN
    text = number(scale * value.mean, digits)
    if len(value.each) > 1:
        return f"{text} ({', '.join(number(scale * each, digits) for each in value.each)})"
    return text if not math.isfinite(value.half) else f"{text} ± {number(scale * value.half, digits)}"


def scenario_in_words(scenario: str) -> str:
    """A scenario for people.

    >>> scenario_in_words("clean"), scenario_in_words("ood"), scenario_in_words("gaussian_noise/3")
    ('clean images', 'mean over all shifts', 'gaussian noise, severity 3')
    """
    if scenario == "clean":
        return "clean images"
    if scenario == "ood":
        return "mean over all shifts"
    corruption, _, severity = scenario.partition("/")
    return corruption.replace("_", " ") + (f", severity {severity}" if severity else "")


def config_value(value: Any) -> str:
    """A config value as text.

    >>> config_value([1, 3]), config_value(None), config_value(0.1), config_value(True)
    ('1, 3', '–', '0.1', 'yes')
    """
    if value is None or value == []:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(config_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
