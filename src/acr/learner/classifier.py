"""ContinualClassifier: teach it classes as they arrive, ask it at any time, save it, teach it more months later.

    model = acr.ContinualClassifier()
    model.partial_fit(photos_of_cats_and_dogs, labels)      # the first visit
    model.partial_fit(photos_of_birds, labels)              # later: a new class; cats and dogs are not forgotten
    model.predict(["new.jpg"])
    model.save("pets")

It follows the conventions of scikit-learn's classifiers, with images in place of the rows of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from torch import nn

from acr.config import Precision, RunConfig
from acr.learner.images import Batch, read_images
from acr.learner.knowledge import Knowledge
from acr.learner.labels import Labels, check_one_each, to_labels
from acr.learner.learning import taught
from acr.learner.memory import MemoryView
from acr.learner.scores import in_parts, right_under_shift, scores
from acr.learner.visit import Rows
from acr.shift.suite import ShiftSpec
from acr.training.devices import find_device
from acr.training.torch_settings import torch_settings
from acr.values import RESNET18


class ContinualClassifier(ClassifierMixin, TransformerMixin, BaseEstimator):
    """A classifier of images that keeps learning new classes without forgetting the old ones.

    Every call of :meth:`partial_fit` is one visit: images of new classes, more images of old ones, or both.

    Args:
        method: how it learns; ``acr methods`` lists all. Not ``joint``, which needs all classes at once.
        buffer_size: number of places in its memory, each as large as an image; at least one per class.
        network: ``resnet18``, or a function that makes an encoder (see ``docs/extending.md``).
        width: channels of the encoder's first stage; 64 is the usual ResNet-18. Smaller is faster and less accurate.
        epochs: passes over the images of a visit.
        learning_rate: of SGD.
        image_size: side to which images are resized, in pixels.
        seed: of everything random. The same calls with the same seed give the same classifier on the same machine.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``.
        batch_size: new images per training step.
        replay_size: images from the memory per training step.
        options: further options of the method, such as ``{"temperature": 0.1}``.
        stem: ``cifar``, or ``imagenet`` for images of 64 pixels and more.
        weights: file (safetensors) with weights of the encoder to start from.
        flip: whether training may mirror images; not for digits, text or anything else that has a left and a right.
        validation_fraction: share of each visit's images that is not learned from but decides when to stop early;
            0: all epochs are used.
        patience: epochs without a better accuracy on these images after which a visit ends, at its best epoch.
        average_weights: answer with weights averaged over the steps: half-life of a step's share in steps (``"300"``),
            or in shares of a visit's steps (``"0.2t"``); ``"auto"``, a share that grows with the number of visits; or
            ``"off"``; by default what the method uses.
        images_per_place: images that share a place of the memory, compressed: 1 to 16, or ``"auto"``, 8 for colour
            images of 32 pixels and more; by default what the method uses.
        precision: ``32``, ``bf16-mixed`` or ``16-mixed``.
        threads: CPU threads; by default what a short measurement at the first visit finds faster.
        verbose: whether to show progress; by default in a terminal and in a notebook.

    Attributes (after the first visit):
        classes_: the labels learned so far, in the order of the outputs: sorted within a visit, visit after visit.
        memory_: the stored images with their labels and files.
        history_: one entry per visit: images, new classes, epochs, seconds, accuracy on held-out images.
        n_visits_: number of visits.
        mean_, std_: of each channel of the first visit's images; all images are normalised by these.
    """

    def __init__(
        self,
        method: str = "acr",
        buffer_size: int = 500,
        network: str | Callable[..., nn.Module] = RESNET18,
        width: int = 64,
        epochs: int = 50,
        learning_rate: float = 0.1,
        image_size: int = 32,
        seed: int = 0,
        device: str = "auto",
        *,
        batch_size: int = 32,
        replay_size: int = 32,
        options: Mapping[str, Any] | None = None,
        stem: Literal["cifar", "imagenet"] = "cifar",
        weights: str | Path | None = None,
        flip: bool = True,
        validation_fraction: float = 0.0,
        patience: int = 5,
        average_weights: str | float | None = None,
        images_per_place: int | Literal["auto"] | None = None,
        precision: Precision = "32",
        threads: int | None = None,
        verbose: bool | None = None,
    ) -> None:
        self.method = method
        self.buffer_size = buffer_size
        self.network = network
        self.width = width
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.image_size = image_size
        self.seed = seed
        self.device = device
        self.batch_size = batch_size
        self.replay_size = replay_size
        self.options = options
        self.stem = stem
        self.weights = weights
        self.flip = flip
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.average_weights = average_weights
        self.images_per_place = images_per_place
        self.precision = precision
        self.threads = threads
        self.verbose = verbose

    # --- learning --------------------------------------------------------------------------------------------------

    def fit(self, images: Any, labels: Any) -> ContinualClassifier:
        """Forget everything, then learn these images as the first visit; arguments as for :meth:`partial_fit`."""
        self._knowledge = taught(self, None, images, labels)
        return self

    def partial_fit(self, images: Any, labels: Any, classes: Iterable[Hashable] | None = None) -> ContinualClassifier:
        """Learn the images of one visit. If it fails or is interrupted, the classifier is what it was before.

        Args:
            images: an array or tensor (uint8, or floats in 0..1; N x H x W, N x H x W x C or N x C x H x W), or a list
                of paths, Pillow images, arrays or tensors; of any size.
            labels: one per image, of any hashable type. New classes may come at any time, old ones may come again.
            classes: all labels that may come; others are then refused. Not needed: scikit-learn's classifiers have it.
        """
        if classes is not None:
            allowed = Labels(to_labels(list(classes)))
            allowed.columns(to_labels(labels))
        self._knowledge = taught(self, self._known(), images, labels)
        return self

    # --- answering -------------------------------------------------------------------------------------------------

    def predict(self, images: Any) -> npt.NDArray[Any]:
        """The most probable label of each image."""
        return self.classes_[self._score_table(images).argmax(1)]

    def predict_proba(self, images: Any) -> npt.NDArray[np.float64]:
        """The probability of every class, N x K, in the order of ``classes_``."""
        scores = self._score_table(images)
        powers = np.exp(scores - scores.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)

    def decision_function(self, images: Any) -> npt.NDArray[np.float64]:
        """The score of every class, N x K, in the order of ``classes_``; their softmax are the probabilities.

        As in scikit-learn, two classes have one score per image: that of the second less that of the first.
        """
        scores = self._score_table(images)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _score_table(self, images: Any) -> npt.NDArray[np.float64]:
        """The score of every class, N x K, however many there are."""
        known = self._needed()
        batch = self._read(known, images)
        with self._settings(known, known.config):
            return scores(known.method, batch.images)

    def transform(self, images: Any) -> npt.NDArray[np.float32]:
        """The embedding of every image, N x features: what the encoder makes of it."""
        known = self._needed()
        batch = self._read(known, images)
        with self._settings(known, known.config):
            return in_parts(known.method, known.method.embed, batch.images).numpy()

    def score(self, images: Any, labels: Any, sample_weight: Any = None) -> float:
        """Accuracy: the share of the images whose label is predicted. A label that was never learned is an error."""
        known = self._needed()
        answers = known.labels.columns(to_labels(labels))
        table = self._score_table(images)
        check_one_each(len(table), len(answers))
        return float(np.average(table.argmax(1) == answers, weights=sample_weight))

    def evaluate_shift(
        self,
        images: Any,
        labels: Any,
        corruptions: Sequence[str] | None = None,
        severities: Sequence[int] = (1,),
        constants: Literal["imagenet-c", "cifar-c"] = "imagenet-c",
    ) -> dict[str, float]:
        """Accuracy on the images as they are and under noise, blur, fog and the like.

        Args:
            images: as for :meth:`predict`.
            labels: one per image.
            corruptions: names from ``acr.shift.CORRUPTIONS``; by default the eleven of the paper.
            severities: from 1 to 5.
            constants: how strong a severity is.

        Returns accuracies: ``clean``, ``shifted`` (the mean over all corruptions and severities), and one per
        ``corruption/severity``. What is drawn for an image depends on its place among the images, so that the same
        images are corrupted in the same way at every call.
        """
        known = self._needed()
        answers = known.labels.columns(to_labels(labels))
        batch = self._read(known, images)
        check_one_each(len(batch), len(answers))
        spec = ShiftSpec.make(None if corruptions is None else tuple(corruptions), tuple(severities), constants)
        with self._settings(known, known.config):
            clean = float((scores(known.method, batch.images).argmax(1) == answers).mean())
        shifted = {name: float(row.mean()) for name, row in self._right_under_shift(batch, answers, spec).items()}
        return {"clean": clean, "shifted": float(np.mean(list(shifted.values()))), **shifted}

    def _right_under_shift(
        self, batch: Batch, answers: Rows, spec: ShiftSpec, places: Sequence[int] | None = None
    ) -> dict[str, npt.NDArray[np.bool_]]:
        """Whether each image is answered rightly under each corruption; see :func:`right_under_shift`."""
        known = self._needed()
        with self._settings(known, known.config):
            return right_under_shift(known.method, batch.images, answers, spec, places)

    # --- what it knows ---------------------------------------------------------------------------------------------

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The labels learned so far, in the order of the outputs."""
        return self._needed().labels.array()

    @property
    def n_visits_(self) -> int:
        """Number of visits."""
        return len(self._needed().history)

    @property
    def history_(self) -> list[dict[str, Any]]:
        """One entry per visit."""
        return [visit.as_dict() for visit in self._needed().history]

    @property
    def mean_(self) -> npt.NDArray[np.float64]:
        """Mean of each channel of the first visit's images, on the scale 0..1."""
        return np.array(self._needed().pictures.mean)

    @property
    def std_(self) -> npt.NDArray[np.float64]:
        """Standard deviation of each channel of the first visit's images, on the scale 0..1."""
        return np.array(self._needed().pictures.std)

    @property
    def memory_(self) -> MemoryView:
        """The stored images, their labels, visits and files (a copy)."""
        return self._needed().memory_view()

    def drop_from_memory(
        self,
        indices: Iterable[int] | None = None,
        labels: Iterable[Hashable] | None = None,
        files: Iterable[str | Path] | None = None,
    ) -> int:
        """Delete stored images: by their position in ``memory_``, their label or the file they were read from.

        Returns how many were deleted. Their checksums and file names are deleted, too; saving then writes a folder in
        which nothing of them is left. What the weights have learned from an image stays learned, and nothing holds on
        to a class any more once none of its images is stored.
        """
        known = self._needed()
        view = self.memory_
        gone = view.find(indices, labels, [str(Path(f).absolute()) for f in files] if files else None)
        if gone:
            self._knowledge = known.without(gone)
        return len(view) - len(self.memory_)  # more than were named, if copies of them were stored

    def has_learned(self, images: Any) -> npt.NDArray[np.bool_]:
        """Whether each image, pixel by pixel, was part of an earlier visit.

        With several images in a place of the memory, images of which compression leaves the same count as the same one.
        """
        known = self._known()
        if known is None:
            return np.zeros(len(images), dtype=bool)
        digests = self._read(known, images).digests(known.method.context.codec)
        return np.array([digest in known.seen for digest in digests], dtype=bool)

    # --- saving ----------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the classifier into a folder, from which :meth:`load` restores it exactly; returns the folder.

        A save that is interrupted leaves the last one intact. A folder that holds another classifier, or a newer state
        of this one that another process has saved, is refused unless ``overwrite``.
        """
        from acr.learner.saving import save

        self._saved = save(self, Path(folder), overwrite=overwrite)
        return Path(folder)

    @classmethod
    def load(
        cls, folder: str | Path, *, device: str = "auto", network: str | Callable[..., nn.Module] | None = None
    ) -> ContinualClassifier:
        """The classifier in a folder that :meth:`save` wrote.

        Args:
            folder: the folder.
            device: where it computes from now on.
            network: the function that makes its encoder, for a classifier with an encoder of one's own. A folder never
                decides which code is run.
        """
        from acr.learner.saving import load

        return load(Path(folder), device=device, network=network)

    def export(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the network with its normalisation and class names for use without this package.

        ``path`` ends in ``.onnx`` (ONNX) or ``.pt2`` (``torch.export``). The file is checked against this classifier
        before it is kept.
        """
        from acr.learner.exporting import export

        return export(self, Path(path), overwrite=overwrite)

    # --- inside ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _settings(self, known: Knowledge | None, config: RunConfig) -> Iterator[None]:
        """PyTorch as this classifier uses it: its number of threads, deterministic on a CPU."""
        threads = self.threads or (None if known is None else known.threads)
        with torch_settings(find_device(config.device), threads, None):
            yield

    def _read(self, known: Knowledge, images: Any) -> Batch:
        """Images to answer for, as those that it has learned from."""
        channels, size, _ = known.pictures.image_shape
        return read_images(images, size, channels)

    def _known(self) -> Knowledge | None:
        known = getattr(self, "_knowledge", None)
        assert known is None or isinstance(known, Knowledge)
        return known

    def _needed(self) -> Knowledge:
        """What it knows; an error if it has not learned anything."""
        known = self._known()
        if known is None:
            raise NotFittedError(
                f"This {type(self).__name__} has not learned anything yet: call partial_fit(images, labels) first."
            )
        return known

    def __getstate__(self) -> dict[str, Any]:
        """For copies, and for processes that work together; :meth:`save` is for keeping."""
        from acr.learner.packing import packed

        state = {name: value for name, value in super().__getstate__().items() if name != "_knowledge"}
        return state if self._known() is None else {**state, "_packed": packed(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        from acr.learner.packing import unpacked

        content = state.pop("_packed", None)
        super().__setstate__(state)
        if content is not None:
            self._knowledge = unpacked(*content, device=self.device, network=self.network)

    def __sklearn_is_fitted__(self) -> bool:
        return self._known() is not None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags
