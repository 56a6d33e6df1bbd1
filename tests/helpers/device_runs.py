"""Whole small runs on the pretend device, with what every step cost it in waits and copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pretend_device import PretendDevice

from acr.data.stream import TaskStream
from acr.launch import build_loop
from acr.runs.resolve import make_config
from acr.testing import toy_data
from acr.training.loop import Step, TrainingLoop

SETTINGS: dict[str, Any] = {
    "dataset": "split-cifar100", "tasks": 3, "epochs": 2, "width": 4, "buffer_size": 60, "learning_rate": 0.02,
    "threads": 1,
}  # fmt: skip
OWN_SETTINGS: dict[str, dict[str, Any]] = {
    "gdumb": {"fit_epochs": 2},
    "hal": {"anchor_steps": 3},
}
"""Shorter work at the end of a task: the pretend device makes every operation slow."""
SAMPLES = 48
"""Training images per class: three batches of 32 in an epoch of two classes."""


@dataclass
class Trace:
    """What a run did: losses of all steps, the state at the end, and what each step cost."""

    losses: list[float | None] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, Any] = field(default_factory=dict)
    average: dict[str, Any] = field(default_factory=dict)
    steps: list[tuple[int, int, int, Any]] = field(default_factory=list)
    """Task, epoch, step, and the pretend device's counts of it."""

    def steady(self) -> list[Any]:
        """Counts of the steps after the first task that do not begin an epoch (which sends the epoch's order)."""
        return [counts for task, _, step, counts in self.steps if task > 0 and step > 0]


def make_loop(method: str, device: str, **changes: Any) -> TrainingLoop:
    """Three tasks of two classes of 16 x 16 images."""
    stream = TaskStream.split(toy_data(6, SAMPLES, 4, side=16), 3)
    own = OWN_SETTINGS.get(method, {})
    return build_loop(make_config({**SETTINGS, **own, "method": method, "device": device, **changes}), stream)


def averaged(loop: TrainingLoop) -> dict[str, Any]:
    """The averaged weights, if there are any."""
    return {} if loop.method.average is None else dict(loop.method.average.network.state_dict())


def on_cpu(method: str, **changes: Any) -> Trace:
    """The run on the CPU."""
    loop, trace = make_loop(method, "cpu", **changes), Trace()
    for event in loop:
        if isinstance(event, Step):
            trace.losses.append(None if event.loss is None else float(event.loss))
    trace.memory = {name: value.clone() for name, value in loop.method.memory().items()}
    trace.weights = {name: value.clone() for name, value in loop.method.network.state_dict().items()}
    trace.average = {name: value.clone() for name, value in averaged(loop).items()}
    return trace


def on_device(method: str, **changes: Any) -> Trace:
    """The same run on the pretend device, counted step by step."""
    trace = Trace()
    with PretendDevice() as device:
        loop = make_loop(method, str(device.device), **changes)
        events = iter(loop)
        while True:
            with device.counting() as counts:
                event = next(events, None)
            if event is None:
                break
            if isinstance(event, Step):
                trace.losses.append(None if event.loss is None else float(device.read(event.loss)))
                trace.steps.append((event.batch.task, event.batch.epoch, event.batch.step, counts))
        trace.memory = {name: device.read(value).clone() for name, value in loop.method.memory().items()}
        trace.weights = {name: device.read(value).clone() for name, value in loop.method.network.state_dict().items()}
        trace.average = {name: device.read(value).clone() for name, value in averaged(loop).items()}
    return trace
