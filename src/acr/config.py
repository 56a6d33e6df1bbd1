"""RunConfig: everything a run depends on, in one frozen model that is flags, YAML file and validation at once.

A field's docstring is its help text. :func:`acr.runs.resolve.make_config` completes what is not given. A run folder's
``config.yaml`` holds every value in force, so it runs again as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, ValidationError, model_validator

from acr.errors import InputError
from acr.protocols import Protocol


class MethodOptions(BaseModel):
    """Options of a method: a flat, frozen model. Each field becomes a flag; its docstring is the help text."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _split(value: Any) -> Any:
    """``"3,3,4"`` and ``"3 3 4"`` as a list; a single value as a list of one."""
    if isinstance(value, str):
        return [part for part in value.replace(",", " ").split() if part]
    return [value] if isinstance(value, int) else value


def _ranges(value: Any) -> Any:
    """As :func:`_split`, with ``"1-5"`` standing for 1, 2, 3, 4, 5."""
    given = _split(value)
    if not isinstance(given, (list, tuple)):
        return given  # not a list at all: validation says so
    parts: list[Any] = []
    for part in given:
        low, dash, high = str(part).partition("-")
        span = dash and low.isdecimal() and high.isdecimal() and len(low) < 5 and len(high) < 5
        parts += range(int(low), int(high) + 1) if span else [part]
    return parts


def _class_order(value: Any) -> Any:
    if isinstance(value, str) and value != "file" and not value.startswith("random:"):
        return _ranges(value)
    return value


def _seconds(value: Any) -> Any:
    """``"5m"``, ``"90s"``, ``"1h"`` as seconds."""
    if isinstance(value, str) and value[-1:] in "smh" and value[:-1].replace(".", "", 1).isdigit():
        return float(value[:-1]) * {"s": 1, "m": 60, "h": 3600}[value[-1]]
    return value


Model = TypeVar("Model", bound=BaseModel)
Integers = Annotated[tuple[int, ...], BeforeValidator(_split)]
Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Duration = Annotated[float, BeforeValidator(_seconds)]


class DataConfig(BaseModel):
    """Which images of a data set are read, and how they are found."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    samples_per_class: int | None = Field(None, ge=1)
    """Train on at most this many images of each class, drawn by --data-seed."""
    test_samples_per_class: int | None = Field(None, ge=1)
    """Test on at most this many images of each class."""
    validation_fraction: float = Field(0.0, ge=0, lt=1)
    """Hold this share of the training images out and evaluate on it in place of the test set."""
    data_seed: int = Field(0, ge=0)
    """Seed of the draws of --samples-per-class and --validation-fraction; the same for all --seed."""
    image_size: int | None = Field(None, ge=8, le=1024)
    """Side of the images in pixels, 8 to 1024; the data set's own if not given."""
    skip_broken: bool = False
    """Leave unreadable files out instead of stopping at them."""
    data_root: Path | None = None
    """Folder that holds data sets; searched before the environment variable ACR_DATA and the cache."""
    data_cache: Path | None = None
    """Folder for decoded images; the user's cache folder if not given."""
    quiet: bool = False
    """Show no progress."""


