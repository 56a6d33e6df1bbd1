"""Means over seeds, what they are worth, and whether two methods differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

LEVEL = 0.95
NOISE = 1e-9
"""Differences that spread less than this share of the values differ by rounding only."""


def half_width(values: Sequence[float]) -> float:
    """Half the 95 % interval of a mean by Student's t; NaN for fewer than two values.

    >>> round(half_width([1.0, 2.0, 3.0]), 3)
    2.484
    """
    if len(values) < 2:
        return math.nan
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)) * error


def paired_p(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float:
    """Two-sided p of the paired t test over the seeds both have; NaN for fewer than two, or without any spread.

    >>> round(paired_p({0: 1.0, 1: 2.0, 2: 4.0}, {0: 1.5, 1: 2.0, 2: 3.0}), 3)
    0.742
    """
    seeds = sorted(set(ours) & set(theirs))
    differences = [ours[seed] - theirs[seed] for seed in seeds]
    if len(seeds) < 2 or float(np.ptp(differences)) <= NOISE * max(map(abs, (*ours.values(), *theirs.values()))):
        return math.nan
    return float(stats.ttest_rel([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]).pvalue)
