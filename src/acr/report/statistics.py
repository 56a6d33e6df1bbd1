"""Means over seeds with their 95 % intervals, and whether two methods differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
"""Level of every interval that is reported."""
FEWEST_SEEDS = 3
"""Seeds below which there is no interval: with two, Student's t makes it wider than any result that it is beside."""
ROUNDING = 1e-9
"""Differences that spread less than this share of the values differ by rounding only."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds. ``half`` is half the width of its 95 % interval, NaN for fewer than three seeds."""

    mean: float
    half: float
    n: int
    each: tuple[float, ...] = ()
    """What each seed gave, where there are too few for an interval."""

    @property
    def known(self) -> bool:
        """Whether any seed has a value."""
        return math.isfinite(self.mean)

    def overlaps(self, other: Estimate) -> bool | None:
        """Whether the two intervals overlap; None where one of them is not known."""
        if math.isnan(self.half) or math.isnan(other.half):
            return None
        return abs(self.mean - other.mean) <= self.half + other.half


def estimate(values: Iterable[float | None]) -> Estimate:
    """Mean and 95 % interval by Student's t, with the sample's standard deviation; unknown values are left out.

    Fewer than three values have no interval; the result has the values themselves.

    >>> e = estimate([0.5, 0.6, 0.7])
    >>> round(e.mean, 3), round(e.half, 3), e.n
    (0.6, 0.248, 3)
    >>> estimate([0.5, 0.7]).each
    (0.5, 0.7)
    """
    known = [float(value) for value in values if value is not None and math.isfinite(value)]
    n = len(known)
    if n == 0:
        return Estimate(math.nan, math.nan, 0)
    mean = sum(known) / n
    if n < FEWEST_SEEDS:
        return Estimate(mean, math.nan, n, tuple(known))
    from scipy.special import stdtrit

    deviation = math.sqrt(sum((value - mean) ** 2 for value in known) / (n - 1))
    return Estimate(mean, float(stdtrit(n - 1, (1 + LEVEL) / 2)) * deviation / math.sqrt(n), n)


def paired_p(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float:
    """Two-sided p of the paired t test over the seeds that both have; NaN for fewer than two, or without any spread.

    ``ours`` and ``theirs`` map a seed to its value.

    >>> round(paired_p({0: 1.0, 1: 2.0, 2: 4.0}, {0: 1.5, 1: 2.0, 2: 3.0}), 3)
    0.742
    """
    from scipy import stats

    seeds = sorted(set(ours) & set(theirs))
    differences = [ours[seed] - theirs[seed] for seed in seeds]
    if len(seeds) < 2 or float(np.ptp(differences)) <= ROUNDING * max(map(abs, (*ours.values(), *theirs.values()))):
        return math.nan
    return float(stats.ttest_rel([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]).pvalue)


def holm(values: Sequence[float]) -> list[float]:
    """Holm's correction of p values for having made several tests; values that are NaN were no tests and stay NaN.

    The smallest of m values is multiplied by m, the next by m − 1 and so on; none becomes smaller than the one before.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    tests = sorted((value, number) for number, value in enumerate(values) if not math.isnan(value))
    corrected, largest = [math.nan] * len(values), 0.0
    for rank, (value, number) in enumerate(tests):
        largest = max(largest, min(1.0, value * (len(tests) - rank)))
        corrected[number] = largest
    return corrected
