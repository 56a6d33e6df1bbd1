"""A lock between processes, so that two of them do not do the same long work at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path) -> Iterator[bool]:
    """Hold the lock file ``path`` while the block runs; others wait. Yields whether the lock is really held.

    The system lets go of the lock when the process ends, however it ends. Some network file systems have no locks:
    there the block runs without one, so the caller must still be correct then, only slower. The file itself stays:
    removing it would let a third process lock a new file of the same name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return False
    return True
