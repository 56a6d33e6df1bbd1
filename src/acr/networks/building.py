"""The networks of a run: all of one kind, made in one place, whoever asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from acr.config import RunConfig
from acr.networks.encoders import EncoderFunction, Trial, try_out
from acr.networks.network import Head, Network, assemble
from acr.networks.resnet import resnet18
from acr.networks.weights import load_encoder, read_weights
from acr.values import RESNET18


@dataclass
class NetworkBuilder:
    """Builds newly initialised networks as a config describes them, starting from its weights if it names any.

    ``image_shape`` is that of the data set's images, C x H x H, ``mean`` and ``std`` are its statistics.
    """

    config: RunConfig
    num_classes: int
    head: Head
    image_shape: tuple[int, int, int]
    mean: Sequence[float]
    std: Sequence[float]

    @cached_property
    def function(self) -> EncoderFunction:
        """The user's function, where the config names one."""
        return EncoderFunction(self.config.network)

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The tensors to start from."""
        assert self.config.weights is not None
        return read_weights(self.config.weights, self.config.weights_digest)

    def build(self) -> Network:
        """A network on the host. Its initialisation draws from PyTorch's global generator, which the caller seeds."""
        config, channels = self.config, self.image_shape[0]
        if config.network == RESNET18:
            network = resnet18(
                self.num_classes, config.width, self.head, channels, self.mean, self.std, stem=config.stem
            )
        else:
            network = self._own_network(channels, self.image_shape[1])
        if config.weights is not None:
            load_encoder(network.encoder, self.weights, config.weights)
        return network

    def _own_network(self, channels: int, image_size: int) -> Network:
        """A network whose encoder the user's function makes."""
        name = self.config.network
        encoder = self.function.make(channels=channels, image_size=image_size, width=self.config.width)
        trial: Trial = try_out(encoder, name, channels, image_size)
        network = assemble(encoder, trial.features, self.num_classes, self.head, self.mean, self.std)
        network.draws = trial.draws
        return network
