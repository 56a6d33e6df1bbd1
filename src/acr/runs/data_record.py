"""The images that a run was made from: ``data.json`` in its folder, and whether they are still the same."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import PIL
from pydantic import BaseModel, ValidationError

from acr.data.fingerprint import Fingerprint
from acr.data.images import DataSet
from acr.errors import InputError
from acr.runs.reading import read_json
from acr.runs.run import Run

DATA = "data.json"


class DataRecord(BaseModel):
    """The content of ``data.json``."""

    fingerprint: str
    location: str = ""
    pillow: str = ""
    from_the_start: bool = True
    """False if the run was begun by a version that kept no record, and resumed by this one."""
    classes: dict[str, str] = {}
    files: dict[str, str] = {}

    @classmethod
    def of(cls, data: DataSet, from_the_start: bool = True) -> DataRecord:
        """The record of a data set as it is now."""
        known = data.fingerprint
        return cls(
            fingerprint=known.digest,
            location=str(data.notes.get("location", "")),
            pillow=PIL.__version__,
            from_the_start=from_the_start,
            classes=dict(known.classes),
            files=dict(known.files),
        )

    def differences(self, now: Fingerprint) -> str:
        """What has changed since the record was made, for people."""
        changed = Fingerprint(self.fingerprint, self.classes, self.files).differences(now)
        if self.pillow and self.pillow != PIL.__version__:
            changed += f" (read with Pillow {self.pillow} then, {PIL.__version__} now, which may account for it)"
        return changed


def read_record(folder: Path) -> DataRecord | None:
    """The record in a run folder; None if the run was made before there were records."""
    path = folder / DATA
    if not path.exists():
        return None
    content: Mapping[str, Any] = read_json(path)
    try:
        return DataRecord.model_validate({name: value for name, value in content.items() if name != "schema"})
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part)[:40] for part in problem["loc"])
        raise InputError(f"{path} is damaged: {where}: {problem['msg'][:200]}.") from None


def recorded_fingerprint(run: Run) -> str:
    """The fingerprint of the images that a run was made from; empty if it was made before this was recorded."""
    if run.finished:
        return run.results.data.fingerprint
    record = read_record(run.folder)
    return "" if record is None else record.fingerprint


def same_data(first: Run, second: Run) -> bool | None:
    """Whether two runs were made from the same images; None if it is not recorded."""
    one, other = recorded_fingerprint(first), recorded_fingerprint(second)
    return one == other if one and other else None


def what_changed(folder: Path, now: Fingerprint) -> str:
    """How the images differ from those that the run in a folder was made from, for people."""
    record = read_record(folder)
    return "its images had another fingerprint" if record is None else record.differences(now)


def check_same_data(folder: Path, now: Fingerprint) -> None:
    """Refuse to resume a run on other images than those it was begun with."""
    record = read_record(folder)
    if record is None or record.fingerprint == now.digest:
        return
    raise InputError(
        f"{folder} was begun on other images than those of its data set now. {capital(record.differences(now))}. "
        "Nothing was changed. To resume this run, bring the old images back; to train on the images as they are now, "
        f"run: acr run --config {shlex.quote(str(folder / 'config.yaml'))}"
    )


def capital(text: str) -> str:
    """The text with a capital letter at the beginning."""
    return text[:1].upper() + text[1:]
