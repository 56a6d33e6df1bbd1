"""The replay memory: a buffer of images, and the policies that decide what it holds."""

from acr.memory import policies
from acr.memory.buffer import Buffer
from acr.memory.confidence import ConfidenceTable
from acr.memory.quotas import balanced_quotas

__all__ = ["Buffer", "ConfidenceTable", "balanced_quotas", "policies"]
