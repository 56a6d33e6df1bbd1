"""``check_method``: what every method must satisfy, whoever wrote it.

Each check is a function that takes a :class:`Trial` and fails with a sentence. A method to which a check does not apply
lists it in ``exemptions``, with the reason, and the report repeats it.
"""

from __future__ import annotations

import random
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from acr.data.stream import TaskStream
from acr.errors import AcrError
from acr.methods.method import REGISTRY, Method, method_class, method_names, register, unfit
from acr.runs.resolve import make_config
from acr.testing.budget import check_memory, memory_bytes
from acr.testing.poison import PoisonedStream
from acr.testing.rehearsal import Rehearsal, different_tensors, first_difference
from acr.testing.toy_data import toy_data
from acr.training.checkpoint import Checkpoints
from acr.values import RESNET18

TASKS = ((0, 1), (2, 3), (4, 5))
NEXT_LOSSES = 20
STOPS = (4, 12, 15)
"""Steps after which the state is saved and loaded: within an epoch of the first task, after the last step of a task but
before its end, and within an epoch of the second task, with a memory."""


@dataclass(frozen=True)
class ConformanceReport:
    """What :func:`check_method` found."""

    method: str
    checks: tuple[str, ...]
    """Names of the checks that passed."""
    exemptions: dict[str, str]
    """Checks that do not apply, with the reasons that the method gives."""
    memory_bytes: int
    """The most bytes that the memory took."""
    budget_bytes: int
    """The bytes it may take: buffer size x image + samples x (label + task + declared columns)."""
    side_memory_bytes: int
    """The most bytes of samples that were kept outside the memory."""

    def __str__(self) -> str:
        lines = [
            f"{self.method}: {len(self.checks)} checks passed ({', '.join(self.checks)})",
            f"memory {self.memory_bytes} of {self.budget_bytes} bytes, side memory {self.side_memory_bytes} bytes",
        ]
        return "\n".join([*lines, *(f"exempt from {name}: {reason}" for name, reason in self.exemptions.items())])


@dataclass
class Trial:
    """A method under test: short runs on small streams, and what was measured in them."""

    cls: type[Method]
    options: dict[str, Any]
    network: str | Callable[..., nn.Module] = RESNET18
    measured: dict[str, int] = field(default_factory=lambda: {"memory": 0, "budget": 0, "side": 0})

    def stream(self, tasks: Sequence[Sequence[int]] = TASKS, channels: int = 3) -> TaskStream:
        """A stream of six classes that a small network can tell apart."""
        return TaskStream(toy_data(classes=6, train=24, channels=channels), tasks)

    def rehearse(self, stream: TaskStream | None = None, **settings: Any) -> Rehearsal:
        """A run that has not taken any step yet; ``settings`` are those of :class:`Rehearsal`."""
        return Rehearsal(
            self.cls, stream or self.stream(), self.options, network=self.network, watch=self.watch, **settings
        )

    def watch(self, run: Rehearsal) -> None:
        """Called after every step of every run."""
        if "within-budget" not in self.cls.exemptions:
            check_memory(run)
        used, budget, side = memory_bytes(run)
        for name, value in (("memory", used), ("budget", budget), ("side", side)):
            self.measured[name] = max(self.measured[name], value)

    @cached_property
    def base(self) -> Rehearsal:
        """The uninterrupted run with which the others are compared."""
        run = self.rehearse()
        run.record_at = {*STOPS, *(stop + NEXT_LOSSES for stop in STOPS)}
        return run.go()

    def same_as_base(self, run: Rehearsal, what: str) -> None:
        """Assert equal losses throughout, and an equal state at the end; ``what`` describes the comparison."""
        parted = first_difference(self.base.losses, run.losses)
        assert parted is None, f"{what}: the losses differ at {parted}"
        different = different_tensors(self.base.tensors(), run.tensors())
        assert not different, f"{what}: the states differ at the end in {', '.join(different[:5])}"


def check_registered(trial: Trial) -> None:
    """The method has a name and options that the command line and config files can use."""
    cls = trial.cls
    problem = unfit(cls)
    assert not problem, problem
    with _registered(cls):
        assert method_class(cls.name) is cls, f"the name {cls.name!r} belongs to another method"
        make_config({"method": cls.name, **trial.options})


def check_determinism(trial: Trial) -> None:
    """The same seed gives the same losses and the same final state, run after run in one process."""
    trial.same_as_base(trial.rehearse().go(), "two runs with the same seed")


def check_own_randomness(trial: Trial) -> None:
    """The global generators of Python, NumPy and PyTorch are neither read nor moved."""
    _seed_everything(1)
    before = _global_states()
    run = trial.rehearse().go()
    moved = [name for name, state in _global_states().items() if state != before[name]]
    assert not moved, f"the global generator of {' and '.join(moved)} was used; draw from context.generator(...)"
    trial.same_as_base(run, "two runs after the global generators were seeded differently")


