"""Building what learns: from a config to a method with its network and its context."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import torch

from acr.config import Precision, RunConfig
from acr.data.views import Views
from acr.memory.codec import Codec
from acr.methods.method import Context, Method
from acr.networks import Network, NetworkBuilder
from acr.networks.averaging import WeightAverage
from acr.randomness import keyed_global
from acr.training.compilation import compile_encoder
from acr.training.devices import find_device
from acr.values import AUTO, OFF, HalfLife

AUTOCAST: dict[Precision, torch.dtype | None] = {"32": None, "bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
"""Type in which the encoder computes."""


@dataclass(frozen=True)
class Pictures:
    """What a method must know about the images that it will be given."""

    image_shape: tuple[int, int, int]
    """Channels, height, width."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    """Of each channel on the scale 0..1, for normalisation."""
    flip: bool = True
    """Whether views may mirror an image."""


def build_method(
    config: RunConfig, cls: type[Method], pictures: Pictures, classes: int, tasks: int | None = None
) -> Method:
    """A method at the start of its life, with a newly initialised network.

    Args:
        config: everything that it depends on; the data set only names it in quirks of the protocol.
        cls: the class of the method.
        pictures: what is known about the images.
        classes: number of outputs of the network.
        tasks: number of tasks; None if the stream is open-ended. The number of classes is then not known either.
    """
    protocol = config.protocol_in_force()
    views = Views.for_side(min(pictures.image_shape[1:]), pictures.flip)
    # Replayed images are padded like training images, unless a quirk of the protocol changes it.
    padding, border = protocol.replay_border(config.dataset, views.padding, pictures.mean)
    device = find_device(config.device)
    builder = NetworkBuilder(config, classes, cls.head, pictures.image_shape, pictures.mean, pictures.std)

    def build_network(purpose: str) -> Network:
        # Initialisers only know the global generator, so it is seeded for this network and restored afterwards.
        with keyed_global(config.seed, "network", purpose):
            network = builder.build()
        network.autocast = AUTOCAST[config.precision]
        if config.compile:
            compile_encoder(network, pictures.image_shape, device)
        return network.to(device)

    context = Context(
        seed=config.seed,
        buffer_size=config.buffer_size,
        batch_size=config.batch_size,
        replay_size=config.replay_size,
        codec=codec_of(config, pictures.image_shape),
        epochs=config.epochs,
        learning_rate=config.learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        image_shape=pictures.image_shape,
        views=Views(views.padding, views.flip, padding, border),
        build_network=build_network,
        tasks=tasks,
        classes=None if tasks is None else classes,
        protocol=protocol,
        device=device,
        scaler=torch.amp.GradScaler(device.type) if config.precision == "16-mixed" else None,
    )
    method = cls(build_network("run"), config.options, context)
    if config.average_weights != OFF:
        # A copy, not a newly built network: a method may have set up its network's head.
        method.average = WeightAverage(deepcopy(method.network), HalfLife.parse(config.average_weights))
    return method


AUTO_PER_PLACE, AUTO_SIDE = 8, 32
"""The rule for ``--images-per-place auto``: so many colour images of this side or more share a place."""


def per_place(config: RunConfig, image_shape: tuple[int, int, int]) -> int:
    """Images of this shape that share a place of a run's memory."""
    if config.images_per_place != AUTO:
        return config.images_per_place
    return AUTO_PER_PLACE if image_shape[0] == 3 and min(image_shape[1:]) >= AUTO_SIDE else 1


def codec_of(config: RunConfig, image_shape: tuple[int, int, int]) -> Codec | None:
    """How a run's memory stores its images; None: as they are."""
    number = per_place(config, image_shape)
    return Codec(image_shape, number) if number > 1 else None