class RunConfig(DataConfig):
    """Everything that a run depends on."""

    method: str = "acr"
    """What learns; `acr methods` lists them."""
    dataset: str = "split-digits"
    """What is learned; `acr data list` lists them. folder:PATH and npz:PATH are one's own."""
    seed: int = Field(0, ge=0)
    """Everything random in a run follows from this."""
    buffer_size: int = Field(500, ge=0)
    """How many samples the replay memory holds."""

    epochs: int = Field(50, ge=1)
    """Epochs a task."""
    batch_size: int = Field(32, ge=1)
    """Samples of the current task in a step."""
    replay_size: int = Field(32, ge=1)
    """Samples of the memory in a step."""
    learning_rate: float = Field(0.1, gt=0)
    """Step size of SGD."""
    momentum: float = Field(0.0, ge=0, lt=1)
    """Momentum of SGD."""
    weight_decay: float = Field(0.0, ge=0)
    """Weight decay of SGD."""
    lr_milestones: Integers = ()
    """Epochs of each task at which the learning rate is multiplied by --lr-decay, such as 35,45."""
    lr_decay: float = Field(0.1, gt=0, le=1)
    """Factor of the learning rate at each milestone."""
    network: Literal["resnet18"] = "resnet18"
    """The encoder."""
    width: int = Field(64, ge=1)
    """Channels of the encoder's first stage; the paper's is 64."""

    protocol: Literal["sound", "published"] = "sound"
    """`published` brings back what the paper's released program does; docs/protocols.md tells what that is."""
    quirk: Names = ()
    """Single quirks of the published protocol to switch on."""
    no_quirk: Names = ()
    """Single quirks to switch off."""

    tasks: int | None = Field(None, ge=1)
    """Number of tasks, of equal size."""
    classes_per_task: Integers | None = None
    """Classes of each task: one number for all, or one each, such as 4,3,3."""
    class_order: Annotated[str | tuple[int, ...], BeforeValidator(_class_order)] = "file"
    """Order in which classes arrive: file, random:SEED, or a list of labels, such as 5,0-3."""
    ood_every: Literal["stage", "end", "never"] = "stage"
    """When to evaluate under shift: after every task, after the last, or never."""
    ood_corruptions: Names | None = None
    """Corruptions of the test images; the data set's default (for most the paper's eleven) if not given."""
    ood_severities: Annotated[tuple[int, ...], BeforeValidator(_ranges)] = (1,)
    """Severities 1 to 5, such as 1,3 or 1-5."""
    ood_constants: Literal["imagenet-c", "cifar-c"] = "imagenet-c"
    """Table of constants of the corruptions."""

    options: SerializeAsAny[MethodOptions] = MethodOptions()
    """Options of the method; in files and flags they stand beside the other fields."""

    out: Path = Path("runs")
    """Folder in which the run's own folder is made."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps."""
    threads: int | None = Field(None, ge=1)
    """CPU threads; all cores if not given."""
    deterministic: bool | None = None
    """Equal bits from equal runs. Always so on a CPU; on a GPU this asks torch for slower, deterministic algorithms."""
    checkpoint_every: Duration = Field(300.0, ge=0)
    """Time between two checkpoints, such as 90s, 5m or 1h; there is always one at the end of a task."""
    keep: int = Field(2, ge=1)
    """How many checkpoints to keep."""
    eval_every: int | None = Field(None, ge=1)
    """Also evaluate every so many epochs, for events.jsonl and the screen; results do not depend on it."""
    log_every: int = Field(50, ge=1)
    """Steps between two lines in events.jsonl."""
    tensorboard: bool = False
    """Also write losses, accuracies and readings for TensorBoard, into the run's folder."""
    wandb: Literal["off", "online", "offline"] = "off"
    """Also log to Weights & Biases; offline keeps it all in the run's folder."""

    @model_validator(mode="after")
    def _check(self) -> RunConfig:
        Protocol.make(self.protocol, self.quirk, self.no_quirk)
        bad = [s for s in self.ood_severities if not 1 <= s <= 5]
        if bad:
            raise ValueError(f"severities run from 1 to 5; got {bad[0]}")
        return self

    def flat(self) -> dict[str, Any]:
        """All values in force, the method's options among them, as they stand in a file."""
        values = self.model_dump(mode="json")
        options = values.pop("options")
        first = {name: values[name] for name in ("method", "dataset", "seed", "buffer_size")}
        return {**first, **values, **options}

    def identity(self) -> str:
        """Hash of what changes results. Two configs with the same identity are the same run."""
        relevant = {name: value for name, value in self.flat().items() if name not in NOT_PART_OF_IDENTITY}
        return hashlib.blake2b(json.dumps(relevant, sort_keys=True).encode(), digest_size=8).hexdigest()

    def rate_in_epoch(self, epoch: int) -> float:
        """The learning rate in an epoch of any task: multiplied by the decay at every milestone passed."""
        passed = sum(epoch >= milestone for milestone in self.lr_milestones)
        return self.learning_rate * self.lr_decay**passed

    def protocol_in_force(self) -> Protocol:
        """The protocol with its single quirks."""
        return Protocol.make(self.protocol, self.quirk, self.no_quirk)


NOT_PART_OF_IDENTITY = frozenset(
    {"out", "data_root", "data_cache", "device", "threads", "deterministic", "quiet"}
    | {"checkpoint_every", "keep", "eval_every", "log_every", "tensorboard", "wandb"}
)
"""Fields that say where and how a run is carried out, not what comes out of it."""


def validated(model: type[Model], values: Mapping[str, Any]) -> Model:
    """A model made of these values; wrong ones are refused with one sentence each."""
    try:
        return model(**values)
    except ValidationError as error:
        raise InputError("\n".join(in_words(problem) for problem in error.errors())) from None


def in_words(problem: Any) -> str:
    """One problem as a sentence with the flag, the value, and what is expected."""
    what = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ").rstrip(".")
    if not problem["loc"]:
        return f"{what[:1].upper()}{what[1:]}."
    name = str(problem["loc"][0])
    return f"--{name.replace('_', '-')} {problem['input']!r}: expected {what}."
