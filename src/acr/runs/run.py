"""The run folder, from the side that reads it: :class:`Run`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from acr.config import SCHEMA, RunConfig, make_config, read_config_file
from acr.errors import InputError
from acr import metrics
from acr.evaluation.evaluator import accuracy_matrix
from acr.runs.writer import CONFIG, ENVIRONMENT, EVENTS, RESULTS
from acr.runs.schema import results_problem

Matrix = npt.NDArray[np.float64]

MEND_RESULTS = (
    "Nothing was changed. Move the file away and go on with acr resume {folder}, which writes it again from the last "
    "checkpoint; or run anew beside it with --fresh."
)


class Run:
    """A run, finished or not.

    ``run.accuracy["clean"]`` is the T x T accuracy matrix (fractions, NaN where not measured), ``run.accuracy["ood"]``
    the mean over the shifted scenarios, ``run.accuracy["fog/1"]`` one of them. ``run.summary()`` has the figures.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @cached_property
    def values(self) -> dict[str, Any]:
        """The config as it lies in the folder."""
        return read_config_file(self.folder / CONFIG, of_a_run=True)

    @cached_property
    def config(self) -> RunConfig:
        """The config, validated; needs the method to be installed."""
        return make_config(self.values)

    @cached_property
    def results(self) -> dict[str, Any]:
        """The content of ``results.json``."""
        path = self.folder / RESULTS
        content = read_json(path)
        problem = results_problem(content)
        if problem:
            raise InputError(f"{path} is damaged: {problem}. {MEND_RESULTS.format(folder=self.folder)}")
        return content

    @cached_property
    def environment(self) -> dict[str, Any]:
        """The content of ``environment.json``: versions and machine."""
        return read_json(self.folder / ENVIRONMENT)

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays of an ``.npz`` file of the folder, such as ``memory.npz``; empty if there is no such file."""
        path = self.folder / name
        return read_arrays(path) if path.exists() else {}

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.folder / RESULTS).exists() and bool(self.results.get("finished"))

    @cached_property
    def scenarios(self) -> list[str]:
        """``clean`` and the shifted scenarios that were evaluated."""
        names: dict[str, None] = {}
        for stage in self.results["stages"]:
            names.update(dict.fromkeys(stage["scenarios"]))
        return list(names)

    def accuracy_over(self, over: str) -> Mapping[str, Matrix]:
        """Accuracy matrices by scenario, the prediction taken over ``seen``, ``all`` or the ``task``'s outputs."""
        tasks = len(self.results["tasks"])
        by_stage: dict[int, dict[str, Any]] = {s["stage"]: s["scenarios"] for s in self.results["stages"]}
        matrices = {
            name: accuracy_matrix([by_stage.get(stage, {}).get(name) for stage in range(tasks)], over)
            for name in self.scenarios
        }
        shifted = [matrix for name, matrix in matrices.items() if name != "clean"]
        if shifted:
            counted = [matrices["clean"]] if "clean-in-ood" in self.results["quirks"] else []
            matrices["ood"] = np.mean([*counted, *shifted], axis=0)
        return matrices

    @cached_property
    def accuracy(self) -> Mapping[str, Matrix]:
        """Accuracy matrices by scenario, over the outputs that the run's protocol reports."""
        return self.accuracy_over(self.results["headline"])

    def calibration_error(self, scenario: str = "clean") -> float:
        """Expected calibration error after the last task, over the classes seen."""
        stage = self.results["stages"][-1]["scenarios"].get(scenario)
        if stage is None:
            return float("nan")
        bins = stage["calibration"]
        return metrics.expected_calibration_error(bins["count"], bins["confidence"], bins["correct"])

    def mean_corruption_error(self, baseline: Run) -> float:
        """mCE in percent, after the last task, against a baseline run (Hendrycks and Dietterich 2019).

        For each corruption the errors summed over its severities, divided by the baseline's; the mean of these. 100 is
        as good as the baseline, less is better.
        """
        names = [name for name in self.scenarios if name != "clean"]
        missing = sorted(set(names) - set(baseline.scenarios))
        if not names or missing:
            which = f"lacks {', '.join(missing)}" if names else "is asked of a run without shifted images"
            raise InputError(f"The mean corruption error against {baseline.folder} {which}.")
        ratios = []
        for corruption in dict.fromkeys(name.split("/")[0] for name in names):
            scenarios = [name for name in names if name.split("/")[0] == corruption]
            mine, theirs = (
                sum(1 - metrics.average_accuracy(run.accuracy[name]) for name in scenarios) for run in (self, baseline)
            )
            ratios.append(mine / theirs if theirs else float("nan"))
        return 100 * float(np.mean(ratios))

    def summary(self) -> dict[str, Any]:
        """The figures of the run. Accuracies are fractions; CVs are in percent, as their definition says."""
        results = self.results
        figures: dict[str, Any] = {
            "method": results["method"],
            "dataset": results["dataset"],
            "buffer_size": results["buffer_size"],
            "seed": results["seed"],
            "protocol": results["protocol"],
            **matrix_figures(self.accuracy["clean"]),
            "acc_all_outputs": metrics.average_accuracy(self.accuracy_over("all")["clean"]),
            "acc_task_incremental": metrics.average_accuracy(self.accuracy_over("task")["clean"]),
            "calibration_error": self.calibration_error(),
        }
        if "ood" in self.accuracy:
            figures |= {f"ood_{name}": value for name, value in matrix_figures(self.accuracy["ood"]).items()}
            figures["relative_robustness"] = figures["ood_acc"] / figures["acc"] if figures["acc"] else float("nan")
            errors = [self.calibration_error(name) for name in self.scenarios if name != "clean"]
            figures["ood_calibration_error"] = float(np.mean(errors))
        if "baseline" in results:
            figures["mean_corruption_error"] = results["baseline"]["mean_corruption_error"]
        memory = results.get("memory") or {}
        figures["cv_classes"] = memory.get("cv_classes", float("nan"))
        figures["cv_tasks"] = memory.get("cv_tasks", float("nan"))
        figures["seconds"] = results["timing"]["seconds"]
        return figures

    def events(self) -> Iterator[dict[str, Any]]:
        """The lines of ``events.jsonl``; a line that a crash cut off, or that is no event, is passed over."""
        path = self.folder / EVENTS
        if not path.exists():
            return
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    event = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if not isinstance(event, dict) or not isinstance(event.get("event"), str):
                    continue
                if event.get("schema") != SCHEMA:
                    found = str(event.get("schema"))[:20]
                    raise InputError(f"{path} has lines of schema {found}; this version reads schema {SCHEMA}.")
                yield event


