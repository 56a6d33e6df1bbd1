"""Adaptive Contrastive Replay: class-incremental learning that forgets little and is measured under shift.

    import acr
    run = acr.run(method="acr", dataset="split-digits")
    run.accuracy["clean"]        # T x T: accuracy on task j after task i
    run.summary()                # ACC, BWT, forgetting, calibration, balance of the memory, ...

Functions and classes:

    run            learn a data set with a method and evaluate it; finds the run again if it is finished
    resume_run     finish the run in a folder
    load_run       open a run folder
    load_runs      open all runs below a folder
    gate           compare a new classifier with the one that it is to replace, and decide whether it may
    Run            a run: its accuracy matrices, its summary, its charts, its files
    ContinualClassifier
                   a classifier for your own images: teach it classes as they arrive, ask it, save it, teach it more
    ImageSet       labelled 8-bit images, from arrays, a folder, or a data set of another library
    TaskStream     a data set split into tasks: `for task in stream`, `stream[:3]`, `len(stream)`

Modules:

    losses         the proxy-based contrastive loss
    memory         the replay memory: store, policies, balanced quotas
    metrics        functions of the accuracy matrix: ACC, BWT, forgetting and others
    networks       encoder and heads
    shift          the corruptions of the evaluation under shift
    testing        check_method, for authors of methods

Names are imported when they are first used, so ``import acr`` is quick and changes nothing in the process.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from acr._version import __version__
from acr.extensions import FUNCTIONS as _FUNCTIONS

if TYPE_CHECKING:
    from acr import losses, memory, metrics, networks, shift, testing
    from acr.data.images import ImageSet
    from acr.data.stream import TaskStream
    from acr.launch import resume_run, run
    from acr.learner import ContinualClassifier
    from acr.learner.gate import gate
    from acr.runs.run import Run, load_run, load_runs

_NAMES = {
    "ContinualClassifier": "acr.learner",
    "ImageSet": "acr.data.images",
    "Run": "acr.runs.run",
    "TaskStream": "acr.data.stream",
    "gate": "acr.learner.gate",
    "load_run": "acr.runs.run",
    "load_runs": "acr.runs.run",
    "resume_run": "acr.launch",
    "run": "acr.launch",
}
_FUNCTIONS |= {"plot": "acr.report.plots:plot_run", "classifier": "acr.learner.from_run:classifier_of"}
_MODULES = ("losses", "memory", "metrics", "networks", "shift", "testing")

__all__ = ["ContinualClassifier", "ImageSet", "Run", "TaskStream", "__version__", "gate", "load_run", "load_runs",
           "losses", "memory", "metrics", "networks", "resume_run", "run", "shift", "testing"]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if name in _MODULES:
        return import_module(f"acr.{name}")
    raise AttributeError(f"module 'acr' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
