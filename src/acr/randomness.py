"""Randomness as a function of a key, never a state that somebody else may have advanced.

A draw belongs to a key such as ``(seed, "shuffle", task, epoch)``. Two runs that ask for the same key get the same
numbers, whatever else they did before: evaluating more often, logging, or being interrupted changes nothing.
All generators live on the CPU, so that a run draws the same numbers on every device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch

Key = int | str


def key_to_seed(*key: Key) -> int:
    """A 63-bit seed for a key. Distinct keys give unrelated seeds; ``1`` and ``"1"`` are distinct.

    >>> key_to_seed(0, "shuffle", 1) == key_to_seed(0, "shuffle", 1)
    True
    >>> key_to_seed(0, "shuffle", 1) == key_to_seed(0, "shuffle", "1")
    False
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in key)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(*key: Key) -> torch.Generator:
    """A fresh CPU generator for a key."""
    return torch.Generator().manual_seed(key_to_seed(*key))


@contextmanager
def keyed_global(*key: Key) -> Iterator[None]:
    """For code that only knows torch's global generator (layer initialisation): seed it here, restore it after."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key_to_seed(*key))
        yield
