"""What a classifier knows: never changed, only replaced by what it knows after one more visit."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from acr.config import RunConfig
from acr.data.fingerprint import image_digests
from acr.learner.labels import Labels, as_array
from acr.learner.memory import MemoryView, Origins
from acr.learner.visit import Learned
from acr.methods.method import Method, method_class
from acr.training.building import Pictures, build_method

STREAM = "folder:visits"
"""What a classifier's config calls the data: images of a user's own, which come in visits."""
INHERITED = ("momentum", "weight_decay", "lr_milestones", "lr_decay", "protocol", "quirk", "no_quirk", "tf32")
"""Fields of a config that the classifier has no parameter for; one made from a run keeps those of the run."""


@dataclass(frozen=True)
class Visit:
    """What is remembered about one visit."""

    images: int | None
    """Number of images learned from; None where it was not recorded."""
    held_out: int
    """Number of images held out for early stopping."""
    classes: int
    """Number of classes in the visit."""
    new_classes: int
    """Number of those that were new."""
    epochs: int
    seconds: float | None
    loss: float | None
    held_out_accuracy: float | None

    @classmethod
    def of(cls, labels: Sequence[Hashable], known: Labels, learned: Learned, used: npt.NDArray[np.int64]) -> Visit:
        """From what was given, what was known before, what came of it, and the positions that were learned from."""
        counts = Counter(labels)
        return cls(
            images=len(used),
            held_out=len(labels) - len(used),
            classes=len(counts),
            new_classes=sum(label not in known for label in counts),
            epochs=learned.epochs,
            seconds=round(learned.seconds, 3),
            loss=learned.loss,
            held_out_accuracy=learned.held_out,
        )

    def as_dict(self) -> dict[str, Any]:
        """All fields by name."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Everything that a classifier has learned, and what it needs to learn more."""

    config: RunConfig
    labels: Labels
    tasks: tuple[tuple[int, ...], ...]
    """Outputs of the classes of every visit."""
    pictures: Pictures
    method: Method
    threads: int
    history: tuple[Visit, ...]
    origins: Origins
    """Files of the stored images."""
    seen: frozenset[str]
    """Checksums of all images that were given."""

    @property
    def inherited(self) -> dict[str, Any]:
        """Values of the config that the classifier has no parameter for."""
        return {name: getattr(self.config, name) for name in INHERITED}

    def memory_view(self) -> MemoryView:
        """The stored images, as people see them."""
        memory = self.method.memory()
        if not memory:
            shape = self.pictures.image_shape
            empty = np.zeros(0, np.int64)
            return MemoryView(np.zeros((0, *shape), np.uint8), as_array([]), empty, ())
        images = memory["images"].cpu().numpy().copy()
        labels = as_array([self.labels.values[column] for column in memory["labels"].tolist()])
        files = tuple(self.origins.get(row.tobytes().hex(), ()) for row in image_digests(images))
        return MemoryView(images, labels, memory["tasks"].cpu().numpy().copy(), files)

    def without(self, rows: Sequence[int]) -> Knowledge:
        """The same without these images of the memory, and without any trace of their files."""
        view = self.memory_view()
        digests = [row.tobytes().hex() for row in image_digests(view.images)]
        gone = {digests[row] for row in rows}
        # Copies of a deleted image are that image.
        kept = [row for row, digest in enumerate(digests) if digest not in gone]
        method = self.copy_of_method()
        method.keep_in_memory(torch.tensor(kept, dtype=torch.int64))
        return replace(
            self,
            method=method,
            origins={digest: files for digest, files in self.origins.items() if digest not in gone},
            seen=self.seen - gone,
        )

    def copy_of_method(self) -> Method:
        """Another method with the same state."""
        return method_of(self.config, self.pictures, len(self.labels), self.method.state_dict())


def method_of(config: RunConfig, pictures: Pictures, classes: int, state: Mapping[str, Any]) -> Method:
    """A method with a saved state."""
    config = config.model_copy(update={"weights": None, "weights_digest": None})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what there is to say was said when it was taught
        method = build_method(config, method_class(config.method), pictures, classes)
    method.load_state_dict(dict(state))
    return method
