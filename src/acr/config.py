"""RunConfig: everything a run depends on, in one frozen model that defines the flags, the YAML file and the validation.

A field's docstring is its help text. :func:`acr.runs.resolve.make_config` fills in what is not given. The
``config.yaml`` of a run folder holds every value that was used, so that the run can be repeated from that file.
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
    """Options of a method: a flat, frozen model. Each field becomes a flag, and its docstring is the help text."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _as_list(value: Any) -> Any:
    """``"3,3,4"`` and ``"3 3 4"`` as a list; a single value as a list of one."""
    if isinstance(value, str):
        return [part for part in value.replace(",", " ").split() if part]
    return [value] if isinstance(value, int) else value


def _with_ranges(value: Any) -> Any:
    """As :func:`_as_list`, with ``"1-5"`` standing for 1, 2, 3, 4, 5."""
    given = _as_list(value)
    if not isinstance(given, (list, tuple)):
        return given  # not a list at all: validation reports it
    parts: list[Any] = []
    for part in given:
        low, dash, high = str(part).partition("-")
        span = dash and low.isdecimal() and high.isdecimal() and len(low) < 5 and len(high) < 5
        parts += range(int(low), int(high) + 1) if span else [part]
    return parts


def _class_order(value: Any) -> Any:
    """A list of labels as numbers; ``file`` and ``random:SEED`` stay text."""
    if isinstance(value, str) and value != "file" and not value.startswith("random:"):
        return _with_ranges(value)
    return value


def _seconds(value: Any) -> Any:
    """``"5m"``, ``"90s"``, ``"1h"`` as seconds."""
    if isinstance(value, str) and value[-1:] in "smh" and value[:-1].replace(".", "", 1).isdigit():
        return float(value[:-1]) * {"s": 1, "m": 60, "h": 3600}[value[-1]]
    return value


Model = TypeVar("Model", bound=BaseModel)
Precision = Literal["32", "bf16-mixed", "16-mixed"]
DataDevice = Literal["auto", "host", "device"]
Integers = Annotated[tuple[int, ...], BeforeValidator(_as_list)]
Names = Annotated[tuple[str, ...], BeforeValidator(_as_list)]
Duration = Annotated[float, BeforeValidator(_seconds)]


class DataConfig(BaseModel):
    """Which images of a data set are read, and how they are found."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    samples_per_class: int | None = Field(None, ge=1)
    """Train on at most this many images per class, drawn with --data-seed."""
    test_samples_per_class: int | None = Field(None, ge=1)
    """Test on at most this many images per class."""
    validation_fraction: float = Field(0.0, ge=0, lt=1)
    """Hold out this fraction of the training images and evaluate on them instead of the test set."""
    data_seed: int = Field(0, ge=0)
    """Seed that chooses images for --samples-per-class and --validation-fraction; independent of --seed."""
    image_size: int | None = Field(None, ge=8, le=1024)
    """Side of the images in pixels, 8 to 1024; by default the data set's own."""
    skip_broken: bool = False
    """Leave out unreadable files instead of stopping with an error."""
    data_root: Path | None = None
    """Folder that holds data sets; searched before the folder named by ACR_DATA and before the cache."""
    data_cache: Path | None = None
    """Folder for decoded images; by default the one named by ACR_CACHE, or else the user's cache folder."""
    quiet: bool = False
    """Show no progress."""


