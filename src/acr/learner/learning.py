"""From what a classifier knows to what it knows after one more visit."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from acr.config import RunConfig
from acr.data.images import ImageSet
from acr.errors import AcrError, InputError, is_out_of_memory
from acr.learner.growth import load_grown
from acr.learner.images import Batch, read_images
from acr.learner.knowledge import STREAM, Knowledge, Visit
from acr.learner.labels import Labels, check_can_be_saved, check_one_each, to_labels
from acr.learner.memory import origins_of
from acr.learner.scores import scores, stored
from acr.learner.visit import EarlyStop, Learned, Rows, hold_out, learn
from acr.methods.method import Method, method_class
from acr.runs.resolve import make_config
from acr.storage.progress import watched
from acr.training.building import Pictures, build_method, per_place
from acr.training.devices import check_precision, find_device
from acr.training.threads import measured_threads
from acr.values import AUTO

if TYPE_CHECKING:
    from acr.learner.classifier import ContinualClassifier

KEPT = ("average_weights", "images_per_place")
"""Parameters that mean what the method uses if they are None; later, what it was when the classifier began to learn."""
FIXED = ("method", "network", "width", "stem", "image_size", "seed", "average_weights", "images_per_place")
"""Parameters that cannot be changed once something has been learned."""


def taught(classifier: ContinualClassifier, before: Knowledge | None, images: Any, labels: Any) -> Knowledge:
    """What a classifier knows after one more visit; nothing of what it knew ``before`` is changed."""
    given = to_labels(labels)
    batch = read_images(images, classifier.image_size, None if before is None else before.pictures.image_shape[0])
    check_one_each(len(batch), len(given))
    if not given:
        raise InputError("There is no image to learn from.")
    known = Labels() if before is None else before.labels
    all_labels = known.with_new(given)
    pictures = _pictures(classifier, batch) if before is None else before.pictures
    config = _resolved(config_of(classifier, before), pictures)
    _check(classifier, config, before, all_labels)
    columns = all_labels.columns(given)
    with classifier._settings(before, config):
        method = build_method(config, method_class(config.method), pictures, len(all_labels))
        if before is not None:
            load_grown(method, before.method.state_dict(), len(before.labels))
        digests = batch.digests(method.context.codec)
        threads = _threads(classifier, before, method, config)
        torch.set_num_threads(threads)
        learned, used = _learn(classifier, method, before, batch, columns, config)
    visit = Visit.of(given, known, learned, used)
    return Knowledge(
        config=config,
        labels=all_labels,
        tasks=(*(before.tasks if before else ()), tuple(sorted(set(columns[used].tolist())))),
        pictures=pictures,
        method=method,
        threads=threads,
        history=(*(before.history if before else ()), visit),
        origins=origins_of(stored(method), before.origins if before else {}, zip(digests, batch.files, strict=True)),
        seen=frozenset(digests) | (before.seen if before else frozenset()),
    )


def _learn(
    classifier: ContinualClassifier,
    method: Method,
    before: Knowledge | None,
    batch: Batch,
    columns: Rows,
    config: RunConfig,
) -> tuple[Learned, Rows]:
    """Train the method on a visit; returns what came of it and the positions of the images it learned from."""
    earlier = before.tasks if before else ()
    used, stop = np.arange(len(columns)), None
    if classifier.validation_fraction > 0:
        used, held = hold_out(columns, classifier.validation_fraction, config.seed, len(earlier))
        images, answers = batch.images[held], columns[held]
        if len(held):
            stop = EarlyStop(lambda m: float((scores(m, images).argmax(1) == answers).mean()), classifier.patience)
    try:
        learned = learn(method, ImageSet(batch.images[used], columns[used]), earlier, config, stop)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise AcrError(
            "Out of memory. The classifier is as it was before this call. Try a smaller width, batch_size, "
            "replay_size or image_size, or end other programs."
        ) from error
    return learned, used


def config_of(classifier: ContinualClassifier, before: Knowledge | None) -> RunConfig:
    """The parameters of a classifier as a complete config of a run; each wrong value is reported in one sentence."""
    given = classifier.get_params(deep=False)
    options = dict(given.pop("options") or {})
    verbose, _ = given.pop("verbose"), [given.pop(name) for name in ("flip", "validation_fraction", "patience")]
    if not 0 <= classifier.validation_fraction < 1:
        raise InputError(f"validation_fraction must be at least 0 and below 1; got {classifier.validation_fraction}.")
    if classifier.patience < 1:
        raise InputError(f"patience must be 1 or more; got {classifier.patience}.")
    for name in KEPT:
        if given[name] is None:  # then it is the method's, or what it was
            del given[name]
            given |= {} if before is None else {name: getattr(before.config, name)}
    if before is not None:
        # Weights to start from have served their purpose, and their file may be gone.
        given["weights"] = None
        given = {**before.inherited, **given}
        if given["method"] == before.config.method:  # whatever the method's default is by now
            options = {**before.config.options.model_dump(include={"policy"}), **options}
    config = make_config(
        {"dataset": STREAM, **options, **given, "quiet": not (watched() if verbose is None else verbose)}
    )
    if before is not None:
        began: dict[str, tuple[object, object]] = {"flip": (before.pictures.flip, classifier.flip)}
        config = _resolved(config, before.pictures)
        began |= {name: (getattr(before.config, name), getattr(config, name)) for name in FIXED}
        policies = [one.options.model_dump(include={"policy"}).get("policy") for one in (before.config, config)]
        began["policy"] = (policies[0], policies[1])
        for name, (was, wanted) in began.items():
            if was != wanted:
                raise InputError(
                    f"{name} was {was!r} when the classifier began to learn and cannot be changed to {wanted!r}. "
                    "Make a new classifier for that."
                )
    return config


def _resolved(config: RunConfig, pictures: Pictures) -> RunConfig:
    """A config that names how many images share a place, so that a classifier does not depend on what a rule says."""
    return config.model_copy(update={"images_per_place": per_place(config, pictures.image_shape)})


def _check(classifier: ContinualClassifier, config: RunConfig, before: Knowledge | None, labels: Labels) -> None:
    """Refuse before training what cannot work."""
    cls = method_class(config.method)
    if cls.sees_all_tasks:
        raise InputError(
            f"method={config.method!r} needs all classes at once, so it cannot learn visit by visit. "
            "Use another method, such as 'acr' or 'er'."
        )
    if config.weights is not None and config.method == "gdumb":
        raise InputError(
            "method='gdumb' fits a new network after every visit, so it cannot start from weights that may be gone "
            "by then. Use another method, or leave out weights."
        )
    number = config.images_per_place
    assert number != AUTO
    if cls.uses_memory and config.buffer_size * number < len(labels):
        images = "" if number == 1 else f" with room for {config.buffer_size * number} images"
        raise InputError(
            f"The memory has {config.buffer_size} places{images}, but there would be {len(labels)} classes, and each "
            f"needs at least one: set buffer_size to {-(-len(labels) // number)} or more, better 20 per class "
            f"({-(-20 * len(labels) // number)})."
        )
    held = 0 if before is None else len(before.method.memory_as_stored().get("labels", ()))
    if before is not None and config.buffer_size * number < held:
        raise InputError(
            f"The memory holds {held} images already, more than a buffer_size of {config.buffer_size} allows. "
            "Delete some first (drop_from_memory), or keep the larger size."
        )
    if classifier.validation_fraction and cls.uses_last_epochs:
        raise InputError(
            f"method={config.method!r} needs the last epochs of a visit, so it cannot be stopped early: set "
            "validation_fraction to 0."
        )
    if config.precision not in cls.precisions:
        raise InputError(
            f"precision={config.precision!r}: {config.method} runs only with {' or '.join(cls.precisions)}."
        )
    check_precision(config.precision, find_device(config.device))
    problem = check_can_be_saved(labels.values)
    if problem:
        warnings.warn(f"{problem} Learning goes on, but save() will refuse this classifier.", stacklevel=4)


def _pictures(classifier: ContinualClassifier, batch: Batch) -> Pictures:
    """What the first visit's images say about all images."""
    channels = batch.images.shape[1]
    mean, std = ImageSet(batch.images, np.zeros(len(batch), np.int64)).statistics()
    # A channel that is the same everywhere tells nothing; dividing by its deviation would tell less.
    std = tuple(value if value > 1e-6 else 1.0 for value in std)
    return Pictures((channels, classifier.image_size, classifier.image_size), mean, std, classifier.flip)


def _threads(classifier: ContinualClassifier, before: Knowledge | None, method: Method, config: RunConfig) -> int:
    """The number of CPU threads: as given, or as before, or by measurement."""
    if classifier.threads is not None:
        return classifier.threads
    return measured_threads(config, method).threads if before is None else before.threads
