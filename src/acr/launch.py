"""Launching a run: from a config to data, stream, network, method, trainer and run folder."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil

from acr.config import NOT_PART_OF_IDENTITY, RunConfig
from acr.data.catalog import find
from acr.data.images import DataSet
from acr.data.loading import load_dataset
from acr.data.objects import DataLike, store
from acr.data.stream import TaskStream
from acr.errors import AcrError, InputError, command, is_out_of_memory, shown
from acr.evaluation.scenarios import DrawnAtEvaluation, Scenario, StoredImages
from acr.methods.method import Method, method_class
from acr.runs.data_record import DATA, DataRecord, check_same_data, read_record
from acr.runs.places import Place, find_place
from acr.runs.resolve import make_config, placed
from acr.runs.run import Run, load_run
from acr.runs.writer import CONFIG, ENVIRONMENT, RunWriter
from acr.shift.suite import ShiftSpec, build_suite
from acr.storage.progress import watched
from acr.training.building import Pictures, build_method, per_place
from acr.training.checkpoint import CheckpointError, Checkpoints
from acr.training.devices import check_precision, find_device, image_device
from acr.training.loggers import Logger, check_loggers, open_loggers
from acr.training.loop import TrainingLoop
from acr.training.notes import notes
from acr.training.results import write_results
from acr.training.threads import set_threads
from acr.training.torch_settings import torch_settings
from acr.training.trainer import Trainer
from acr.values import RESNET18

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from acr.keywords import RunKeywords

Resume = Literal["auto", "ask"]
STORED = "data"
"""Folder beside the runs that holds data sets given as Python objects."""

WEIGHTS_PER_SQUARE = 2728
"""Weights of a ResNet-18 divided by the square of its width, about."""


class RunNote(UserWarning):
    """Something worth knowing about a run before it begins; see :mod:`acr.training.notes`."""


class Unfinished(InputError):
    """The run was started but not finished, and the caller did not say whether to resume it."""


def run(
    method: str = "acr",
    dataset: DataLike = "split-digits",
    out: str | Path = "runs",
    *,
    fresh: bool = False,
    resume: Resume = "auto",
    options: Mapping[str, Any] | None = None,
    **config: Unpack[RunKeywords],
) -> Run:
    """Train a method on a data set and evaluate it; returns the run, whose folder is created below ``out``.

    ``dataset`` is a name, as on the command line, or the data itself: ``(images, labels)``, ``(train_images,
    train_labels, test_images, test_labels)``, an :class:`acr.ImageSet`, a data set of another library, or a dict
    ``{"train": ..., "test": ...}`` of these. Data that is given itself is stored once in ``out/data``, under a name
    made of its content, so that the run can be found again and resumed. Without a test part, one is held out.

    ``config`` takes any field of :class:`acr.config.RunConfig` and any option of the method. Options of a method that
    is not part of this package can also be given as ``options``, where a type checker does not look. A finished run is
    not repeated, and an interrupted one is resumed (or raises :class:`Unfinished`, if ``resume="ask"``); ``fresh=True``
    starts a new run beside the old one. Progress is shown in a terminal and in a notebook, unless ``quiet=True``.
    """
    values = {"method": method, "out": Path(out), "quiet": not watched(), **config, **(options or {})}
    if isinstance(dataset, (str, os.PathLike)):
        complete = make_config({**values, "dataset": os.fspath(dataset)})
    else:
        # Whatever else is wrong is found out before any image is read.
        complete = make_config({**values, "dataset": f"npz:{STORED}"})
        folder = complete.out / STORED
        stored = store(dataset, folder, image_size=complete.image_size, quiet=complete.quiet)
        complete = complete.model_copy(update={"dataset": stored})
    return run_config(complete, fresh=fresh, resume=resume)


def run_config(config: RunConfig, *, fresh: bool = False, resume: Resume = "auto") -> Run:
    """Run a complete config, or return its run if that is already finished; arguments as for :func:`run`."""
    config = placed(config)
    place = find_place(config, fresh=fresh)
    place.warn()
    return run_at(config, place, resume=resume)


def run_at(config: RunConfig, place: Place, resume: Resume = "auto") -> Run:
    """Run a config at the place that :func:`find_place` found for it, unless it is finished there."""
    if place.finished is not None:
        return place.finished
    path = place.folder
    if resume == "ask" and Checkpoints(path / "checkpoint", config.identity()).folders():
        raise Unfinished(
            f"This run was started before but not finished: {path}. Resume it with: {command('acr', 'resume', path)} "
            "(or add --resume auto). To start a new run beside it, add --fresh."
        )
    return execute(config, path)


def resume_run(folder: str | Path, *, dataset: str | None = None, **changes: Any) -> Run:
    """Finish the run in a folder. ``changes`` may alter how it is run (device, threads, ...), but not its results.

    ``dataset`` says where the images are now (``folder:PATH``), if they were moved; they must be the same images.

    A folder is data, also one from a stranger, and must not decide which code is run. So a run with an encoder of the
    user's own is resumed only if ``changes`` name its function as ``network``.
    """
    old = load_run(folder)
    if old.finished and not set(changes) - NOT_PART_OF_IDENTITY:
        return old  # its method need not be installed
    if old.config.network != RESNET18 and "network" not in changes and not old.finished:
        raise InputError(
            f"The encoder of this run is made by {old.config.network}, and resuming it runs that code. "
            f"If you trust it: {command('acr', 'resume', folder, '--network', old.config.network)}"
        )
    config = make_config({**old.values, "quiet": not watched(), **changes})
    if not old.finished and old.revision != config.options.revision:
        raise InputError(
            f"{folder} was begun with a version of this program in which {config.method} worked differently. Finish it "
            f"with that version ({ENVIRONMENT} names it), or run it anew: "
            f"{command('acr', 'run', '--config', Path(folder) / CONFIG)}"
        )
    if config.identity() != old.config.identity():
        raise InputError(f"These settings would change the results of {folder}: {', '.join(sorted(changes))}.")
    if old.finished:
        return old
    if dataset is not None and read_record(old.folder) is None:
        raise InputError(f"{folder} has no record of its images, so it is not known whether {dataset} holds the same.")
    return execute(config, Path(folder), dataset)


def execute(config: RunConfig, path: Path, dataset: str | None = None) -> Run:
    """Train and evaluate in a run folder, resuming from its last checkpoint if it has one.

    PyTorch's number of threads and choice of algorithms are set for the run, and restored afterwards. ``dataset`` says
    where the images are, if they are not where the config says.
    """
    try:
        with torch_settings(find_device(config.device), config.threads, config.deterministic, config.tf32):
            return _execute(config, path, dataset or config.dataset)
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise memory_error(config, path) from error
        raise


def _execute(config: RunConfig, path: Path, dataset: str) -> Run:
    # Whatever can be wrong with the input is found out before the run folder is touched.
    check_loggers(config)
    check_same_run(config, path)
    data = load_dataset(dataset, config)
    check_same_data(path, data.fingerprint)
    stream = TaskStream.split(data, config.tasks, config.classes_per_task, config.class_order)
    cls = method_class(config.method)
    room = config.buffer_size * per_place(config, data.train.image_shape)
    if cls.uses_memory and room < len(stream.classes):
        few = "is" if room == config.buffer_size else f"has room for {room} images,"
        raise InputError(
            f"--buffer-size {config.buffer_size} {few} less than the {len(stream.classes)} classes of "
            f"{config.dataset}: the memory needs room for at least one sample per class."
        )
    if config.precision not in cls.precisions:
        raise InputError(
            f"--precision {config.precision}: {config.method} runs only with {' or '.join(cls.precisions)}. "
            f"docs/methods/{config.method}.md says why."
        )
    check_precision(config.precision, find_device(config.device))
    check_memory(config, data)
    said = list(notes(config, stream, cls))
    scenarios = make_scenarios(config, data)
    loop = build_loop(config, stream)
    begun = Run(path).threads
    threads = set_threads(config, begun, loop)
    sittings = [*Run(path).threads_before, threads.threads]
    if begun not in (None, threads.threads) and Checkpoints(path / "checkpoint", config.identity()).folders():
        said.append(other_threads(begun, threads.threads))
    for note in said:
        warnings.warn(note, RunNote, stacklevel=5)  # where acr.run was called
    begun_before = (path / "checkpoint").exists()
    folder = RunWriter.open(path, config, {"threads_because": threads.reason, "threads_of_sittings": sittings})
    loggers: list[Logger] = []
    try:
        if not (path / DATA).exists():
            folder.write_json(DATA, DataRecord.of(data, from_the_start=not begun_before).model_dump())
        loggers += open_loggers(config, path)
        folder.listeners += [logger.log for logger in loggers]
        checkpoints = Checkpoints(path / "checkpoint", config.identity(), config.keep, data.fingerprint.digest)
        trainer = Trainer(config, stream, loop, scenarios, folder, checkpoints)
        saved = checkpoints.load()
        if saved is not None:
            try:
                trainer.load_state_dict(saved[1])
            except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
                # All the ways in which the state of another version of the method can fail to load.
                raise CheckpointError(does_not_fit(checkpoints, error)) from error
        for note in said:
            folder.event("note", text=note)
        trainer.run()
        write_results(trainer)
    except OSError as error:
        raise storage_error(error, path) from error
    finally:
        folder.close()
        for logger in loggers:
            logger.close()
    return load_run(path)


def other_threads(begun: int | None, now: int) -> str:
    """The note for a run that continues with another number of threads."""
    return (
        f"This run began with {begun} CPU thread(s) and continues with {now}. Sums are then added up in another order, "
        "so the last bits of its results may differ from those of a run that was not interrupted. Leave out --threads "
        "to continue as it began. environment.json lists the numbers used."
    )


def check_memory(config: RunConfig, data: DataSet) -> None:
    """Refuse a network or a memory that this machine cannot hold, before the system ends the process for it."""
    network = 2 * 4 * WEIGHTS_PER_SQUARE * config.width**2  # weights and their gradients, four bytes each
    stored = config.buffer_size * math.prod(data.train.image_shape) if method_class(config.method).uses_memory else 0
    there = psutil.virtual_memory().total
    for flag, value, size in (("--width", config.width, network), ("--buffer-size", config.buffer_size, stored)):
        if size > there:
            raise InputError(
                f"{flag} {value} would take about {size / 2**30:,.0f} GiB of memory; this machine has "
                f"{there / 2**30:,.0f} GiB. Choose a smaller one."
            )


def memory_error(config: RunConfig, path: Path) -> AcrError:
    """The error for a run that ran out of memory; it says what to do."""
    saved = (path / "checkpoint").is_dir()
    resume = f" What was saved is kept; resume with: {command('acr', 'resume', path)}" if saved else ""
    return AcrError(
        f"Out of memory. Try a smaller --width (it is {config.width}), --batch-size ({config.batch_size}), "
        f"--replay-size ({config.replay_size}) or --buffer-size ({config.buffer_size}), or end other programs.{resume}"
    )


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
    rows = "; ".join(f"{n}: {config_shown(theirs.get(n))} there, {config_shown(mine.get(n))} here" for n in names)
    raise InputError(f"{path} holds a run with a different config. {rows}.")


def config_shown(value: Any) -> str:
    """A config value in a message."""
    return shown(value).strip("'")


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
    data = stream.data
    spec, _ = find(config.dataset)
    pictures = Pictures(data.train.image_shape, data.mean, data.std, spec.flip)
    method = build_method(config, cls, pictures, len(stream.classes), len(stream))
    # The largest task decides for all, so that a run keeps its images in one place from beginning to end.
    largest = len(data.train) * max(map(len, stream.task_classes)) // len(stream.classes)
    size = (len(data.train) if cls.sees_all_tasks else largest) * math.prod(data.train.image_shape)
    images = image_device(method.context.device, config.data_device, size)
    return TrainingLoop(stream, method, method.context, config.rate_in_epoch, images)


def storage_error(error: OSError, path: Path) -> AcrError:
    """The error for a full disk or a lost folder; it says what to do."""
    what = error.strerror or str(error)
    return AcrError(
        f"Writing to {error.filename or path} failed: {what}. Finished work is kept; "
        f"once the cause is fixed, resume with: {command('acr', 'resume', path)}"
    )