class RunConfig(DataConfig):
    """Everything that a run depends on."""

    method: str = "acr"
    """Method to train; `acr methods` lists all of them."""
    dataset: str = "split-digits"
    """Data set to learn; `acr data list` lists all of them. Use folder:PATH or npz:PATH for your own data."""
    seed: int = Field(0, ge=0)
    """Seed of everything random in the run."""
    buffer_size: int = Field(500, ge=0)
    """Number of samples that the replay memory can hold."""

    epochs: int = Field(50, ge=1)
    """Epochs per task."""
    batch_size: int = Field(32, ge=1)
    """Samples of the current task per training step."""
    replay_size: int = Field(32, ge=1)
    """Samples from the memory per training step."""
    learning_rate: float = Field(0.1, gt=0)
    """Learning rate of SGD."""
    momentum: float = Field(0.0, ge=0, lt=1)
    """Momentum of SGD."""
    weight_decay: float = Field(0.0, ge=0)
    """Weight decay of SGD."""
    lr_milestones: Integers = ()
    """Epochs of each task at which the learning rate is multiplied by --lr-decay, such as 35,45."""
    lr_decay: float = Field(0.1, gt=0, le=1)
    """Factor by which the learning rate is multiplied at each milestone."""
    network: Literal["resnet18"] = "resnet18"
    """Architecture of the encoder."""
    width: int = Field(64, ge=1)
    """Channels of the encoder's first stage; the paper uses 64."""

    protocol: Literal["sound", "published"] = "sound"
    """`published` restores the quirks of the paper's released program; docs/protocols.md describes them."""
    quirk: Names = ()
    """Individual quirks of the published protocol to switch on."""
    no_quirk: Names = ()
    """Individual quirks of the published protocol to switch off."""

    tasks: int | None = Field(None, ge=1)
    """Number of tasks, all of equal size."""
    classes_per_task: Integers | None = None
    """Classes per task: one number for all tasks, or one for each task, such as 4,3,3."""
    class_order: Annotated[str | tuple[int, ...], BeforeValidator(_class_order)] = "file"
    """Order in which classes arrive: file (ascending labels), random:SEED, or a list of labels, such as 5,0-3."""
    ood_every: Literal["stage", "end", "never"] = "stage"
    """When to evaluate under shift: after every task (stage), after the last task only (end), or never."""
    ood_corruptions: Names | None = None
    """Corruptions of the test images, such as fog,snow; by default the data set's (usually the paper's eleven)."""
    ood_severities: Annotated[tuple[int, ...], BeforeValidator(_with_ranges)] = (1,)
    """Severities of the corruptions, from 1 to 5, such as 1,3 or 1-5."""
    ood_constants: Literal["imagenet-c", "cifar-c"] = "imagenet-c"
    """Table of constants that defines how strong each severity is."""

    options: SerializeAsAny[MethodOptions] = MethodOptions()
    """Options of the method; in files and on the command line they appear beside the other fields."""

    out: Path = Path("runs")
    """Folder in which the run's own folder is created."""
    device: str = "auto"
    """Device to train on: auto, cpu, cuda, cuda:1 or mps."""
    data_device: DataDevice = "auto"
    """Where images are kept on an accelerator: on the device, on the host, or on the device if they fit (auto)."""
    precision: Precision = "32"
    """Arithmetic of the network: 32 bits, or mixed with 16 (bf16-mixed, 16-mixed), which is faster on recent GPUs."""
    tf32: bool = False
    """Let a GPU round the inputs of 32-bit products to 19 bits (TensorFloat-32): faster, less exact."""
    compile: bool = False
    """Compile the network with torch.compile: a slow start, then faster steps on a GPU."""
    threads: int | None = Field(None, ge=1)
    """CPU threads; by default one or all cores, whichever a short measurement finds faster."""
    deterministic: bool | None = None
    """Bit-identical results. Always the case on a CPU; on a GPU, this selects slower, deterministic algorithms."""
    checkpoint_every: Duration = Field(300.0, ge=0)
    """Time between checkpoints, such as 90s, 5m or 1h; one is also written at the end of every task."""
    keep: int = Field(2, ge=1)
    """Number of checkpoints to keep."""
    eval_every: int | None = Field(None, ge=1)
    """Number of epochs between extra evaluations, for the screen and events.jsonl; results do not depend on it."""
    log_every: int = Field(50, ge=1)
    """Number of steps between log lines in events.jsonl."""
    tensorboard: bool = False
    """Also write losses, accuracies and resource use for TensorBoard, into the run's folder."""
    wandb: Literal["off", "online", "offline"] = "off"
    """Also log to Weights & Biases; `offline` keeps the log in the run's folder."""

    @model_validator(mode="after")
    def _check(self) -> RunConfig:
        Protocol.make(self.protocol, self.quirk, self.no_quirk)
        bad = [s for s in self.ood_severities if not 1 <= s <= 5]
        if bad:
            raise ValueError(f"severities run from 1 to 5; got {bad[0]}")
        return self

    def flat(self) -> dict[str, Any]:
        """All values, including the method's options, in the form in which they are written to a file."""
        values = self.model_dump(mode="json")
        options = values.pop("options")
        first = {name: values[name] for name in ("method", "dataset", "seed", "buffer_size")}
        return {**first, **values, **options}

    def identity(self) -> str:
        """Hash of the fields that affect results. Two configs with the same identity are the same run."""
        relevant = {name: value for name, value in self.flat().items() if name not in NOT_PART_OF_IDENTITY}
        for name, default in ADDED_LATER.items():
            if relevant[name] == default:  # so that runs made before the field existed keep their identity
                del relevant[name]
        return hashlib.blake2b(json.dumps(relevant, sort_keys=True).encode(), digest_size=8).hexdigest()

    def data_key(self) -> tuple[Any, ...]:
        """What decides which images are read: two configs with the same key read the same."""
        fields = [name for name in DataConfig.model_fields if name != "quiet"]
        return (self.dataset, *(getattr(self, name) for name in fields))

    def rate_in_epoch(self, epoch: int) -> float:
        """The learning rate in an epoch of any task: multiplied by the decay at every milestone that is passed."""
        passed = sum(epoch >= milestone for milestone in self.lr_milestones)
        return self.learning_rate * self.lr_decay**passed

    def protocol_in_force(self) -> Protocol:
        """The protocol, with individual quirks switched on and off."""
        return Protocol.make(self.protocol, self.quirk, self.no_quirk)


NOT_PART_OF_IDENTITY = frozenset(
    {"out", "data_root", "data_cache", "device", "data_device", "compile", "threads", "deterministic", "quiet"}
    | {"checkpoint_every", "keep", "eval_every", "log_every", "tensorboard", "wandb"}
)
"""Fields that determine where and how a run is executed, but not its results."""


ADDED_LATER: Mapping[str, Any] = {"precision": "32", "tf32": False}
"""Fields that change results and that earlier versions did not have, with the value that means what those did."""


def validated(model: type[Model], values: Mapping[str, Any]) -> Model:
    """A model made of these values; each wrong value is reported in one sentence of an :class:`InputError`."""
    try:
        return model(**values)
    except ValidationError as error:
        raise InputError("\n".join(in_words(problem) for problem in error.errors())) from None


def in_words(problem: Any) -> str:
    """A validation problem as a sentence that names the flag, the value, and what is expected."""
    what = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ").rstrip(".")
    if not problem["loc"]:
        return f"{what[:1].upper()}{what[1:]}."
    name = str(problem["loc"][0])
    return f"--{name.replace('_', '-')} {problem['input']!r}: expected {what}."
