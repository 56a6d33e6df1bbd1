"""Compiling the network, where there is a compiler."""

from __future__ import annotations

import warnings

import torch

from acr.networks import Network


def compile_encoder(network: Network, image_shape: tuple[int, int, int], device: torch.device) -> None:
    """Compile the encoder in place with ``torch.compile``, for a device; its weights keep their names.

    A trial pass shows whether that works here. Where it does not, the network stays as it is, and one sentence says so.
    """
    encoder = network.encoder
    network.to(device)
    try:
        encoder.compile(dynamic=True)
        with torch.no_grad():
            network.eval()
            network.features(torch.zeros(2, *image_shape, dtype=torch.uint8, device=device))
    except Exception as error:  # whatever a missing or broken compiler raises; training does not depend on it
        encoder._compiled_call_impl = None
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        warnings.warn(f"--compile: torch.compile does not work here ({first[:120]}); running without.", stacklevel=2)
    finally:
        network.train()
