"""Checkpoints: the whole state of a run, in files that hold no code.

A checkpoint is a folder with ``tensors.safetensors``, ``state.json`` (numbers, text, and which tensor goes where) and
``manifest.json`` (schema version, run, checksum of the other two). It is written beside the others under a temporary
name, read back, and only then given its final name; older ones are removed only after that. So whatever fails, and
whenever, the newest complete checkpoint can be read.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from acr.errors import AcrError, shown
from acr.runs import limits
from acr.runs.reading import parse_json, shorten
from acr.runs.schema import SCHEMA
from acr.storage import files

PARTS = ("tensors.safetensors", "state.json")
MANIFEST = "manifest.json"
NAME = re.compile(r"step-[0-9]{1,18}", re.ASCII)
LIMITS = {"tensors.safetensors": limits.TENSORS_BYTES, "state.json": limits.JSON_BYTES, MANIFEST: limits.JSON_BYTES}
"""How much is read of each file."""


class CheckpointError(AcrError):
    """A checkpoint cannot be read; the message names the file and the reason."""


def flatten(state: Any, tensors: dict[str, Tensor], path: str = "") -> Any:
    """A nested state as JSON; its tensors are moved into ``tensors``, named by their ``path`` in the state."""
    if isinstance(state, Tensor):
        name = path or "value"
        tensors[name] = state.detach().cpu().contiguous()
        return {"tensor": name}
    if isinstance(state, dict):
        return {"dict": [[key, flatten(value, tensors, f"{path}/{key}")] for key, value in state.items()]}
    if isinstance(state, (list, tuple)):
        return {"list": [flatten(value, tensors, f"{path}/{i}") for i, value in enumerate(state)]}
    if isinstance(state, float) and not math.isfinite(state):
        return {"float": repr(state)}  # JSON has no infinity
    if state is None or isinstance(state, (bool, int, float, str)):
        return {"value": state}
    raise TypeError(f"A state can hold tensors, numbers, text, lists and dicts; {path} is {type(state).__name__}.")


def restore(content: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of :func:`flatten` (tuples become lists)."""
    ((kind, value),) = content.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "dict":
        return {key: restore(item, tensors) for key, item in value}
    if kind == "list":
        return [restore(item, tensors) for item in value]
    if kind == "value":
        return value
    if kind == "float":
        return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[value]
    raise ValueError(f"unknown kind {kind!r}")


class Checkpoints:
    """The checkpoints of one run folder.

    ``run`` is the run's identity, ``keep`` how many are kept, ``data`` the fingerprint of its images.
    """

    def __init__(self, folder: Path, run: str, keep: int = 2, data: str = "") -> None:
        self.folder = folder
        self.run = run
        self.keep = keep
        self.data = data

    def folders(self) -> list[Path]:
        """Complete checkpoints, newest first."""
        if self.folder.is_symlink():
            raise CheckpointError(f"{self.folder} is not used: {files.NOT_FOLLOWED}.")
        found = (
            [path for path in self.folder.glob("step-*") if NAME.fullmatch(path.name)] if self.folder.is_dir() else []
        )
        return sorted(found, key=lambda path: int(path.name[5:]), reverse=True)

    def save(self, step: int, state: dict[str, Any]) -> Path:
        """Write a checkpoint, verify that it can be read, then remove the oldest."""
        from safetensors.torch import save

        tensors: dict[str, Tensor] = {}
        content = {"state.json": json.dumps(flatten(state, tensors), allow_nan=False).encode()}
        content["tensors.safetensors"] = save(tensors)
        checksums = {name: hashlib.blake2b(data, digest_size=16).hexdigest() for name, data in content.items()}
        content[MANIFEST] = json.dumps(
            {"schema": SCHEMA, "run": self.run, "data": self.data, "step": step, "checksums": checksums}, indent=1
        ).encode()
        target = self.folder / f"step-{step:012d}"
        part = self.folder / f".part-{step:012d}"
        files.refuse_link(self.folder)
        files.remove_tree(part)
        try:
            for name, data in content.items():
                files.write_bytes(part / name, data)
            # Read it back before it counts: a disk may fail without reporting an error.
            for name, data in content.items():
                if (part / name).read_bytes() != data:
                    raise CheckpointError(f"{part / name} does not read back as it was written. Check the disk.")
            files.replace_folder(part, target)
        finally:
            files.remove_tree(part)
        self.tidy(step)
        return target

    def tidy(self, step: int) -> None:
        """Remove what the new checkpoint makes useless: the oldest, and what a killed process left half written.

        Checkpoints of later steps can only be damaged ones that were skipped; if kept, they would push out good ones.
        """
        later = [path for path in self.folders() if int(path.name[5:]) > step]
        old = [path for path in self.folders() if path not in later][self.keep :]
        for path in (*later, *old, *self.folder.glob(".part-*"), *self.folder.glob(".old-*")):
            files.remove_tree(path)

    def load(self) -> tuple[int, dict[str, Any]] | None:
        """Step and state of the newest readable checkpoint; None without checkpoints. Damaged ones give a warning."""
        damaged = []
        for path in self.folders():
            try:
                return read(path, self.run, self.data)
            except CheckpointError as error:
                damaged.append(str(error))
                warnings.warn(f"{error} Falling back to the one before it.", stacklevel=2)
        if damaged:
            raise CheckpointError(
                f"No checkpoint in {self.folder} can be read: {' '.join(damaged)} Nothing was changed. "
                "To start this run over, add --fresh."
            )
        return None


