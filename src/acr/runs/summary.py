"""The figures of a finished run, computed from the counts in its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from acr import metrics
from acr.errors import InputError, unknown
from acr.evaluation.counts import Over, accuracy_matrix
from acr.runs.schema import Results

Matrix = npt.NDArray[np.float64]


class UnknownScenario(InputError, KeyError):
    """A scenario that the run was not evaluated under."""

    __str__ = InputError.__str__  # a KeyError would show its message in quotes


class ByScenario(dict[str, Matrix]):
    """Accuracy matrices by scenario; asking for another one raises an error that lists those there are."""

    def __missing__(self, name: str) -> Matrix:
        raise UnknownScenario(str(unknown("scenario", name, self)))


def scenarios(results: Results) -> list[str]:
    """``clean`` and the shifted scenarios that were evaluated at any stage."""
    return list(dict.fromkeys(name for stage in results.stages for name in stage.scenarios))


def shifted_scenarios(results: Results) -> list[str]:
    """The scenarios without ``clean``."""
    return [name for name in scenarios(results) if name != "clean"]


def accuracy_matrices(results: Results, over: Over, *, as_trained: bool = False) -> Mapping[str, Matrix]:
    """One accuracy matrix per scenario, and ``ood``, the mean over the shifted ones.

    Args:
        results: of a finished run.
        over: the outputs among which predictions are made.
        as_trained: of the network as trained, where the one that answers has averaged weights; empty elsewhere.
    """
    by_stage = {stage.stage: stage.as_trained if as_trained else stage.scenarios for stage in results.stages}
    matrices = ByScenario(
        (name, accuracy_matrix([by_stage.get(stage, {}).get(name) for stage in range(len(results.tasks))], over))
        for name in scenarios(results)
        if any(name in counted for counted in by_stage.values())
    )
    shifted = [matrix for name, matrix in matrices.items() if name != "clean"]
    if shifted:
        counted = [matrices["clean"]] if "clean-in-ood" in results.quirks else []
        matrices["ood"] = np.mean([*counted, *shifted], axis=0)
    return matrices


def calibration_error(results: Results, scenario: str = "clean") -> float:
    """Expected calibration error after the last task, over the classes seen; NaN if it was not measured."""
    counts = results.stages[-1].scenarios.get(scenario)
    if counts is None:
        return float("nan")
    bins = counts.calibration
    return metrics.expected_calibration_error(bins["count"], bins["confidence"], bins["correct"])


def mean_corruption_error(results: Results, baseline: Results) -> float:
    """mCE in percent, after the last task, relative to a baseline run (Hendrycks and Dietterich 2019).

    For each corruption, the error summed over its severities is divided by the baseline's; the result is the mean of
    these ratios. 100 is as good as the baseline, less is better.
    """
    names = shifted_scenarios(results)
    missing = sorted(set(names) - set(scenarios(baseline)))
    if not names:
        raise InputError(f"The run of {_name(results)} has no shifted scenario, so it has no mean corruption error.")
    if missing:
        raise InputError(
            f"The run of {_name(baseline)} cannot be the baseline of the mean corruption error: it lacks "
            f"{', '.join(missing)}."
        )
    mine, theirs = (accuracy_matrices(r, r.headline) for r in (results, baseline))
    ratios = []
    for corruption in dict.fromkeys(name.split("/")[0] for name in names):
        severities = [name for name in names if name.split("/")[0] == corruption]
        error, reference = (sum(1 - metrics.average_accuracy(m[name]) for name in severities) for m in (mine, theirs))
        ratios.append(error / reference if reference else float("nan"))
    return 100 * float(np.mean(ratios))


def _name(results: Results) -> str:
    return f"{results.method} with seed {results.seed} on {results.dataset}"


def summarise(results: Results, baseline: Results | None = None) -> dict[str, Any]:
    """The summary of a run: its main settings, then its figures. Accuracies are fractions; CVs are in percent.

    With a ``baseline`` it includes the mean corruption error relative to that run.
    """
    matrices = accuracy_matrices(results, results.headline)
    numbers: dict[str, Any] = {
        "method": results.method,
        "dataset": results.dataset,
        "buffer_size": results.buffer_size,
        "seed": results.seed,
        "protocol": results.protocol,
        **_matrix_numbers(matrices["clean"]),
        "acc_all_outputs": metrics.average_accuracy(accuracy_matrices(results, "all")["clean"]),
        "acc_task_incremental": metrics.average_accuracy(accuracy_matrices(results, "task")["clean"]),
        "calibration_error": calibration_error(results),
    }
    if "ood" in matrices:
        numbers |= {f"ood_{name}": value for name, value in _matrix_numbers(matrices["ood"]).items()}
        numbers["relative_robustness"] = numbers["ood_acc"] / numbers["acc"] if numbers["acc"] else float("nan")
        errors = [calibration_error(results, name) for name in shifted_scenarios(results)]
        numbers["ood_calibration_error"] = float(np.mean(errors))
    raw = accuracy_matrices(results, results.headline, as_trained=True)
    for name in ("clean", "ood"):
        if name in raw:
            numbers[f"as_trained_{'ood_' if name == 'ood' else ''}acc"] = metrics.average_accuracy(raw[name])
    if baseline is not None:
        numbers["mean_corruption_error"] = mean_corruption_error(results, baseline)
    numbers["cv_classes"] = results.memory.cv_classes
    numbers["cv_tasks"] = results.memory.cv_tasks
    numbers |= {name: value for name, value in results.facts.items() if name not in numbers}
    numbers["seconds"] = results.timing.seconds
    return numbers


def _matrix_numbers(matrix: Matrix) -> dict[str, float]:
    """ACC, BWT, forgetting and average incremental accuracy of a matrix."""
    return {
        "acc": metrics.average_accuracy(matrix),
        "bwt": metrics.backward_transfer(matrix),
        "forgetting": metrics.forgetting(matrix),
        "average_incremental_accuracy": metrics.average_incremental_accuracy(matrix),
    }
