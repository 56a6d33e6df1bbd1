"""Locks between processes, so that two of them do not do the same long work, or write the same folder, at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


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


def try_lock(handle: IO[str]) -> bool:
    """Take the exclusive lock of an open file; False if another process has it."""
    if os.name == "nt":  # pragma: no cover - exercised on Windows only
        import msvcrt

        try:
            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
