"""Loggers people already use, fed from the events of a run: TensorBoard and Weights & Biases. Both are off by default.

A logger receives exactly what ``events.jsonl`` holds, so nothing is measured twice. A run does not depend on its
loggers: one that fails during the run is switched off with a warning.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from acr.config import RunConfig
from acr.errors import InputError
from acr.storage import files

READINGS = ("loss", "images_per_second", "cpu_percent", "rss_mib", "gpu_mib")
TENSORBOARD_FOLDER = "tensorboard"
"""Folder inside the run's own, for ``tensorboard --logdir``."""


class Logger(Protocol):
    """Something that receives the events of a run."""

    def log(self, event: dict[str, Any]) -> None:
        """Record an event."""

    def close(self) -> None:
        """Write what is left and close."""


def scalars(event: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of an event, with their names.

    >>> list(scalars({"event": "stage", "accuracy": 0.5, "memory": 50, "accuracies": {"fog/1": [0.25, 0.75]}}))
    [('accuracy/seen tasks', 0.5), ('memory/samples', 50.0), ('accuracy by shift/fog/1', 0.5)]
    """
    found: list[tuple[str, Any]] = []
    if event["event"] == "step":
        found += [(f"training/{name}", event.get(name)) for name in READINGS]
    elif event["event"] == "stage":
        found += [("accuracy/seen tasks", event.get("accuracy")), ("memory/samples", event.get("memory"))]
        for scenario, values in (event.get("accuracies") or {}).items():
            known = [value for value in values if value is not None]
            if known and scenario != "clean":
                found.append((f"accuracy by shift/{scenario}", sum(known) / len(known)))
        clean = (event.get("accuracies") or {}).get("clean") or []
        found += [(f"accuracy by task/{task + 1}", value) for task, value in enumerate(clean)]
    elif event["event"] == "evaluation":
        found.append(("accuracy/between epochs", event.get("accuracy")))
    for name, value in found:
        if isinstance(value, int | float) and math.isfinite(value):
            yield name, float(value)


def check_loggers(config: RunConfig) -> None:
    """Report a missing package before hours of training, not after."""
    wanted = {"tensorboard": config.tensorboard, "wandb": config.wandb != "off"}
    for package, asked in wanted.items():
        if asked and find_spec(package) is None:
            raise InputError(f"--{package} needs a package that is not installed: pip install {package}")


def open_loggers(config: RunConfig, folder: Path) -> list[Logger]:
    """The loggers that a config asks for."""
    check_loggers(config)
    loggers: list[Logger] = []
    for name in (TENSORBOARD_FOLDER, "wandb"):
        files.refuse_link(folder / name)  # these packages would write through it
    if config.tensorboard:
        loggers.append(Guarded(TensorBoard(folder), "TensorBoard"))
    if config.wandb != "off":
        try:
            loggers.append(Guarded(WeightsAndBiases(config, folder), "Weights & Biases"))
        except Exception as error:  # not logged in, no network: all its own kinds of error
            hint = "--wandb offline needs no account"
            raise InputError(f"--wandb {config.wandb} did not start: {error} ({hint})") from None
    return loggers


class Guarded:
    """A logger that cannot stop a run: its first error is reported, and it receives no more events."""

    def __init__(self, logger: Logger, name: str) -> None:
        self.logger: Logger | None = logger
        self.name = name

    def log(self, event: dict[str, Any]) -> None:
        """Pass the event on, unless the logger has failed."""
        try:
            if self.logger is not None:
                self.logger.log(event)
        except Exception as error:  # the run matters more than its logs
            self.logger = None
            logging.getLogger("acr").warning("%s is switched off for this run: %s", self.name, error)

    def close(self) -> None:
        """Close the logger, unless it has failed."""
        try:
            if self.logger is not None:
                self.logger.close()
        except Exception as error:
            logging.getLogger("acr").warning("%s could not be closed: %s", self.name, error)


class TensorBoard:
    """Writes event files into the run's folder; needs the package tensorboard, not TensorFlow."""

    def __init__(self, folder: Path) -> None:
        self.writer: Any = import_module("torch.utils.tensorboard").SummaryWriter(str(folder / TENSORBOARD_FOLDER))
        self.step = 0

    def log(self, event: dict[str, Any]) -> None:
        """Write the numbers of the event at the current step."""
        self.step = int(event.get("taken", self.step))
        for name, value in scalars(event):
            self.writer.add_scalar(name, value, self.step, walltime=event.get("time"))

    def close(self) -> None:
        """Flush to disk."""
        self.writer.close()


class WeightsAndBiases:
    """Logs to a project ``acr``. The id comes from the run folder's name, so that a resumed run continues its log."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        wandb: Any = import_module("wandb")
        settings = wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True)
        self.run: Any = wandb.init(
            project="acr",
            name=folder.name,
            id=hashlib.blake2b(folder.name.encode(), digest_size=8).hexdigest(),
            resume="allow" if config.wandb == "online" else None,
            mode=config.wandb,
            dir=str(folder),
            config=config.flat(),
            settings=settings,
        )
        self.step = 0

    def log(self, event: dict[str, Any]) -> None:
        """Log the numbers of the event at the current step."""
        self.step = int(event.get("taken", self.step))
        values = dict(scalars(event))
        if values:
            self.run.log(values, step=self.step)

    def close(self) -> None:
        """End the run at Weights & Biases."""
        self.run.finish()