def matrix_figures(matrix: Matrix) -> dict[str, float]:
    """ACC, BWT, forgetting and average incremental accuracy of a matrix."""
    return {
        "acc": metrics.average_accuracy(matrix),
        "bwt": metrics.backward_transfer(matrix),
        "forgetting": metrics.forgetting(matrix),
        "average_incremental_accuracy": metrics.average_incremental_accuracy(matrix),
    }


def load_run(folder: str | Path) -> Run:
    """Open a run folder."""
    path = Path(folder)
    if not (path / CONFIG).is_file():
        raise InputError(f"{path} is not a run folder: it has no {CONFIG}.")
    return Run(path)


def find_runs(*folders: str | Path) -> list[Run]:
    """All runs in these folders, at any depth, in the order of their paths."""
    found: dict[Path, None] = {}
    for folder in map(Path, folders):
        if not folder.exists():
            raise InputError(f"{folder} does not exist.")
        found.update(dict.fromkeys(sorted(path.parent for path in folder.rglob(CONFIG))))
    return [Run(path) for path in found]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of a run folder, if it is one this version understands."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError):
        mend = " " + MEND_RESULTS.format(folder=path.parent) if path.name == RESULTS else ""
        raise InputError(f"{path} is damaged: it is not JSON.{mend}") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = str(content.get("schema"))[:20] if isinstance(content, dict) else None
        raise InputError(f"{path} has schema {found}; this version reads schema {SCHEMA}.")
    return content


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """An ``.npz`` file of a run folder, if it is one this version understands. Pickled objects are refused."""
    try:
        with np.load(path, allow_pickle=False) as file:
            content = {name: file[name] for name in file.files}
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from None
    except Exception as error:  # zipfile, zlib and numpy each have errors of their own for a damaged file
        why = str(error).partition(".")[0]  # numpy goes on to say how to load unsafe files
        raise InputError(f"{path} is damaged, or no file of this program: {why}.") from None
    schema = content.pop("schema", None)
    if schema is None or schema.shape != () or schema != SCHEMA:
        raise InputError(f"{path} has schema {str(schema)[:20]}; this version reads schema {SCHEMA}.")
    return content
