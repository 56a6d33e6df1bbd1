"""Locks between processes, so that two of them do not write the same folder, or do the same long work, at once.

The locking is filelock's: a lock ends with the process that holds it, however that ends. Its file must be a regular
file: a link is not followed, and a pipe is not waited for. It is never truncated, and stays when the lock is released,
because removing it would let a third process lock a new file of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from acr.storage.files import check_regular


@contextmanager
def exclusive(path: Path) -> Iterator[bool]:
    """Hold the lock file ``path`` while the block runs; others wait. Yields whether the lock is really held.

    Some network file systems have no locks. There the block runs without one, so the caller must be correct without
    it, if slower.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    check_regular(path)
    lock = FileLock(path, mode=0o666)
    try:
        lock.acquire()
    except (OSError, NotImplementedError):
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def try_lock(path: Path) -> BaseFileLock | None:
    """Take the lock file ``path`` now, and hold it until ``release()``; None if another process has it."""
    check_regular(path)
    lock = FileLock(path, mode=0o666)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    return lock
