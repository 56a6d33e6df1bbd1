"""A classifier in a folder: saved whole or not at all, read without running any code from it.

The folder holds ``model.json`` (parameters, labels, history, and the tree of the state) and one file
``tensors-CHECKSUM.safetensors``, which ``model.json`` names. The tensors are written first, under a name that nobody
uses yet; the model changes at the moment ``model.json`` is replaced, and only then is the former file of tensors
removed. So whenever a save is interrupted, the folder holds the model before it or the model after it.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError
from torch import Tensor, nn

from acr._version import __version__
from acr.errors import AcrError, InputError, shown
from acr.learner.learning import config_of
from acr.learner.packing import DIGEST, KIND, SCHEMA, ModelFile, packed, unpacked
from acr.runs import limits
from acr.runs.reading import parse_json
from acr.storage import files
from acr.storage.locks import exclusive
from acr.training.devices import find_device
from acr.values import RESNET18

if TYPE_CHECKING:
    from acr.learner.classifier import ContinualClassifier

MODEL = "model.json"
LOCK = ".lock"
"""Held while the folder is written."""
TEACHING = ".teaching"
"""Lock of a command that loads, changes and saves the classifier: held from the first to the last."""
TENSORS = re.compile(r"tensors-[0-9a-f]{32}\.safetensors", re.ASCII)


@dataclass(frozen=True)
class Saved:
    """Which state of which folder a classifier was loaded from, or last saved as."""

    folder: Path
    digest: str


def save(classifier: ContinualClassifier, folder: Path, *, overwrite: bool = False) -> Saved:
    """Write a classifier; arguments as for :meth:`acr.ContinualClassifier.save`."""
    content, tensors = packed(classifier)
    try:
        with _locked(folder) as alone:
            before = _digest_of(folder)
            _check_replaceable(classifier, folder, before, overwrite)
            former = _tensors_of(folder)
            files.write_bytes(folder / content["tensors"], tensors)
            text = json.dumps(content, allow_nan=False, indent=1).encode()
            files.write_bytes(folder / MODEL, text)
            _tidy(folder, content["tensors"], former, alone)
    except OSError as error:
        raise AcrError(
            f"Saving to {error.filename or folder} failed: {error.strerror or error}. What was saved there before is "
            "still there."
        ) from error
    return Saved(folder.absolute(), hashlib.blake2b(text, digest_size=DIGEST).hexdigest())


def load(
    folder: Path, *, device: str = "auto", network: str | Callable[..., nn.Module] | None = None
) -> ContinualClassifier:
    """Read a classifier; arguments as for :meth:`acr.ContinualClassifier.load`."""
    find_device(device)  # what is wrong with the device is not said to be wrong with the folder
    text, model = _read_model(folder)
    made_by = model.config.get("network", RESNET18)
    if made_by != RESNET18 and network is None:
        raise InputError(
            f"The encoder of the classifier in {folder} is made by {shown(made_by)}, and loading it runs that code. "
            "If you trust it, name the function: load(folder, network=...)."
        )
    data = _read_tensors(folder, model)
    try:
        return _restored(folder, text, model, data, device, network)
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        # All the ways in which the state of another version, or a forged one, can fail to load.
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise InputError(f"The classifier in {folder} cannot be restored: {first}") from error


def _restored(
    folder: Path,
    text: bytes,
    model: ModelFile,
    tensors: dict[str, Tensor],
    device: str,
    network: str | Callable[..., nn.Module] | None,
) -> ContinualClassifier:
    """The classifier that the files describe."""
    from acr.learner.classifier import ContinualClassifier

    own = {} if network is None else {"network": network}
    classifier = ContinualClassifier(**{**model.parameters, "device": device, **own})
    classifier._knowledge = known = unpacked(model, tensors, device=device, network=network)
    classifier._saved = Saved(folder.absolute(), hashlib.blake2b(text, digest_size=DIGEST).hexdigest())
    config_of(classifier, known)  # parameters that it could not learn with are damage, too
    if known.config.options.revision != model.revision:
        warnings.warn(
            f"The classifier in {folder} was taught by version {model.version}, in which {known.config.method} worked "
            "differently. It answers as before; what it learns from now on, it learns as in this version.",
            stacklevel=4,
        )
    return classifier


def is_model(folder: Path) -> bool:
    """Whether a folder holds a saved classifier."""
    return (folder / MODEL).is_file()


def _read_model(folder: Path) -> tuple[bytes, ModelFile]:
    """``model.json``, validated."""
    if not folder.is_dir():
        raise InputError(f"{folder} does not exist, or is not a folder.")
    try:
        text = files.read_bytes(folder / MODEL, limits.JSON_BYTES)
    except FileNotFoundError:
        raise InputError(f"{folder} does not hold a classifier: it has no {MODEL}.") from None
    except OSError as error:
        raise InputError(f"Cannot read {folder / MODEL}: {error.strerror}.") from None
    try:
        content = parse_json(text)
        if not isinstance(content, Mapping) or content.get("kind") != KIND:
            raise InputError(f"{folder / MODEL} was not written by this program.")
        if content.get("schema") != SCHEMA:
            raise InputError(
                f"The classifier in {folder} was saved by version {shown(content.get('version'), 20)} of this program, "
                f"in a format (schema {shown(content.get('schema'), 20)}) that this version ({__version__}) does not "
                "read. Update this program."
            )
        return text, ModelFile.model_validate(content)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"][:2])
        raise InputError(f"{folder / MODEL} is damaged: {where} is missing or wrong.") from None
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{folder / MODEL} is damaged ({shown(str(error), 120)}).") from None


def _read_tensors(folder: Path, model: ModelFile) -> dict[str, Tensor]:
    """The tensors that ``model.json`` names, if they are as they were written."""
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    path = folder / model.tensors
    if not TENSORS.fullmatch(model.tensors):
        raise InputError(f"{folder / MODEL} is damaged: {shown(model.tensors)} is not a file of tensors.")
    try:
        data = files.read_bytes(path, limits.TENSORS_BYTES)
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}. The classifier is incomplete.") from None
    if hashlib.blake2b(data, digest_size=DIGEST).hexdigest() not in model.tensors:
        raise InputError(f"{path} is damaged: its checksum differs.")
    try:
        return from_bytes(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"{path} is damaged ({shown(str(error), 120)}).") from None


def _check_replaceable(classifier: ContinualClassifier, folder: Path, now: str, overwrite: bool) -> None:
    """Refuse to replace what this classifier does not come from."""
    if overwrite:
        return
    if not now:
        return check_vacant(folder)
    known: Saved | None = getattr(classifier, "_saved", None)
    if known is None or known.folder != folder.absolute():
        raise InputError(f"{folder} holds another classifier already. Choose another folder, or use overwrite=True.")
    if known.digest != now:
        raise InputError(
            f"The classifier in {folder} was changed by another program since it was loaded or saved here. Load it "
            "again and repeat what you did, or replace it with overwrite=True."
        )


def check_vacant(folder: Path) -> None:
    """Refuse a folder for a new classifier that holds something else."""
    if folder.is_dir() and any(path.name not in (LOCK, TEACHING) for path in folder.iterdir()):
        raise InputError(f"{folder} is not empty and holds no classifier; choose a folder of its own for it.")


def _digest_of(folder: Path) -> str:
    """The checksum of the ``model.json`` in a folder; empty without one."""
    try:
        return hashlib.blake2b(files.read_bytes(folder / MODEL, limits.JSON_BYTES), digest_size=DIGEST).hexdigest()
    except FileNotFoundError:
        return ""


def _tensors_of(folder: Path) -> str:
    """The file of tensors that a folder's model uses; empty if that cannot be read."""
    try:
        return _read_model(folder)[1].tensors
    except InputError:
        return ""


def _tidy(folder: Path, current: str, former: str, alone: bool) -> None:
    """Remove tensors that no model uses any more: deleted images must not survive in an old file.

    Without a lock another process may be writing one just now; then only the former model's are removed.
    """
    for path in folder.iterdir():
        ours = TENSORS.fullmatch(path.name) or (alone and path.name.endswith(".part"))
        if ours and path.name != current and (alone or path.name == former):
            path.unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold the folder's lock; yields whether it is really held."""
    files.refuse_link(folder)
    with exclusive(folder / LOCK) as alone:
        yield alone
