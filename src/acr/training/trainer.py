"""The trainer: the training loop with everything around it, which is evaluation, log, checkpoints and stopping."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from acr.config import RunConfig
from acr.data.stream import Task, TaskStream
from acr.errors import AcrError, command
from acr.evaluation.counts import Counts
from acr.evaluation.evaluator import evaluate
from acr.evaluation.scenarios import Scenario
from acr.runs.schema import Stage
from acr.runs.writer import RunWriter
from acr.storage.signals import StopSignal
from acr.training.checkpoint import CheckpointError, Checkpoints, read
from acr.training.finite import not_finite
from acr.training.loop import Cursor, EpochEnd, Step, TaskEnd, TrainingLoop
from acr.training.loss_record import LossRecord, LostLoss
from acr.training.notes import chance_level
from acr.training.progress import RunProgress
from acr.training.telemetry import Telemetry


class Interrupted(AcrError):
    """A signal asked the run to stop; it stopped after a step, with a checkpoint."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


class Diverged(AcrError):
    """The loss is no longer finite."""


class Trainer:
    """One run: a method learns a stream and is evaluated after every task.

    ``stream`` has the tasks that are evaluated; the loop has the tasks as the method sees them (for joint training, all
    classes in one task). ``scenarios`` are the test images, the clean ones first.
    """

    def __init__(
        self,
        config: RunConfig,
        stream: TaskStream,
        loop: TrainingLoop,
        scenarios: list[Scenario],
        folder: RunWriter,
        checkpoints: Checkpoints,
    ) -> None:
        self.config = config
        self.stream = stream
        self.loop = loop
        self.method = loop.method
        self.scenarios = scenarios
        self.folder = folder
        self.checkpoints = checkpoints
        self.headline = config.protocol_in_force().headline
        self.stages: list[Stage] = []
        """What was counted after each task."""
        self.confidence: dict[str, Tensor] = {}
        """Mean and variance of every sample's confidence, by task, where the method records it."""
        self.started = self.saved_at = time.monotonic()
        self.seconds_before = 0.0
        self.telemetry = Telemetry(loop.context.device)
        self.losses = LossRecord()
        self.where = "the start"
        """The newest step, for people."""

    def run(self) -> None:
        """Learn every remaining task, and evaluate after each."""
        steps, taken, cursor = self.loop.steps_in_all(), self.loop.steps_taken(), self.loop.cursor
        with RunProgress(steps, taken, self.config.quiet) as self.progress, StopSignal() as self.stop_signal:
            where: dict[str, Any] = {"task": cursor.task, "epoch": cursor.epoch, "step": cursor.step}
            chance = chance_level(self.stream)
            self.progress.say(f"chance level: {100 * chance:.1f} % (always the most frequent class of the test images)")
            self.folder.event(
                "start", **where, chance=round(chance, 6), steps=steps, tasks=len(self.loop.tasks), taken=taken
            )
            for event in self.loop:
                if isinstance(event, Step):
                    self.after_step(event)
                elif isinstance(event, EpochEnd):
                    if self.config.eval_every and (event.epoch + 1) % self.config.eval_every == 0:
                        self.evaluate_now(event.task, event.epoch)
                elif isinstance(event, TaskEnd):
                    self.check_state(self.method.state_dict())  # figures of weights that are not numbers mean nothing
                    self.keep_confidence(event.task)
                    self.evaluate_stage(event.task)
                    self.save_checkpoint()
            self.folder.event("end", seconds=round(self.seconds, 3))

    @property
    def seconds(self) -> float:
        """Wall-clock time of the run, including the time before an interruption."""
        return self.seconds_before + time.monotonic() - self.started

    def after_step(self, step: Step) -> None:
        """Check the loss, log the step, and save or stop if it is time to."""
        batch = step.batch
        where = f"task {batch.task + 1}/{len(self.loop.tasks)}, epoch {batch.epoch + 1}/{self.config.epochs}"
        self.where = f"{where}, step {batch.step + 1}"
        self.losses.add(self.where, step.loss)
        # A loss on a device is read only when a line is due: to read it is to wait for all work that led to it.
        due = batch.step % self.config.log_every == 0
        if due or self.loop.context.device.type == "cpu":
            self.read_loss()
        self.telemetry.count(len(batch))
        self.progress.step(where, self.losses.newest, self.config.batch_size)
        if due:
            at = {"task": batch.task, "epoch": batch.epoch, "step": batch.step, "taken": self.loop.steps_taken()}
            self.folder.event("step", **at, loss=self.losses.newest, **self.telemetry.read())
        if self.stop_signal.received is not None:
            self.stop(self.stop_signal.received)
        if time.monotonic() - self.saved_at >= self.config.checkpoint_every:
            self.save_checkpoint()

    def check_state(self, state: dict[str, Any]) -> None:
        """Stop the run if a weight, or what the optimiser or the memory keeps, is no longer finite.

        A finite loss does not show it: the step that follows the loss may be the one that overflows.
        """
        self.read_loss()
        lost = not_finite(state)
        if lost:
            more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
            raise Diverged(self.diverged(f"{lost[0]}{more} became infinite or NaN", self.where))

    def read_loss(self) -> None:
        """Read the losses since the last reading; stop the run if one of them is not finite."""
        try:
            self.losses.read()
        except LostLoss as lost:
            raise Diverged(self.diverged(f"The loss became {lost.value}", lost.where)) from None

    # --- evaluation ------------------------------------------------------------------------------------------------

    def keep_confidence(self, task: Task) -> None:
        """Mean and variance of the confidence in the task's samples, for confidence.npz."""
        if self.method.confidence is not None:
            self.confidence[f"mean_{task.index}"] = self.method.confidence.mean()
            self.confidence[f"variance_{task.index}"] = self.method.confidence.variance()

    def evaluate_stage(self, task: Task) -> None:
        """Count what is correct on all tasks seen so far, under every scenario that is due, and store it."""
        last = task.index == len(self.loop.tasks) - 1
        number = len(self.stream) - 1 if last else task.index
        due = self.config.ood_every == "stage" or (self.config.ood_every == "end" and last)
        scenarios = [scenario for scenario in self.scenarios if scenario.name == "clean" or due]
        counted = self.count(scenarios, number)
        as_trained = {} if self.method.average is None else self.count(scenarios, number, as_trained=True)
        stage = Stage(stage=number, scenarios=counted, as_trained=as_trained, memory=self.stored_parts())
        self.stages.append(stage)
        accuracy = counted["clean"].accuracy(self.headline)
        raw = {name: counts.accuracies(self.headline) for name, counts in as_trained.items()}
        self.folder.event(
            "stage",
            stage=number,
            taken=self.loop.steps_taken(),
            accuracy=accuracy,
            accuracies={name: counts.accuracies(self.headline) for name, counts in counted.items()},
            **({"as_trained": raw} if raw else {}),
            memory=sum(stage.memory.values()),
            parts=stage.memory,
        )
        where = f"after task {number + 1}/{len(self.stream)}"
        told = f" (as trained {100 * as_trained['clean'].accuracy(self.headline):.1f} %)" if as_trained else ""
        self.progress.say(f"{where}: accuracy {100 * accuracy:.1f} %{told} on all tasks so far")

    def count(self, scenarios: Sequence[Scenario], number: int, *, as_trained: bool = False) -> dict[str, Counts]:
        """What the network that answers, or the one ``as_trained``, gets right on tasks 0..number, by scenario."""
        device = self.loop.context.device
        with self.method.answering(as_trained=as_trained):
            return {s.name: evaluate(self.method.logits, s, self.stream, number, device) for s in scenarios}

    def stored_parts(self) -> dict[str, int]:
        """Number of stored samples of each part of the memory, ``task/class``."""
        memory = self.method.memory_as_stored()
        parts: dict[str, int] = {}
        for task, label in zip(memory["tasks"].tolist(), memory["labels"].tolist(), strict=True) if memory else []:
            part = f"{task}/{self.stream.classes[label]}"
            parts[part] = parts.get(part, 0) + 1
        return parts

    def evaluate_now(self, task: Task, epoch: int) -> None:
        """Evaluate between two epochs, for the screen and the log only: the results do not include it."""
        number = len(self.stream) - 1 if self.method.sees_all_tasks else task.index
        accuracy = self.count(self.scenarios[:1], number)["clean"].accuracy(self.headline)
        self.folder.event("evaluation", task=task.index, epoch=epoch, accuracy=accuracy)
        self.progress.say(f"task {task.index + 1}, epoch {epoch + 1}: accuracy {100 * accuracy:.1f} %")

    # --- stopping and resuming -------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The whole state of the run."""
        return {
            "position": dict(vars(self.loop.cursor)),
            "method": self.method.state_dict(),
            "stages": [stage.model_dump(mode="json") for stage in self.stages],
            "confidence": self.confidence,
            "seconds": self.seconds,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        self.loop.cursor = Cursor(**state["position"])
        self.stages = [Stage.model_validate(stage) for stage in state["stages"]]
        self.confidence = state["confidence"]
        self.seconds_before = state["seconds"]
        self.method.load_state_dict(state["method"])

    def save_checkpoint(self) -> None:
        """Write a checkpoint. A state that is not finite never becomes one."""
        self.folder.check_there()
        state = self.state_dict()
        self.check_state(state["method"])
        cursor = self.loop.cursor
        number = self.loop.steps_taken() + cursor.task  # a task's end counts as a step, so that no two share a number
        self.checkpoints.save(number, state)
        self.saved_at = time.monotonic()
        self.folder.event("checkpoint", task=cursor.task, epoch=cursor.epoch, step=cursor.step)

    def stop(self, signal: int) -> None:
        """Save and stop, because a signal asked for it."""
        self.save_checkpoint()
        self.folder.event("interrupted", signal=signal)
        how = f"Resume with: {command('acr', 'resume', self.folder.path)}"
        raise Interrupted(signal, f"Stopped; everything so far is saved. {how}")

    def diverged(self, what: str, where: str) -> str:
        """Log that the run has lost its numbers; returns the error message: what, where, and what to do."""
        self.folder.event("diverged", where=where)
        return (
            f"{what} at {where}. {self.usable_checkpoint()} "
            f"Try a smaller --learning-rate (it is {self.config.learning_rate:g}), and look at the data with acr data "
            "check."
        )

    def usable_checkpoint(self) -> str:
        """A sentence on the newest checkpoint that, read again now, is whole and finite."""
        saved = self.checkpoints.folders()
        for path in saved:
            try:
                _, state = read(path, self.checkpoints.run)
            except CheckpointError:
                continue
            if not not_finite(state.get("method", {})):
                return f"The last checkpoint that is whole and finite is {path}."
        return "None of its checkpoints is whole and finite." if saved else "There is no checkpoint yet."
