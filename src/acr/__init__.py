"""Adaptive Contrastive Replay."""

from acr._version import __version__

__all__ = ["__version__"]