def check_resume(trial: Trial) -> None:
    """Saved to files after any step and loaded into a new object, the run continues as if nothing had happened."""
    base = trial.base
    for stop in STOPS:
        state, tensors = base.recorded[stop]
        with tempfile.TemporaryDirectory() as folder:
            checkpoints = Checkpoints(Path(folder), "rehearsal")
            checkpoints.save(stop, state)
            loaded = checkpoints.load()
        assert loaded is not None
        run = trial.rehearse()
        run.load_state(loaded[1])
        different = different_tensors(tensors, run.tensors())
        assert not different, f"the state saved after step {stop} and the one loaded differ in {', '.join(different)}"
        run.go(NEXT_LOSSES)
        parted = first_difference(base.losses[stop : stop + NEXT_LOSSES], run.losses)
        assert parted is None, (
            f"saved after step {stop} and loaded, its losses are not those of the uninterrupted run; from there, "
            f"{parted}: a part of its state is missing from state_dict"
        )
        different = different_tensors(base.recorded[stop + NEXT_LOSSES][1], run.tensors())
        assert not different, f"saved after step {stop} and loaded, it ends differently: {', '.join(different[:5])}"


def check_no_future(trial: Trial) -> None:
    """Only samples and labels of the current task are accessed; replacing all others by noise changes nothing."""
    run = trial.rehearse(PoisonedStream(trial.stream().data, TASKS)).go()
    trial.same_as_base(run, "two streams that differ only in samples of tasks other than the current one")


def check_no_test_images(trial: Trial) -> None:
    """Evaluation changes nothing: neither later losses nor the state."""
    images = np.ascontiguousarray(trial.stream().data.test.images)
    run = trial.rehearse(test_images=torch.from_numpy(images)).go()
    trial.same_as_base(run, "a run with evaluations and one without")


def check_all_outputs(trial: Trial) -> None:
    """``logits`` gives a finite score for every class of the stream, from the start on, for any number of images."""
    run = trial.rehearse()
    images = torch.from_numpy(trial.stream().data.test.images.copy())
    for moment, steps in (("before the first task", 0), ("in the first task", 4), ("after the last task", None)):
        run = trial.base if steps is None else run.go(steps)
        for n in (1, 7):
            scores = run.scores(images[:n])
            assert isinstance(scores, Tensor), f"logits returned {type(scores).__name__}, not a tensor"
            wanted = (n, len(run.stream.classes))
            assert tuple(scores.shape) == wanted, (
                f"{moment}, logits of {n} images have the shape {tuple(scores.shape)}, not {wanted} "
                "(images x all classes of the stream)"
            )
            assert torch.isfinite(scores).all(), f"{moment}, logits are not all finite"


def check_averages(trial: Trial) -> None:
    """Averaging the weights changes nothing in training, answers with other weights, and resumes."""
    base, stop = trial.base, STOPS[-1]
    run = trial.rehearse(average_weights="0.5t")
    run.record_at = {stop}
    run.go()
    parted = first_difference(base.losses, run.losses)
    assert parted is None, f"with weights averaged beside it, the losses differ at {parted}"
    images = torch.from_numpy(trial.stream().data.test.images.copy())
    assert not torch.equal(base.scores(images), run.scores(images)), (
        "logits are the same with averaged weights: they must come from self.network"
    )
    again = trial.rehearse(average_weights="0.5t")
    again.load_state(run.recorded[stop][0])
    different = different_tensors(run.tensors(), again.go().tensors())
    assert not different, f"saved after step {stop} and loaded, it ends differently: {', '.join(different[:5])}"


def check_dense_memory(trial: Trial) -> None:
    """With several compressed images in a place it keeps to the same bytes, stores more samples, and resumes."""
    if not trial.cls.uses_memory:
        return
    stop = STOPS[-1]
    run = trial.rehearse(images_per_place=4)
    run.record_at = {stop}
    run.go()
    places, held = run.context.buffer_size, len(run.method.memory()["labels"])
    assert held > places, (
        f"with four images per place, the memory of {places} places holds {held} samples; it has room for "
        f"{run.context.memory_capacity}: context.memory_capacity says so, or the capacity of the buffer"
    )
    again = trial.rehearse(images_per_place=4)
    again.load_state(run.recorded[stop][0])
    different = different_tensors(run.tensors(), again.go().tensors())
    assert not different, f"saved after step {stop} and loaded, it ends differently: {', '.join(different[:5])}"


