"""What is worth knowing before a run begins: conditions under which its figures mean less than they seem to.

None of these is an error. Each is a sentence that is shown before the first step and kept in ``events.jsonl``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from acr.config import RunConfig
from acr.data.stream import TaskStream
from acr.methods.method import Method
from acr.training.building import per_place

CONSTANT = 1e-6
"""Standard deviation of a channel, of pixels from 0 to 1, below which it shows nothing."""
ONE_SIDED = 0.5
"""Share of the test images that have the same class, above which that is said; for two classes, 0.6."""


def chance_level(stream: TaskStream) -> float:
    """The share of all test images that are right if always the most frequent class is answered."""
    counts = [len(stream.data.test.of_classes([label])) for label in stream.classes]
    return max(counts) / max(1, sum(counts))


def notes(config: RunConfig, stream: TaskStream, method: type[Method]) -> Iterator[str]:
    """Sentences on a run that is about to begin, for the person who started it."""
    data = stream.data
    learned = sum(len(data.train.of_classes([label])) for label in stream.classes)
    room = config.buffer_size * per_place(config, data.train.image_shape)
    if method.uses_memory and room >= learned:
        yield (
            f"The memory has room for {room:,} samples, and there are {learned:,} training images: all "
            "can be stored, so nothing has to be forgotten. Choose a smaller --buffer-size to compare methods."
        )
    if len(stream.classes) == 1:
        yield "There is one class only, so every answer is right: accuracy says nothing about this run."
    elif len(stream) == 1 and not method.sees_all_tasks:
        yield "All classes arrive in one task, so there is nothing to forget: BWT and forgetting are not defined."
    elif chance_level(stream) > max(ONE_SIDED, 1.2 / len(stream.classes)):
        yield (
            f"{100 * chance_level(stream):.0f} % of the test images have the same class, so a network that always "
            "answers that class is right as often. Compare accuracies with this number."
        )
    untested = [label for label in stream.classes if not len(data.test.of_classes([label]))]
    if untested:
        names = ", ".join(data.train.class_names[label] for label in untested[:5])
        more = f" and {len(untested) - 5} more" if len(untested) > 5 else ""
        yield f"There are no test images of {names}{more}: no accuracy includes them."
    for channel, deviation in enumerate(data.std):
        if not np.isfinite(deviation) or deviation < CONSTANT:
            yield f"Channel {channel + 1} of the images has the same value everywhere: nothing can be learned from it."
