"""Launching a run: from a config to data, stream, network, method, trainer and run folder."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import torch

from acr.config import Precision, RunConfig
from acr.data.catalog import find
from acr.data.images import DataSet
from acr.data.loading import load_dataset
from acr.data.stream import TaskStream
from acr.data.views import Views
from acr.errors import AcrError, InputError
from acr.evaluation.scenarios import DrawnAtEvaluation, Scenario, StoredImages
from acr.methods.method import Context, Method, method_class
from acr.networks import Network, resnet18
from acr.randomness import keyed_global
from acr.runs.resolve import make_config
from acr.runs.run import Run, finished_run, load_run
from acr.runs.writer import CONFIG, RunWriter, folder_name
from acr.shift.suite import ShiftSpec, build_suite
from acr.training.checkpoint import CheckpointError, Checkpoints
from acr.training.compilation import compile_encoder
from acr.training.devices import find_device, image_device
from acr.training.loggers import Logger, check_loggers, open_loggers
from acr.training.loop import TrainingLoop
from acr.training.results import write_results
from acr.training.threads import set_threads
from acr.training.torch_settings import torch_settings
from acr.training.trainer import Trainer

Resume = Literal["auto", "ask"]
AUTOCAST: dict[Precision, torch.dtype | None] = {"32": None, "bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
"""Type in which the encoder computes."""


class Unfinished(InputError):
    """The run was started but not finished, and the caller did not say whether to resume it."""


def run(
    method: str = "acr",
    dataset: str = "split-digits",
    out: str | Path = "runs",
    *,
    fresh: bool = False,
    resume: Resume = "auto",
    **config: Any,
) -> Run:
    """Train a method on a data set and evaluate it; returns the run, whose folder is created below ``out``.

    ``config`` takes any field of :class:`acr.config.RunConfig` and any option of the method. A finished run is not
    repeated, and an interrupted one is resumed (or raises :class:`Unfinished`, if ``resume="ask"``); ``fresh=True``
    starts a new run beside the old one.
    """
    return run_config(
        make_config({"method": method, "dataset": dataset, "out": Path(out), "quiet": True, **config}),
        fresh=fresh,
        resume=resume,
    )


def run_config(config: RunConfig, *, fresh: bool = False, resume: Resume = "auto") -> Run:
    """Run a complete config, or return its run if that is already finished; arguments as for :func:`run`."""
    path = config.out / folder_name(config)
    if fresh and path.exists():  # the first name that is free: NAME-2, NAME-3, ...
        path = next(p for n in range(2, 10_000) if not (p := path.with_name(f"{path.name}-{n}")).exists())
    if (run := finished_run(path)) is not None:
        return run
    if resume == "ask" and Checkpoints(path / "checkpoint", config.identity()).folders():
        raise Unfinished(
            f"This run was started before but not finished: {path}. Resume it with: acr resume {path} "
            "(or add --resume auto). To start a new run beside it, add --fresh."
        )
    return execute(config, path)


def resume_run(folder: str | Path, **changes: Any) -> Run:
    """Finish the run in a folder. ``changes`` may alter how it is run (device, threads, ...), but not its results."""
    old = load_run(folder)
    config = make_config({**old.values, **changes})
    if config.identity() != old.config.identity():
        raise InputError(f"These settings would change the results of {folder}: {', '.join(sorted(changes))}.")
    return old if old.finished else execute(config, Path(folder))


def execute(config: RunConfig, path: Path) -> Run:
    """Train and evaluate in a run folder, resuming from its last checkpoint if it has one.

    PyTorch's number of threads and choice of algorithms are set for the run, and restored afterwards.
    """
    with torch_settings(find_device(config.device), config.threads, config.deterministic, config.tf32):
        return _execute(config, path)


def _execute(config: RunConfig, path: Path) -> Run:
    # Whatever can be wrong with the input is found out before the run folder is touched.
    check_loggers(config)
    check_same_run(config, path)
    data = load_dataset(config.dataset, config)
    stream = TaskStream.split(data, config.tasks, config.classes_per_task, config.class_order)
    cls = method_class(config.method)
    if cls.uses_memory and config.buffer_size < len(stream.classes):
        raise InputError(
            f"--buffer-size {config.buffer_size} is less than the {len(stream.classes)} classes of {config.dataset}: "
            "the memory needs room for at least one sample per class."
        )
    if config.precision not in cls.precisions:
        raise InputError(
            f"--precision {config.precision}: {config.method} runs only with {' or '.join(cls.precisions)}. "
            f"docs/methods/{config.method}.md says why."
        )
    scenarios = make_scenarios(config, data)
    loop = build_loop(config, stream)
    threads = set_threads(config, Run(path).threads, loop)
    folder = RunWriter.open(path, config, {"threads_because": threads.reason})
    loggers: list[Logger] = []
    try:
        loggers += open_loggers(config, path)
        folder.listeners += [logger.log for logger in loggers]
        checkpoints = Checkpoints(path / "checkpoint", config.identity(), config.keep)
        trainer = Trainer(config, stream, loop, scenarios, folder, checkpoints)
        saved = checkpoints.load()
        if saved is not None:
            try:
                trainer.load_state_dict(saved[1])
            except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
                # All the ways in which the state of another version of the method can fail to load.
                raise CheckpointError(does_not_fit(checkpoints, error)) from error
        trainer.run()
        write_results(trainer)
    except OSError as error:
        raise storage_error(error, path) from error
    finally:
        folder.close()
        for logger in loggers:
            logger.close()
    return load_run(path)


def does_not_fit(checkpoints: Checkpoints, error: Exception) -> str:
    """The message for an intact checkpoint of this run that the method cannot be resumed from."""
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return (
        f"The checkpoint {checkpoints.folders()[0]} does not fit this version of the method ({first}). Nothing was "
        "changed. Resume with the version that wrote it (environment.json names it), or start over with --fresh."
    )


def check_same_run(config: RunConfig, path: Path) -> None:
    """Refuse to resume in a folder that holds a run with a different config, and list what differs."""
    if not (path / CONFIG).exists():
        return
    old = load_run(path).config
    if old.identity() == config.identity():
        return
    mine, theirs = config.flat(), old.flat()
    names = [name for name in sorted({*mine, *theirs}) if mine.get(name) != theirs.get(name)]
    rows = "; ".join(f"{name}: {theirs.get(name)} there, {mine.get(name)} here" for name in names)
    raise InputError(f"{path} holds a run with a different config. {rows}.")


def make_scenarios(config: RunConfig, data: DataSet) -> list[Scenario]:
    """The clean test images, then the shifted ones: from the cache, or drawn at evaluation if a quirk requires it."""
    spec = ShiftSpec.make(config.ood_corruptions, config.ood_severities, config.ood_constants)
    copies = 1 if config.ood_every == "never" else 1 + len(list(spec))
    where = image_device(find_device(config.device), config.data_device, copies * data.test.images.nbytes)
    scenarios: list[Scenario] = [StoredImages("clean", data.test.images, where)]
    if config.ood_every == "never":
        return scenarios
    protocol = config.protocol_in_force()
    wrapped, fresh = "wrapped-ood" in protocol, "fresh-ood-noise" in protocol
    if wrapped or fresh:
        drawn = [
            DrawnAtEvaluation(
                data.test.images, name, severity, spec.constants, config.seed, data.mean, data.std, wrapped, fresh
            )
            for name, severity in spec
        ]
        return [*scenarios, *drawn]
    suite = build_suite(data.test, config.dataset, spec, config.data_cache, config.quiet)
    return [*scenarios, *(StoredImages(name, images, where) for name, images in suite.items())]


def build_loop(config: RunConfig, stream: TaskStream, cls: type[Method] | None = None) -> TrainingLoop:
    """The training loop of a run at its start, with its network, context and method.

    ``cls`` is used instead of the method that the config names; it need not be registered.
    """
    cls = cls or method_class(config.method)
    head = cls.head
    data = stream.data
    spec, _ = find(config.dataset)
    protocol = config.protocol_in_force()
    views = Views.for_side(min(data.train.image_shape[1:]), spec.flip)
    # Replayed images are padded like training images, unless a quirk of the protocol changes it.
    padding, border = protocol.replay_border(config.dataset, views.padding, data.mean)
    device = find_device(config.device)

    def build_network(purpose: str) -> Network:
        # Initialisers only know the global generator, so it is seeded for this network and restored afterwards.
        with keyed_global(config.seed, "network", purpose):
            network = resnet18(len(stream.classes), config.width, head, data.train.image_shape[0], data.mean, data.std)
        network.autocast = AUTOCAST[config.precision]
        if config.compile:
            compile_encoder(network, data.train.image_shape, device)
        return network.to(device)

    context = Context(
        seed=config.seed,
        buffer_size=config.buffer_size,
        batch_size=config.batch_size,
        replay_size=config.replay_size,
        epochs=config.epochs,
        learning_rate=config.learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        image_shape=data.train.image_shape,
        views=Views(views.padding, views.flip, padding, border),
        build_network=build_network,
        tasks=len(stream),
        classes=len(stream.classes),
        protocol=protocol,
        device=device,
        scaler=torch.amp.GradScaler(device.type) if config.precision == "16-mixed" else None,
    )
    method = cls(build_network("run"), config.options, context)
    # The largest task decides for all, so that a run keeps its images in one place from beginning to end.
    largest = len(data.train) * max(map(len, stream.task_classes)) // len(stream.classes)
    size = (len(data.train) if cls.sees_all_tasks else largest) * math.prod(data.train.image_shape)
    return TrainingLoop(stream, method, context, config.rate_in_epoch, image_device(device, config.data_device, size))


def storage_error(error: OSError, path: Path) -> AcrError:
    """The error for a full disk or a lost folder; it says what to do."""
    what = error.strerror or str(error)
    return AcrError(
        f"Writing to {error.filename or path} failed: {what}. Finished work is kept; "
        f"once the cause is fixed, resume with: acr resume {path}"
    )
