"""Stopping on request: Ctrl-C and SIGTERM, noticed between two steps of long work."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class StopSignal:
    """Listens for SIGINT and SIGTERM while a block runs. Only the main thread can listen; in others nothing happens.

    The first signal is stored in ``received``, so that the work can end in an orderly way. From then on the signal is
    handled as it was before the block, so that a second Ctrl-C ends the process at once.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._before[number] = signal.signal(number, self._remember)
            except ValueError:  # not the main thread: its owner handles signals
                break
        return self

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        signal.signal(number, self._before[number])

    def __exit__(self, *problem: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@contextmanager
def end_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as an exception does, so that temporary folders are removed on the way out.

    Python's own answer to the signal is to end the process at once.
    """

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # not the main thread: its owner handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
