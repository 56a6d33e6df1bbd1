"""A run in a notebook: its counts as rows or as a pandas table, and its figures as a small HTML table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from html import escape
from importlib import import_module
from typing import Any

from acr.errors import InputError, printable
from acr.evaluation.counts import Counts
from acr.runs.schema import Results, Stage


def count_rows(results: Results) -> Iterator[dict[str, Any]]:
    """One row per stage, scenario and task: how many test images there are, and how many were predicted correctly.

    ``correct`` and ``accuracy`` are those that the run's protocol reports; ``correct_seen``, ``correct_all`` and
    ``correct_task`` have predictions over the classes seen so far, over all outputs, and within the task. Stages and
    tasks are counted from 0. ``weights`` are those that predicted: ``as trained``; in a run with averaged weights there
    are rows for ``averaged`` and for ``as trained``.
    """
    names = ("method", "dataset", "buffer_size", "seed", "protocol")
    run = {name: getattr(results, name) for name in names}
    counted = [
        (stage, weights, scenario, counts)
        for stage in results.stages
        for weights, scenarios in _by_weights(stage)
        for scenario, counts in scenarios.items()
    ]
    for stage, weights, scenario, counts in counted:
        corruption, _, severity = scenario.partition("/")
        where = {
            "stage": stage.stage,
            "scenario": scenario,
            "corruption": corruption if severity else None,
            "severity": int(severity) if severity.isdecimal() else None,
        }
        for task, by_class in enumerate(counts.total):
            total = sum(by_class)
            right = {over: sum(table[task]) for over, table in counts.correct.items()}
            yield {
                **run,
                **where,
                "task": task,
                "weights": weights,
                "total": total,
                "correct": right[results.headline],
                "accuracy": right[results.headline] / total if total else math.nan,
                **{f"correct_{over}": right[over] for over in ("seen", "all", "task")},
            }


def _by_weights(stage: Stage) -> list[tuple[str, dict[str, Counts]]]:
    """What was counted after a task, by the weights that answered."""
    if not stage.as_trained:
        return [("as trained", stage.scenarios)]
    return [("averaged", stage.scenarios), ("as trained", stage.as_trained)]


def to_frame(results: Results) -> Any:
    """The rows of :func:`count_rows` as a ``pandas.DataFrame``."""
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise InputError("to_frame needs pandas, which is not installed: pip install pandas") from None
    return pandas.DataFrame(list(count_rows(results)))


def html_table(values: Mapping[str, Any], figures: Mapping[str, Any] | None, folder: str) -> str:
    """A table of what a run is and what came out.

    Args:
        values: its config.
        figures: its summary; None if it is not finished.
        folder: where it is stored.
    """
    names = {"method": "method", "dataset": "data set", "buffer_size": "buffer", "seed": "seed"}
    rows = [_row(words, [values.get(name)]) for name, words in names.items()]
    if figures is None:
        rows.append(_row("state", ["not finished"]))
    else:
        rows.append(f"<tr><th></th>{''.join(f'<th>{word}</th>' for word in ('clean', 'shifted'))}</tr>")
        rows += [
            _row(f"{name.upper()} %", [percent(figures.get(key)) for key in (name, f"ood_{name}")])
            for name in ("acc", "bwt")
        ]
    return f"<table>{''.join([*rows, _row('folder', [folder])])}</table>"


def percent(value: float | None) -> str:
    """A fraction in percent, with one decimal; a dash if it is not known.

    >>> percent(0.51234), percent(float("nan")), percent(None)
    ('51.2', '–', '–')
    """
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:.1f}"


def _row(head: str, cells: list[Any]) -> str:
    """One row of an HTML table. Names come from outside, so that everything is escaped."""
    span = ' colspan="2"' if len(cells) == 1 else ""
    shown = "".join(f"<td{span}>{escape(printable(str(cell)))}</td>" for cell in cells)
    return f'<tr><th style="text-align: left">{escape(head)}</th>{shown}</tr>'
