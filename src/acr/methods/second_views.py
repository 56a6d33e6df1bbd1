"""Second views of images: what methods that train on two views of everything share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from acr.data.strong_view import StrongDraws
from acr.data.views import CropDraws
from acr.shift import wrap

SecondView = Literal["none", "crop-flip", "strong"]
SecondViewDraws = StrongDraws | CropDraws | None


def wrapped_view(images: Tensor, view: Callable[[Tensor], Tensor], mean: Tensor, std: Tensor) -> Tensor:
    """A second view as the released program makes it (the quirk ``wrapped-views``).

    The program applies ``view`` to the bytes of normalised images, which have wrapped around, and passes the result w
    to the network without normalising it. Our network normalises its input, so it is given w·std + mean, a float
    tensor; ``mean`` and ``std`` are the network's.
    """
    pixels = images.float() / 255 if images.dtype == torch.uint8 else images
    return view(wrap((pixels - mean) / std)).float() / 255 * std + mean
