"""Adaptive Contrastive Replay: class-incremental learning that forgets little and is measured under shift.

    import acr
    run = acr.run(method="acr", dataset="split-digits")
    run.accuracy["clean"]        # T x T: accuracy on task j after task i
    run.summary()                # ACC, BWT, forgetting, calibration, balance of the memory, ...

The parts can be used on their own: ``acr.losses``, ``acr.memory``, ``acr.metrics``, ``acr.networks``, ``acr.shift``
(corruptions) and ``acr.testing`` (checks for methods of your own).

Everything is imported on first use, so ``import acr`` is fast and changes nothing in the process.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from acr._version import __version__

if TYPE_CHECKING:
    from acr import losses, memory, metrics, networks
    from acr.data.images import ImageSet
    from acr.data.stream import TaskStream
    from acr.launch import resume_run, run
    from acr.runs.run import Run, load_run

_NAMES = {
    "ImageSet": "acr.data.images",
    "Run": "acr.runs.run",
    "TaskStream": "acr.data.stream",
    "load_run": "acr.runs.run",
    "resume_run": "acr.launch",
    "run": "acr.launch",
}
_MODULES = ("losses", "memory", "metrics", "networks")

__all__ = ["ImageSet", "Run", "TaskStream", "__version__", "load_run", "losses", "memory", "metrics", "networks",
           "resume_run", "run"]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if name in _MODULES:
        return import_module(f"acr.{name}")
    raise AttributeError(f"module 'acr' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
