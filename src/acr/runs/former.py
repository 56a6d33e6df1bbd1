"""Config files of earlier versions in today's terms, so that old runs are shown as what they were."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from acr.config import ADDED_LATER
from acr.protocols import FORMER_QUIRKS

REMOVED = {
    "ood_baseline": "The mean corruption error is now computed from finished runs: acr report RUNS --baseline RUN.",
    "comparisons": "GSS calls them references now: --references.",
    "fit_factor": "GDumb's fit does not depend on the epochs of a task any more; --fit-epochs sets its epochs.",
}
"""Fields of earlier versions, and what to do instead. Run folders that hold them can still be read."""


def in_todays_terms(values: Mapping[str, Any], revision: int | None) -> dict[str, Any]:
    """The flat values of a config file, with the fields of earlier versions renamed, translated or left out.

    ``revision`` is that of the method that made the file's run (see :class:`acr.config.MethodOptions`); None for a file
    of another origin, which need not hold every value.
    """
    today = {name: value for name, value in values.items() if name != "ood_baseline"}
    if revision is not None:  # a method may have other defaults for fields that the run's version did not have
        today = {**ADDED_LATER, **today}
    if revision == 1 and today.get("method") == "gdumb":
        today |= _gdumb_fit(today)
        today.pop("fit_factor", None)
    if revision == 1 and today.get("method") == "metasp":
        today |= _metasp_replay(today)
    if today.get("method") == "gss" and "comparisons" in today:
        today.setdefault("references", today.pop("comparisons"))
    if today.get("method") == "soif":
        today |= _soif_weighting(today, complete=revision == 1)
    for name in ("quirk", "no_quirk"):
        if any(quirk in FORMER_QUIRKS for quirk in _names(today.get(name))):
            today[name] = [quirk for quirk in _names(today[name]) if quirk not in FORMER_QUIRKS]
    return today


def _soif_weighting(values: Mapping[str, Any], complete: bool) -> dict[str, str]:
    """SOIF's weighting was decided by a quirk of the protocol, and was ``batch-share`` without it."""
    quirk = "misplaced-soif-weight"
    on, off = quirk in _names(values.get("quirk")), quirk in _names(values.get("no_quirk"))
    if "weighting" in values or not (complete or on or off):
        return {}
    as_released = (on or values.get("protocol") == "published") and not off
    return {"weighting": "released" if as_released else "batch-share"}


def _gdumb_fit(values: Mapping[str, Any]) -> dict[str, int]:
    """The epochs of GDumb's fit were, unless they were given, a multiple of those of a task, and at least 10."""
    factor, epochs = values.get("fit_factor"), values.get("epochs")
    if values.get("fit_epochs") is not None or not isinstance(factor, int | float) or not isinstance(epochs, int):
        return {}
    return {"fit_epochs": max(10, round(factor * epochs))} if math.isfinite(factor) else {}


def _metasp_replay(values: Mapping[str, Any]) -> dict[str, int]:
    """MetaSP's replay epochs were cut to all but the first of a task."""
    wanted, epochs = values.get("replay_epochs"), values.get("epochs")
    return {"replay_epochs": min(wanted, epochs - 1)} if isinstance(wanted, int) and isinstance(epochs, int) else {}


def _names(value: Any) -> list[str]:
    """The quirks of a field: a list, or text with commas. Whatever else is there is left for validation to refuse."""
    if isinstance(value, str):
        return value.replace(",", " ").split()
    return [name for name in value if isinstance(name, str)] if isinstance(value, list | tuple) else []