def check_learns(trial: Trial) -> None:
    """The loss decreases on a task that can be learned, and the weights change."""
    run = trial.rehearse(epochs=8)
    before = run.tensors()
    run.go(8 * 6)  # the first task
    losses = [loss for loss in run.losses if loss is not None]
    assert losses, "observe never returned a loss"
    quarter = max(1, len(losses) // 4)
    early, late = sum(losses[:quarter]) / quarter, sum(losses[-quarter:]) / quarter
    assert late < early, f"the loss does not decrease on a task that can be learned: {early:.3f} early, {late:.3f} late"
    assert different_tensors(before, run.tensors()), "no weight has changed"


def check_within_budget(trial: Trial) -> None:
    """The memory holds no more than the buffer size, in samples and in bytes; anything kept outside it is reported."""
    assert trial.base.losses  # every step of every run is watched; this makes sure that there was one
    if trial.cls.uses_memory:
        assert trial.measured["memory"] > 0, "uses_memory is set, but memory() stayed empty"


def check_unequal_tasks(trial: Trial) -> None:
    """The method learns tasks of one, two and three classes."""
    trial.rehearse(trial.stream([[0], [1, 2], [3, 4, 5]]), epochs=2).go()


def check_one_class_tasks(trial: Trial) -> None:
    """The method learns tasks of one class each."""
    trial.rehearse(trial.stream([[0], [1], [2]]), epochs=2).go()


def check_last_batch_of_one(trial: Trial) -> None:
    """The method learns when the last batch of an epoch has one image."""
    trial.rehearse(trial.stream(TASKS[:2]), epochs=2, batch_size=47).go()  # 48 samples


def check_small_buffer(trial: Trial) -> None:
    """The method learns with a memory smaller than a batch: one place per class."""
    trial.rehearse(epochs=2, batch_size=10, buffer_size=6).go()


def check_single_channel(trial: Trial) -> None:
    """The method learns grey images."""
    trial.rehearse(trial.stream(channels=1), epochs=2).go()


CHECKS: dict[str, Callable[[Trial], None]] = {
    "registered": check_registered,
    "deterministic": check_determinism,
    "own-randomness": check_own_randomness,
    "resumes": check_resume,
    "no-future": check_no_future,
    "no-test-images": check_no_test_images,
    "all-outputs": check_all_outputs,
    "averages": check_averages,
    "learns": check_learns,
    "within-budget": check_within_budget,
    "dense-memory": check_dense_memory,
    "unequal-tasks": check_unequal_tasks,
    "one-class-tasks": check_one_class_tasks,
    "last-batch-of-one": check_last_batch_of_one,
    "small-buffer": check_small_buffer,
    "single-channel": check_single_channel,
}
"""The checks by name (as in ``Method.exemptions``); the docstring of each function states what must hold."""


def check_method(
    cls: type[Method], *, network: str | Callable[..., nn.Module] = RESNET18, **options: Any
) -> ConformanceReport:
    """Run all checks on a method; ``options`` are options of the method, by default its own defaults.

    ``network`` is the encoder to check it with, as in :func:`acr.run`: a method should not depend on it.

    Raises an ``AssertionError`` that states which check failed and why. Takes seconds for a method whose step costs as
    much as plain replay. The global generators and the registry are left as they were.
    """
    name = getattr(cls, "name", cls.__name__)
    assert isinstance(cls, type), f"check_method takes a class, a subclass of acr.methods.method.Method; got {cls!r}"
    assert issubclass(cls, Method), f"{name} is not a subclass of acr.methods.method.Method"
    for exempt, reason in cls.exemptions.items():
        assert exempt in CHECKS, f"{name} declares itself exempt from {exempt!r}; the checks are {', '.join(CHECKS)}"
        assert str(reason).strip(), f"{name} declares itself exempt from {exempt!r} without a reason"
    trial = Trial(cls, options, network)
    exemptions = {**cls.exemptions, **({"averages": cls.no_average} if cls.no_average else {})}
    passed = []
    with _global_generators_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for check, function in CHECKS.items():
            if check in exemptions:
                continue
            try:
                function(trial)
            except AssertionError as error:
                raise AssertionError(f"{name} fails the check {check!r}: {error}.") from error
            except Exception as error:
                message = f"{name} fails the check {check!r}: it raised {type(error).__name__}: {error}"
                raise AssertionError(message) from error
            passed.append(check)
    m = trial.measured
    return ConformanceReport(name, tuple(passed), exemptions, m["memory"], m["budget"], m["side"])


@contextmanager
def _registered(cls: type[Method]) -> Iterator[None]:
    """Have the method in the registry while the block runs."""
    before = dict(REGISTRY)
    try:
        if cls.name not in method_names():
            register(cls)
        yield
    except AcrError as error:
        raise AssertionError(str(error)) from error
    finally:
        REGISTRY.clear()
        REGISTRY.update(before)


def _seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _global_states() -> dict[str, Any]:
    """The states of the three generators, as values that can be compared."""
    legacy: Any = np.random.get_state()
    return {
        "Python": random.getstate(),
        "NumPy": (legacy[1].tobytes(), *legacy[2:]),
        "PyTorch": torch.get_rng_state().numpy().tobytes(),
    }


@contextmanager
def _global_generators_kept() -> Iterator[None]:
    """Restore the global generators after the block."""
    python, numpy, pytorch = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(pytorch)
