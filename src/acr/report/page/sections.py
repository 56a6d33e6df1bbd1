"""The sections of a page: what each shows, how it is read, and its charts for every choice of the pickers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from acr.report.charts import classes, cost, memory, shift, stages
from acr.report.charts.parts import Json, Variant
from acr.report.columns import COLUMNS
from acr.report.groups import Comparison, Gathered
from acr.report.style import Look
from acr.report.wording import scenario_in_words, with_interval

Options = list[tuple[str, str]]


@dataclass(frozen=True)
class Section:
    """A chart's place on the page."""

    id: str
    title: str
    read: str
    """One or two sentences that say how the chart is read."""
    options: Callable[[Comparison], Options] | None
    """What its picker offers in a comparison: value and text; None if it has none."""
    draw: Callable[[Comparison, str], Variant]
    picker: str = ""
    layout: str = "one"
    """``one`` panel across, ``two`` or ``four`` side by side on a wide screen, ``small`` as many as fit."""


MATRIX_CELLS = 150_000
"""Cells of all accuracy matrices of a page, about at most; a sweep over many severities leaves some out."""


def sections(looks: dict[str, Look], gathered: Gathered) -> list[Section]:
    """All charts, in the order in which the page shows them."""
    most = MATRIX_CELLS // max(1, sum(group.tasks**2 for s in gathered.comparisons for group in s.groups))

    def scenario_options(comparison: Comparison) -> Options:
        return [(name, scenario_in_words(name)) for name in comparison.scenarios[: max(2, most)]]

    def draw_matrices(comparison: Comparison, scenario: str) -> Variant:
        variant = stages.matrices(comparison, scenario)
        left_out = len(comparison.scenarios) - max(2, most)
        if left_out > 0:
            variant.note = f"{left_out} more scenarios are left out for size; acr report --csv DIR writes them all."
        return variant

    def two_scenarios(comparison: Comparison) -> Options:
        return [(name, scenario_in_words(name)) for name in comparison.scenarios if name in ("clean", "ood")]

    def severity_options(comparison: Comparison) -> Options:
        found = shift.severities(comparison)
        every = [("all", "mean over severities")] if len(found) != 1 else []
        return [*every, *((severity, f"severity {severity}") for severity in found)]

    def class_options(comparison: Comparison) -> Options:
        history = [(f"m{i}", f"{group.label}, stage by stage") for i, group in enumerate(comparison.groups)]
        return [("all", "all methods, change since learned"), *history]

    def by_options(comparison: Comparison) -> Options:
        return [("class", "by class"), ("task", "by task")]

    def confidence_options(comparison: Comparison) -> Options:
        has = [i for i, g in enumerate(comparison.groups) if (g.runs[0].folder / "confidence.npz").exists()]
        return [(f"m{i}", comparison.groups[i].label) for i in has] or [("none", "no method")]

    def draw_classes(comparison: Comparison, choice: str) -> Variant:
        if choice == "all":
            return classes.forgetting(comparison)
        return classes.class_history(comparison.groups[int(choice[1:])])

    def draw_confidence(comparison: Comparison, choice: str) -> Variant:
        if choice == "none":
            return Variant(empty=memory.NO_CONFIDENCE)
        group = comparison.groups[int(choice[1:])]
        return memory.confidence_map(group.runs[0], group.label, looks[group.label].color)

    return [
        Section("scatter", "Clean against shifted",
                "Right is better on clean images, up is better on corrupted ones. On the dotted line nothing is lost "
                "under shift; the further below it, the more. Bars are 95 % intervals over three seeds or more.",
                None, lambda s, _: shift.scatter(s, looks)),
        Section("stages", "Task by task",
                "(a) accuracy on each task after the last, (b) mean accuracy over the tasks seen after each stage: "
                "higher is better. (c) change of each task since it was learned, (d) its mean after each stage: "
                "below zero is forgotten. (e) to (h) show the same on shifted images. Points are means over seeds; the "
                "table has the intervals.",
                None, lambda s, _: stages.stages(s, looks), layout="four"),
        Section("matrices", "Accuracy matrices",
                "Row: after learning this task. Column: accuracy (%) on the test images of this task. Read down a "
                "column to see a task being forgotten; the darker, the more is right.",
                scenario_options, draw_matrices, "images", "small"),
        Section("corruptions", "Each corruption",
                "Mean accuracy over all tasks at the end (ACC) when the test images are corrupted in one way; longer "
                "is better, thin bars are 95 % intervals over three seeds or more. The pictures show what each "
                "corruption does.",
                severity_options, lambda s, c: shift.corruption_bars(s, looks, c), "severity"),
        Section("classes", "What is forgotten, class by class",
                "Each column is a class, in the order in which classes arrive. Change since learned: red is lost, "
                "blue is gained, in percentage points. Stage by stage: the accuracy of one method's classes after "
                "every task, so that one sees when a class is lost.",
                class_options, draw_classes, "show"),
        Section("confusion", "Confusion between tasks",
                "Row: the task an image belongs to. Column: the task of the class it is taken for, in percent of the "
                "row, after the last task. A dark last column means that everything is taken for the newest task.",
                two_scenarios, stages.confusion, "images", "small"),
        Section("balance", "Balance of the memory",
                "Samples stored at the end. Bars of equal height are exact balance; CV is the standard deviation of "
                "the counts over their mean, 0 % for exact balance.",
                by_options, lambda s, c: memory.balance(s, looks, c), "count", "small"),
        Section("confidence", "Confidence map",
                "Each grey point is a training sample: how sure the network was of the right class while it was "
                "learned (across) and how much that changed from epoch to epoch (up). Top: samples near the boundary "
                "between classes. Right: easy ones. Left: hard or mislabelled ones. Marked: samples the memory keeps.",
                confidence_options, draw_confidence, "method"),
        Section("cost", "What it cost",
                "Time, throughput and memory of the training process; shorter and lower is cheaper, higher throughput "
                "is faster. Lines follow the run of the lowest seed. Times compare only if the machine was the same "
                "and otherwise idle.",
                None, lambda s, _: cost.cost(s, looks), layout="two"),
    ]  # fmt: skip


