"""Means over seeds with the interval that belongs to them, and how both are printed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds. ``half`` is half the width of its 95 % interval, NaN for a single seed."""

    mean: float
    half: float
    n: int

    @property
    def known(self) -> bool:
        """Whether there is a figure at all."""
        return not math.isnan(self.mean)

    def overlaps(self, other: Estimate) -> bool | None:
        """Whether the two intervals overlap; None where one of them is not known."""
        if math.isnan(self.half) or math.isnan(other.half):
            return None
        return abs(self.mean - other.mean) <= self.half + other.half


def estimate(values: Iterable[float]) -> Estimate:
    """Mean and 95 % interval by Student's t, with the sample's standard deviation; NaN values are left out.

    >>> e = estimate([0.5, 0.6, 0.7])
    >>> round(e.mean, 3), round(e.half, 3), e.n
    (0.6, 0.248, 3)
    """
    known = [float(value) for value in values if value is not None and not math.isnan(value)]
    n = len(known)
    if n == 0:
        return Estimate(math.nan, math.nan, 0)
    mean = sum(known) / n
    if n == 1:
        return Estimate(mean, math.nan, 1)
    from scipy.special import stdtrit

    deviation = math.sqrt(sum((value - mean) ** 2 for value in known) / (n - 1))
    return Estimate(mean, float(stdtrit(n - 1, 0.975)) * deviation / math.sqrt(n), n)


def in_words(value: Estimate, scale: float = 1.0, digits: int = 1) -> str:
    """A figure with its interval.

    >>> in_words(Estimate(0.612, 0.0123, 5), 100), in_words(Estimate(0.6, math.nan, 1), 100)
    ('61.2 ± 1.2', '60.0')
    """
    if not value.known:
        return "–"
    text = number(scale * value.mean, digits)
    return text if math.isnan(value.half) else f"{text} ± {number(scale * value.half, digits)}"


def number(value: float | None, digits: int = 1) -> str:
    """A number with so many decimals, a true minus sign, and no minus before a zero.

    >>> number(-12.345), number(-0.01), number(None)
    ('−12.3', '0.0', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def rounded(value: float | None, digits: int = 4) -> float | None:
    """For JSON: fewer digits, and None for what is not known."""
    if value is None or not math.isfinite(value):
        return None
    return round(float(value), digits)
