"""Randomness as a function of a key, never a state that other code may have advanced.

A draw belongs to a key such as ``(seed, "shuffle", task, epoch)``. Two runs that ask for the same key get the same
numbers, whatever else they did before: evaluating more often, logging, or being interrupted changes nothing.
All generators are on the CPU, so that a run draws the same numbers on every device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Position:
    """A position in a run, and the source of every draw made there: the same position always gives the same draws.

    ``task``, ``epoch`` (within the task) and ``step`` (within the epoch) count from 0.
    """

    seed: int
    task: int = 0
    epoch: int = 0
    step: int = 0

    def generator(self, purpose: str, *more: Key) -> torch.Generator:
        """A fresh generator for this purpose; ``more`` extends the key where one purpose needs several draws."""
        return generator(self.seed, purpose, self.task, self.epoch, self.step, *more)


@contextmanager
def keyed_global(*key: Key) -> Iterator[None]:
    """Seed torch's global generator by a key, and restore it afterwards: for code that uses no other generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key_to_seed(*key))
        yield
