"""Metrics as pure functions of the accuracy matrix.

``matrix[i][j]`` is the accuracy α_{i,j} on task j after learning task i, T x T, NaN above the diagonal. The unit is
kept: fractions give fractions. Each metric has the name given by the paper that defined it; none is just "average".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from acr.errors import InputError

Array = npt.NDArray[np.float64]


def _square(matrix: npt.ArrayLike) -> Array:
    values = np.asarray(matrix, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or values.size == 0:
        raise InputError(f"An accuracy matrix must be T x T, with one row per stage; got shape {values.shape}.")
    return values


def average_accuracy(matrix: npt.ArrayLike) -> float:
    """ACC = (1/T) Σ_j α_{T,j}: mean accuracy over all tasks after the last one (Lopez-Paz and Ranzato 2017).

    >>> average_accuracy([[0.9, float("nan")], [0.5, 0.7]])
    0.6
    """
    return float(_square(matrix)[-1].mean())


def backward_transfer(matrix: npt.ArrayLike) -> float:
    """BWT = (1/(T-1)) Σ_{j<T} (α_{T,j} − α_{j,j}); negative where old tasks are forgotten (Lopez-Paz and Ranzato 2017).

    NaN for a single task, and where the diagonal is missing (joint training).

    >>> round(backward_transfer([[0.9, float("nan")], [0.5, 0.7]]), 3)
    -0.4
    """
    transfer = final_transfer(matrix)
    return float(transfer.mean()) if len(transfer) else float("nan")


def final_transfer(matrix: npt.ArrayLike) -> Array:
    """β_{T,j} = α_{T,j} − α_{j,j} for every task j before the last, T − 1 values."""
    values = _square(matrix)
    return (values[-1] - values.diagonal())[:-1]


def stage_accuracy(matrix: npt.ArrayLike) -> Array:
    """ACC_t = (1/t) Σ_{j≤t} α_{t,j} for every stage t.

    >>> stage_accuracy([[0.9, float("nan")], [0.5, 0.7]]).tolist()
    [0.9, 0.6]
    """
    values = _square(matrix)
    return np.array([values[t, : t + 1].mean() for t in range(len(values))])


def stage_backward_transfer(matrix: npt.ArrayLike) -> Array:
    """BWT_t = (1/(t-1)) Σ_{j<t} (α_{t,j} − α_{j,j}) for every stage t; NaN for the first.

    >>> stage_backward_transfer([[0.9, float("nan")], [0.5, 0.7]]).round(3).tolist()
    [nan, -0.4]
    """
    values = _square(matrix)
    return np.array([backward_transfer(values[: t + 1, : t + 1]) for t in range(len(values))])


def average_incremental_accuracy(matrix: npt.ArrayLike) -> float:
    """Mean of ACC_t over the stages t = 1..T (Rebuffi et al. 2017, iCaRL).

    >>> average_incremental_accuracy([[0.9, float("nan")], [0.5, 0.7]])
    0.75
    """
    return float(stage_accuracy(matrix).mean())


def forgetting(matrix: npt.ArrayLike) -> float:
    """F = (1/(T-1)) Σ_{j<T} (max_{j≤l<T} α_{l,j} − α_{T,j}): drop from the best stage (Chaudhry et al. 2018).

    NaN for a single task, and where the diagonal is missing.

    >>> round(forgetting([[0.9, np.nan, np.nan], [0.95, 0.7, np.nan], [0.5, 0.6, 0.8]]), 3)
    0.275
    """
    values = _square(matrix)
    last = len(values) - 1
    if last == 0 or np.isnan(values.diagonal()[:-1]).any():
        return float("nan")
    return float(np.mean([values[j:last, j].max() - values[last, j] for j in range(last)]))


def coefficient_of_variation(counts: npt.ArrayLike) -> float:
    """CV = 100 · std/mean of ``counts``, in percent, with the population standard deviation.

    The paper's measure of balance. ``counts`` are samples per class, or per task, in the final memory; 0 is exact
    balance.

    >>> round(coefficient_of_variation([2, 3, 2, 3]), 1)
    20.0
    """
    values = np.asarray(counts, dtype=np.float64)
    if values.size == 0 or values.mean() == 0:
        return float("nan")
    return float(100 * values.std() / values.mean())


def expected_calibration_error(counts: npt.ArrayLike, confidence_sums: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """ECE = Σ_b (n_b/n) |acc_b − conf_b| over bins b of predicted confidence (Guo et al. 2017).

    Args:
        counts: number of predictions in each bin.
        confidence_sums: sum of their confidences.
        correct: how many of them are correct.

    Returns a fraction; NaN if there are no predictions.

    >>> expected_calibration_error([10, 10], [2.0, 9.0], [2, 5])
    0.2
    """
    n, conf, right = (np.asarray(values, dtype=np.float64) for values in (counts, confidence_sums, correct))
    return float(np.abs(right - conf).sum() / n.sum()) if n.sum() else float("nan")