def chart_json(section: Section, comparisons: Iterable[Comparison]) -> Json:
    """All variants of a section's chart, by comparison and choice. One that fails says so and spares the others."""
    variants: dict[str, Any] = {}
    pickers: dict[str, Any] = {}
    for comparison in comparisons:
        options = section.options(comparison) if section.options else [("", "")]
        if section.options:
            pickers[comparison.key] = options
        for value, _ in options:
            key = f"{comparison.key}|{value}" if section.options else comparison.key
            try:
                variants[key] = section.draw(comparison, value).as_json()
            except Exception as error:  # a file damaged in a way nobody thought of must not cost the page
                variants[key] = Variant(empty=f"This could not be drawn: {type(error).__name__}: {error}").as_json()
    return {"variants": variants, "pickers": pickers}


def in_short(gathered: Gathered) -> dict[str, list[dict[str, str]]]:
    """For each comparison the answers in a few words: best clean, best shifted, least forgotten, fastest."""
    return {
        comparison.key: [card for question in QUESTIONS if (card := answer(comparison, *question))]
        for comparison in gathered.comparisons
    }


QUESTIONS = (
    ("acc", "Best on clean images", "ACC", "%"),
    ("ood_acc", "Best under shift", "ACC", "%"),
    ("bwt", "Keeps most of the old", "BWT", "points"),
    ("seconds", "Fastest", "", "s"),
)
"""Name in a summary, title, word before the number, unit."""


def answer(comparison: Comparison, name: str, title: str, word: str, unit: str) -> dict[str, str] | None:
    """Who comes first in a number, who second, and whether the intervals tell them apart."""
    column = COLUMNS[name]
    ranked = [(group.estimate(name), group.label) for group in comparison.contenders]
    ranked = sorted([r for r in ranked if r[0].known], key=lambda r: r[0].mean, reverse=not column.low_is_good)
    if not ranked:
        return None
    first, label = ranked[0]
    value = f"{word} {with_interval(first, column.scale, column.digits)} {unit}".strip()
    note = "the only one with this number"
    if len(ranked) > 1:
        second, other = ranked[1]
        apart = {None: "too few seeds for an interval", True: "intervals overlap", False: "intervals apart"}
        shown = with_interval(second, column.scale, column.digits)
        note = f"then {other}, {shown} {unit}; {apart[first.overlaps(second)]}"
    return {"title": title, "label": label, "value": value, "note": note}
