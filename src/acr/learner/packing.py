"""What a classifier knows as JSON and tensors, and back: nothing in it is code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt
from torch import Tensor, nn

from acr._version import __version__
from acr.config import ADDED_LATER
from acr.learner.knowledge import STREAM, Knowledge, Visit, method_of
from acr.learner.labels import Labels, from_json, to_json
from acr.runs.resolve import make_config
from acr.training.building import Pictures
from acr.training.checkpoint import flatten, restore

if TYPE_CHECKING:
    from acr.learner.classifier import ContinualClassifier

SCHEMA = 1
"""Version of the content; a later one is refused."""
SEEN = "seen"
"""Name of the tensor with the checksums of all images that were given."""
NOT_SAVED = ("quiet", "out", "data_root", "data_cache", "threads", "weights", "weights_digest", "dataset")
"""Fields of the config that say where and how it is run; they are chosen anew when it is loaded."""
DIGEST = 16
"""Bytes of the checksum of an image, and of a file."""


Side = Annotated[int, Field(ge=1, le=1024)]


class ModelFile(BaseModel):
    """The content of ``model.json``."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    schema_: int = Field(alias="schema")
    kind: str
    version: str
    """Version of this package that wrote it."""
    revision: int
    """Revision of the method that taught it."""
    parameters: dict[str, Any]
    """Of the classifier, as given; a function is given by its name."""
    config: dict[str, Any]
    labels: list[Any]
    tasks: list[list[NonNegativeInt]]
    image_shape: tuple[Side, Side, Side]
    mean: list[float]
    std: list[float]
    flip: bool
    threads: int = Field(ge=1, le=1024)
    history: list[dict[str, Any]]
    origins: dict[str, list[str]]
    tensors: str
    """Name of the file of tensors; it holds the file's checksum."""
    state: Any
    """The tree of the method's state (see :func:`acr.training.checkpoint.flatten`)."""


KIND = "acr-classifier"


def packed(classifier: ContinualClassifier) -> tuple[dict[str, Any], bytes]:
    """The content of ``model.json`` and of the file of tensors."""
    from safetensors.torch import save as to_bytes

    known = classifier._needed()
    tensors: dict[str, Tensor] = {}
    state = flatten(known.method.state_dict(), tensors, "state")
    seen = np.frombuffer(bytes.fromhex("".join(sorted(known.seen))), np.uint8).reshape(-1, DIGEST)
    tensors[SEEN] = torch.from_numpy(seen.copy())
    data = to_bytes(tensors)
    config = {name: value for name, value in known.config.flat().items() if name not in NOT_SAVED}
    pictures = known.pictures
    content = {
        "schema": SCHEMA,
        "kind": KIND,
        "version": __version__,
        "revision": known.config.options.revision,
        "parameters": {
            **{name: _plain(value) for name, value in classifier.get_params(deep=False).items()},
            "network": known.config.network,
        },
        "config": config,
        "labels": [to_json(label) for label in known.labels.values],
        "tasks": [list(task) for task in known.tasks],
        "image_shape": list(pictures.image_shape),
        "mean": list(pictures.mean),
        "std": list(pictures.std),
        "flip": pictures.flip,
        "threads": known.threads,
        "history": [visit.as_dict() for visit in known.history],
        "origins": {digest: list(names) for digest, names in known.origins.items()},
        "tensors": f"tensors-{hashlib.blake2b(data, digest_size=DIGEST).hexdigest()}.safetensors",
        "state": state,
    }
    return content, data


def unpacked(
    content: Mapping[str, Any] | ModelFile,
    tensors: bytes | dict[str, Tensor],
    *,
    device: str = "auto",
    network: str | Callable[..., nn.Module] | None = None,
) -> Knowledge:
    """The inverse of :func:`packed`: what the classifier knows.

    ``network`` is the function that makes the encoder, if it is the user's own; ``device`` is where it computes.
    """
    from safetensors.torch import load as from_bytes

    model = content if isinstance(content, ModelFile) else ModelFile.model_validate(content)
    tensors = dict(tensors) if isinstance(tensors, dict) else from_bytes(tensors)
    # Fields that its version did not have mean what was done without them, whatever the method's default is now.
    values = {**ADDED_LATER, **model.config, "device": device, "dataset": STREAM, "quiet": True}
    if network is not None:
        values["network"] = network
    config = make_config(values)
    labels = Labels(from_json(label) for label in model.labels)
    pictures = Pictures(model.image_shape, tuple(model.mean), tuple(model.std), model.flip)
    seen = tensors.pop(SEEN).numpy()
    return Knowledge(
        config=config,
        labels=labels,
        tasks=tuple(tuple(task) for task in model.tasks),
        pictures=pictures,
        method=method_of(config, pictures, len(labels), restore(model.state, tensors)),
        threads=model.threads,
        history=tuple(Visit(**visit) for visit in model.history),
        origins={digest: tuple(names) for digest, names in model.origins.items()},
        seen=frozenset(row.tobytes().hex() for row in seen),
    )


def _plain(value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else None if callable(value) else value