def verify(path: Path, run: str, data: str = "") -> dict[str, bytes]:
    """The files of a checkpoint, if all of them exist, belong to this run, and are as they were written.

    ``data`` is the fingerprint of the images; it is not compared where it is not known or was not recorded.
    """
    try:
        files.refuse_link(path)
        manifest = parse_json(files.read_bytes(path / MANIFEST, LIMITS[MANIFEST]))
        schema, owner, checksums = manifest["schema"], manifest["run"], manifest["checksums"]
        made_from = str(manifest.get("data", ""))
        wanted = {name: checksums[name] for name in PARTS}
        if int(manifest["step"]) != int(path.name.rpartition("-")[2]):
            raise ValueError("the checkpoint of another step")
    except OSError as error:
        raise CheckpointError(f"Checkpoint {path} has no readable {MANIFEST} ({error.strerror}).") from None
    except (ValueError, LookupError, TypeError):
        raise CheckpointError(f"Checkpoint file {path / MANIFEST} is damaged.") from None
    if schema != SCHEMA:
        raise CheckpointError(f"Checkpoint {path} has schema {shown(schema, 20)}; this version reads {SCHEMA}.")
    if owner != run:
        raise CheckpointError(f"Checkpoint {path} belongs to another run ({shown(owner, 40)}, not {run}).")
    if data and made_from and made_from != data:
        raise CheckpointError(f"Checkpoint {path} was made from other images than those of the data set now.")
    content = {}
    for name, checksum in wanted.items():
        try:
            content[name] = files.read_bytes(path / name, LIMITS[name])
        except OSError as error:
            raise CheckpointError(f"Checkpoint file {path / name} cannot be read ({error.strerror}).") from None
        if hashlib.blake2b(content[name], digest_size=16).hexdigest() != checksum:
            raise CheckpointError(f"Checkpoint file {path / name} is damaged (its checksum differs).")
    return content


def read(path: Path, run: str, data: str = "") -> tuple[int, dict[str, Any]]:
    """Step and state of a checkpoint; arguments as for :func:`verify`."""
    from safetensors.torch import load

    content = verify(path, run, data)
    try:
        state = restore(parse_json(content["state.json"]), load(content["tensors.safetensors"]))
    except Exception as error:  # checksums agree, so this file is foreign or forged: report it, do not crash
        raise CheckpointError(f"Checkpoint {path} cannot be understood ({shorten(str(error), 120)}).") from None
    return int(path.name[5:]), state


def clone_state(state: Any) -> Any:
    """A deep copy of a nested state."""
    tensors: dict[str, Tensor] = {}
    content = flatten(state, tensors)
    return restore(content, {name: torch.clone(value) for name, value in tensors.items()})
