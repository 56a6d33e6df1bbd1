"""What a method says about images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from acr.errors import InputError
from acr.evaluation.evaluator import images_at_once
from acr.methods.method import Method
from acr.shift.corruptions import corrupt
from acr.shift.suite import ShiftSpec


def scores(method: Method, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Scores of all classes in double precision, so that probabilities add up to one."""
    return in_parts(method, method.logits, images).double().numpy()


def right_under_shift(
    method: Method,
    images: npt.NDArray[np.uint8],
    answers: npt.NDArray[np.int64],
    spec: ShiftSpec,
    places: Sequence[int] | None = None,
) -> dict[str, npt.NDArray[np.bool_]]:
    """Whether each image is answered rightly, for every ``corruption/severity``.

    Args:
        method: what answers.
        images: N x C x H x W.
        answers: the right output for each.
        spec: the corruptions and severities.
        places: the images' places in the set that they are a part of, which decide what is drawn for them; by default
            they are the whole set.
    """
    # One corruption after the other: all of them at once would take eleven times the memory of the images.
    return {
        f"{name}/{severity}": scores(
            method, corrupt(images, name, severity, constants=spec.constants, indices=places)
        ).argmax(1)
        == answers
        for name, severity in spec
    }


@torch.inference_mode()
def in_parts(method: Method, function: Callable[[Tensor], Tensor], images: npt.NDArray[np.uint8]) -> Tensor:
    """What a function of the method gives for images, some at a time, on the host.

    The method answers with the network that it answers with.
    """
    if not len(images):
        raise InputError("There is no image to look at.")
    device = method.context.device
    size = images_at_once(device)
    parts = [images[start : start + size] for start in range(0, len(images), size)]
    with method.answering():
        return torch.cat(
            [function(torch.from_numpy(np.ascontiguousarray(part)).to(device)).float().cpu() for part in parts]
        )


def stored(method: Method) -> npt.NDArray[np.uint8]:
    """The images in the method's memory; none if it has no memory."""
    memory = method.memory()
    return memory["images"].cpu().numpy() if memory else np.zeros((0, 1, 1, 1), np.uint8)
