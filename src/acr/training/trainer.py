"""The training loop, from the first batch of the first task to the last evaluation.

Nothing here knows what a method does inside ``observe``. Every draw is keyed by its position in the run, so the loop
can stop after any step and go on from a checkpoint as if it had not.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from acr.config import RunConfig
from acr.data.stream import Task, TaskStream
from acr.errors import AcrError
from acr.evaluation.evaluator import evaluate
from acr.evaluation.scenarios import Scenario
from acr.methods.method import Batch, Context, Method
from acr.randomness import generator
from acr.runs.writer import RunFolder
from acr.training.checkpoint import Checkpoints
from acr.training.progress import RunProgress
from acr.training.telemetry import Telemetry


class Interrupted(AcrError):
    """A signal asked the run to stop; it did so after a step, with a checkpoint."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


class Diverged(AcrError):
    """The loss is not a number any more."""


@dataclass
class Position:
    """The next step to take. ``step`` counts inside the epoch; ``started``: the task has begun."""

    task: int = 0
    epoch: int = 0
    step: int = 0
    started: bool = False


class Trainer:
    """One run: a method learns a stream and is evaluated after every task."""

    def __init__(
        self,
        config: RunConfig,
        stream: TaskStream,
        method: Method,
        context: Context,
        scenarios: list[Scenario],
        folder: RunFolder,
        checkpoints: Checkpoints,
    ) -> None:
        self.config = config
        self.stream = stream
        self.learned = stream.merged() if method.sees_all_tasks else stream
        self.method = method
        self.context = context
        self.scenarios = scenarios
        self.folder = folder
        self.checkpoints = checkpoints
        self.position = Position()
        self.stages: list[dict[str, Any]] = []
        """What was counted after each task."""
        self.confidence: dict[str, Tensor] = {}
        """Mean and variance of every sample's confidence, by task, where the method records it."""
        self.started = self.saved_at = time.monotonic()
        self.seconds_before = 0.0
        self.signal: int | None = None
        self.telemetry = Telemetry(context.device)

    # --- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Learn every task that is left, evaluating after each."""
        steps = sum(self.steps_per_epoch(task) * self.config.epochs for task in self.learned)
        with RunProgress(steps, self.steps_done(), self.config.quiet) as self.progress, _Signals(self):
            where = {"task": self.position.task, "epoch": self.position.epoch, "step": self.position.step}
            self.folder.event("start", **where, steps=steps, tasks=len(self.learned), taken=self.steps_done())
            while self.position.task < len(self.learned):
                task = self.learned[self.position.task]
                self.learn(task)
                self.evaluate_stage(task)
                self.position = Position(task=task.index + 1)
                self.save_checkpoint()
            self.folder.event("end", seconds=round(self.seconds, 3))

    @property
    def seconds(self) -> float:
        """Wall-clock time of the run, that before an interruption included."""
        return self.seconds_before + time.monotonic() - self.started

    def learn(self, task: Task) -> None:
        """All epochs of one task, from wherever the run stands."""
        position, method = self.position, self.method
        self.place(task)
        if not position.started:
            method.begin_task(task)
            position.started = True
        for epoch in range(position.epoch, self.config.epochs):
            self.set_learning_rate(epoch)
            for batch in self.batches(task, epoch, position.step):
                self.place(task, epoch, batch.step)
                method.network.train()
                loss = method.observe(batch)
                position.epoch, position.step = epoch, batch.step + 1
                self.after_step(batch, loss)
            self.place(task, epoch, position.step)
            method.end_epoch()
            position.epoch, position.step = epoch + 1, 0
            if self.config.eval_every and (epoch + 1) % self.config.eval_every == 0:
                self.evaluate_now(task, epoch)
        self.place(task, self.config.epochs)
        method.end_task(task)
        if method.confidence is not None:
            self.confidence[f"mean_{task.index}"] = method.confidence.mean()
            self.confidence[f"variance_{task.index}"] = method.confidence.variance()

    def batches(self, task: Task, epoch: int, first: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, in an order keyed by task and epoch; the last, smaller one is kept."""
        order = torch.randperm(len(task), generator=generator(self.config.seed, "shuffle", task.index, epoch))
        for step in range(first, self.steps_per_epoch(task)):
            indices = order[step * self.config.batch_size : (step + 1) * self.config.batch_size]
            yield Batch(
                indices=indices,
                plain=task.images(indices),
                labels=task.targets[indices].to(self.context.device),
                task=task.index,
                epoch=epoch,
                step=step,
                views=self.context.views,
                draws=partial(_draws, self.config.seed, task.index, epoch, step),
            )

    def after_step(self, batch: Batch, loss: Tensor | None) -> None:
        """Look at the loss, write down what happened, and save or stop if it is time to."""
        value = None if loss is None else float(loss)
        where = f"task {batch.task + 1}/{len(self.learned)}, epoch {batch.epoch + 1}/{self.config.epochs}"
        if value is not None and not math.isfinite(value):
            raise Diverged(self.diverged(value, f"{where}, step {batch.step + 1}"))
        self.telemetry.count(len(batch))
        self.progress.step(where, value, self.config.batch_size)
        if batch.step % self.config.log_every == 0:
            at = {"task": batch.task, "epoch": batch.epoch, "step": batch.step, "taken": self.steps_done()}
            self.folder.event("step", **at, loss=value, **self.telemetry.read())
        if self.signal is not None:
            self.stop()
        if time.monotonic() - self.saved_at >= self.config.checkpoint_every:
            self.save_checkpoint()

    # --- evaluation ------------------------------------------------------------------------------------------------

    def evaluate_stage(self, task: Task) -> None:
        """Count what is right on all tasks seen, under every scenario that is due, and keep it."""
        last = task.index == len(self.learned) - 1
        stage = len(self.stream) - 1 if last else task.index
        due = self.config.ood_every == "stage" or (self.config.ood_every == "end" and last)
        counted = {}
        self.method.network.eval()
        for scenario in self.scenarios:
            if scenario.name == "clean" or due:
                counted[scenario.name] = evaluate(self.method.logits, scenario, self.stream, stage).as_json()
        memory = self.method.memory()
        per_part: dict[str, int] = {}
        for t, label in zip(memory["tasks"].tolist(), memory["labels"].tolist(), strict=True) if memory else []:
            key = f"{t}/{self.stream.classes[label]}"
            per_part[key] = per_part.get(key, 0) + 1
        self.stages.append({"stage": stage, "scenarios": counted, "memory": per_part})
        accuracy = accuracy_of(counted["clean"], self.context.protocol.headline)
        over = self.context.protocol.headline
        accuracies = {name: accuracies_of(counts, over) for name, counts in counted.items()}
        stored = {"memory": len(memory.get("labels", ())), "parts": per_part}
        known = {"accuracy": accuracy, "accuracies": accuracies, **stored}
        self.folder.event("stage", stage=stage, taken=self.steps_done(), **known)
        self.progress.say(f"after task {stage + 1}/{len(self.stream)}: accuracy {100 * accuracy:.1f} % on all seen")

    def evaluate_now(self, task: Task, epoch: int) -> None:
        """An evaluation between two epochs, for the eye only: results do not hold it."""
        self.method.network.eval()
        stage = len(self.stream) - 1 if self.method.sees_all_tasks else task.index
        counts = evaluate(self.method.logits, self.scenarios[0], self.stream, stage).as_json()
        accuracy = accuracy_of(counts, self.context.protocol.headline)
        self.folder.event("evaluation", task=task.index, epoch=epoch, accuracy=accuracy)
        self.progress.say(f"task {task.index + 1}, epoch {epoch + 1}: accuracy {100 * accuracy:.1f} %")

    # --- where the run stands --------------------------------------------------------------------------------------

    def place(self, task: Task, epoch: int = 0, step: int = 0) -> None:
        """Tell the method's context where the run stands."""
        context = self.context
        context.task, context.epoch, context.step = task.index, epoch, step
        seen = [column for earlier in range(task.index + 1) for column in self.learned.columns(earlier)]
        context.seen = list(dict.fromkeys(seen))

    def steps_per_epoch(self, task: Task) -> int:
        """Batches of an epoch, the last partial one counted."""
        return math.ceil(len(task) / self.config.batch_size)

    def steps_done(self) -> int:
        """Steps taken since the run began."""
        p = self.position
        done = sum(self.steps_per_epoch(self.learned[t]) * self.config.epochs for t in range(p.task))
        if p.task < len(self.learned):
            done += p.epoch * self.steps_per_epoch(self.learned[p.task]) + p.step
        return done

    def set_learning_rate(self, epoch: int) -> None:
        """The rate of this epoch: multiplied by the decay at every milestone passed, whole again at the next task."""
        passed = sum(epoch >= milestone for milestone in self.config.lr_milestones)
        for group in self.method.optimizer.param_groups:
            group["lr"] = self.config.learning_rate * self.config.lr_decay**passed

    # --- stopping and going on -------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The whole state of the run."""
        return {
            "position": dict(vars(self.position)),
            "method": self.method.state_dict(),
            "stages": self.stages,
            "confidence": self.confidence,
            "seconds": self.seconds,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.position = Position(**state["position"])
        self.stages = state["stages"]
        self.confidence = state["confidence"]
        self.seconds_before = state["seconds"]
        self.method.load_state_dict(state["method"])

    def save_checkpoint(self) -> None:
        """Write the state down."""
        number = self.steps_done() + self.position.task  # the end of a task counts, so that no two share a number
        self.checkpoints.save(number, self.state_dict())
        self.saved_at = time.monotonic()
        p = self.position
        self.folder.event("checkpoint", task=p.task, epoch=p.epoch, step=p.step)

    def stop(self) -> None:
        """Save and leave, because a signal asked for it."""
        assert self.signal is not None
        self.save_checkpoint()
        self.folder.event("interrupted", signal=self.signal)
        how = f"Go on with: acr resume {self.folder.path}"
        raise Interrupted(self.signal, f"Stopped; everything so far is saved. {how}")

    def diverged(self, value: float, where: str) -> str:
        """What to say when the loss is lost."""
        names = self.checkpoints.names()
        saved = f"The last good checkpoint is {names[0]}." if names else "There is no checkpoint yet."
        rate = self.config.learning_rate
        self.folder.event("diverged", where=where)
        return (
            f"The loss became {value} at {where}. {saved} "
            f"Try a smaller --learning-rate (it is {rate:g}), and look at the data with acr data check."
        )


class _Signals:
    """First signal: finish the step, then stop. Second SIGINT: leave at once. Only the main thread can listen."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self.before[number] = signal.signal(number, self.received)
            except ValueError:  # not the main thread: its owner handles signals
                return

    def received(self, number: int, frame: FrameType | None) -> None:
        """Remember the signal; a second one gets the treatment it had before."""
        self.trainer.signal = number
        signal.signal(number, self.before[number])

    def __exit__(self, *problem: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def _draws(seed: int, task: int, epoch: int, step: int, purpose: str) -> torch.Generator:
    return generator(seed, purpose, task, epoch, step)


def accuracy_of(counts: dict[str, Any], over: str) -> float:
    """Mean over tasks of the fraction right."""
    shares = [share for share in accuracies_of(counts, over) if share is not None]
    return sum(shares) / len(shares) if shares else float("nan")


def accuracies_of(counts: dict[str, Any], over: str) -> list[float | None]:
    """The fraction right on each task."""
    pairs = zip(counts["correct"][over], counts["total"], strict=True)
    return [sum(correct) / sum(total) if sum(total) else None for correct, total in pairs]
