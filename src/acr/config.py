"""RunConfig: everything a run depends on, in one frozen model that defines the flags, the YAML file and the validation.

A field's docstring is its help text. :func:`acr.runs.resolve.make_config` fills in what is not given. The
``config.yaml`` of a run folder holds every value that was used, so that the run can be repeated from that file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from acr.errors import InputError, shown
from acr.protocols import Protocol
from acr.values import (
    OFF,
    RESNET18,
    Duration,
    Integers,
    Names,
    PerPlace,
    Whole,
    half_life,
    network_name,
    to_class_order,
    whole_number,
    with_ranges,
)

LARGEST = 1e30
"""The largest other number of any field: what networks compute with ends at 3e38."""


class Settings(BaseModel):
    """A frozen model of settings: unknown fields are refused, whole numbers are never rounded, others are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_rounding(cls, value: Any, info: ValidationInfo) -> Any:
        kind = cls.model_fields[str(info.field_name)].annotation
        return whole_number(value) if kind is int or (kind == int | None and value is not None) else value

    @field_validator("*", mode="after")
    @classmethod
    def _fits_the_network(cls, value: Any) -> Any:
        if isinstance(value, float) and abs(value) > LARGEST:
            raise ValueError(f"a number of at most {LARGEST:g}")
        return value


class MethodOptions(Settings):
    """Options of a method: a flat, frozen model. Each field becomes a flag, and its docstring is the help text."""

    revision: ClassVar[int] = 1
    """Raised when the method changes what it does with the same options: runs before and after are not the same."""
    added_later: ClassVar[Mapping[str, Any]] = {}
    """Options that earlier versions did not have, with the value that means what those did."""
    sources: ClassVar[Mapping[str, str]] = {}
    """Where the default of each option comes from (a paper, a program, a measurement), for ``acr methods NAME``."""

    @classmethod
    def source_of(cls, option: str) -> str:
        """Where the default of an option comes from; empty if nobody says. A class adds to those it is built on."""
        classes = (base for base in cls.__mro__ if issubclass(base, MethodOptions))
        return next((base.sources[option] for base in classes if option in vars(base).get("sources", {})), "")


Model = TypeVar("Model", bound=BaseModel)
Precision = Literal["32", "bf16-mixed", "16-mixed"]
DataDevice = Literal["auto", "host", "device"]


class DataConfig(Settings):
    """Which images of a data set are read, and how they are found."""

    samples_per_class: int | None = Field(None, ge=1)
    """Train on at most this many images per class, drawn with --data-seed; by default on all."""
    test_samples_per_class: int | None = Field(None, ge=1)
    """Test on at most this many images per class; by default on all."""
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
    """Data set to learn; `acr data list` lists all of them. Use folder:PATH, csv:PATH or npz:PATH for your data."""
    seed: int = Field(0, ge=0)
    """Seed of everything random in the run."""
    buffer_size: int = Field(500, ge=0)
    """Number of places in the replay memory, each as large as an image."""
    images_per_place: PerPlace = 1
    """Images that share a place of the memory, up to 16, or auto: 8 colour images of 32 pixels and more, and 1 of any
    other kind. If several do, they are stored compressed, and all images are learned as compression leaves them."""

    epochs: int = Field(50, ge=1, le=1_000_000)
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
    network: Annotated[str, BeforeValidator(network_name)] = RESNET18
    """Encoder: resnet18, or your function that makes one, as MODULE:FUNCTION or FILE.py:FUNCTION; its code is run."""
    width: int = Field(64, ge=1)
    """Channels of the encoder's first stage; the paper uses 64."""
    stem: Literal["cifar", "imagenet"] = "cifar"
    """First layers of resnet18: a 3x3 convolution (cifar), or a strided 7x7 one and a max pool (imagenet)."""
    weights: Path | None = None
    """File (safetensors) with weights of the encoder to start from; the head starts anew."""
    weights_digest: str | None = None
    """Checksum of the --weights file; recorded with the run, which accepts no other file afterwards."""

    average_weights: Annotated[str, BeforeValidator(half_life)] = OFF
    """Answer with the mean of the weights over the steps, where a step counts half as much after this many later ones:
    300, or 0.2t, a share of a task's steps, or auto, a share that grows with the number of tasks. The network as
    trained is evaluated too."""

    protocol: Literal["sound", "published"] = "sound"
    """`published` restores the quirks of the paper's released program; docs/protocols.md describes them."""
    quirk: Names = ()
    """Individual quirks of the published protocol to switch on."""
    no_quirk: Names = ()
    """Individual quirks of the published protocol to switch off."""

    tasks: int | None = Field(None, ge=1)
    """Number of tasks, all of equal size."""
    classes_per_task: Integers | None = None
    """Classes per task: one number for all tasks, or one for each task, such as 4,3,3; by default as --tasks says."""
    class_order: Annotated[str | tuple[Whole, ...], BeforeValidator(to_class_order)] = "file"
    """Order in which classes arrive: file (ascending labels), random:SEED, or a list of labels, such as 5,0-3."""
    ood_every: Literal["stage", "end", "never"] = "stage"
    """When to evaluate under shift: after every task (stage), after the last task only (end), or never."""
    ood_corruptions: Names | None = None
    """Corruptions of the test images, such as fog,snow; by default the data set's (usually the paper's eleven)."""
    ood_severities: Annotated[tuple[Whole, ...], BeforeValidator(with_ranges)] = (1,)
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
    threads: int | None = Field(None, ge=1, le=1024)
    """CPU threads; by default one or all cores, whichever a short measurement finds faster."""
    deterministic: bool | None = None
    """Bit-identical results, by default on a CPU only; on a GPU, this selects slower, deterministic algorithms."""
    checkpoint_every: Duration = Field(300.0, ge=0)
    """Time between checkpoints, in seconds or such as 90s, 5m or 1h; one is also written at the end of every task."""
    keep: int = Field(2, ge=1)
    """Number of checkpoints to keep."""
    eval_every: int | None = Field(None, ge=1)
    """Epochs between extra evaluations for the screen and events.jsonl, by default none. Results never depend on it."""
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
        if self.stem != "cifar" and self.network != RESNET18:
            raise ValueError(f"--stem {self.stem} applies to --network {RESNET18} only, not to {self.network}")
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
        for name, default in (*ADDED_LATER.items(), *self.options.added_later.items()):
            if relevant[name] == default:  # so that runs made before the field existed keep their identity
                del relevant[name]
        if self.options.revision > 1:
            relevant["revision"] = self.options.revision
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
    {
        "out",
        "data_root",
        "data_cache",
        "weights",
        "device",
        "data_device",
        "compile",
        "threads",
        "deterministic",
        "quiet",
    }
    | {"checkpoint_every", "keep", "eval_every", "log_every", "tensorboard", "wandb"}
    | {"variant"}
)
"""Fields that determine where and how a run is executed, but not its results; and presets: their values count."""


ADDED_LATER: Mapping[str, Any] = {
    "precision": "32",
    "tf32": False,
    "stem": "cifar",
    "weights_digest": None,
    "average_weights": OFF,
    "images_per_place": 1,
}
"""Fields that change results and that earlier versions did not have, with the value that means what those did."""


MOST_TOLD = 10
"""Problems of one config that are told, each in a sentence."""


def validated(model: type[Model], values: Mapping[str, Any]) -> Model:
    """A model made of these values; each wrong value is reported in one sentence of an :class:`InputError`."""
    try:
        return model(**values)
    except ValidationError as error:
        # A list may be wrong in every place, and in all of them for the same reason.
        said = list(dict.fromkeys(in_words(problem) for problem in error.errors()))
        more = [f"And {len(said) - MOST_TOLD} more of the kind."] if len(said) > MOST_TOLD else []
        raise InputError("\n".join([*said[:MOST_TOLD], *more])) from None


IN_WORDS = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "yes or no",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "at most {le:g}",
}
"""What a value should have been, by pydantic's name of the problem."""


def in_words(problem: Any) -> str:
    """A validation problem as a sentence that names the flag, the value, and what is expected."""
    told = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ").rstrip(".")
    limits = problem.get("ctx", {})
    what = IN_WORDS[problem["type"]].format(**limits) if problem["type"] in IN_WORDS else told
    if not problem["loc"]:
        return f"{what[:1].upper()}{what[1:]}."
    name = str(problem["loc"][0])
    return f"--{name.replace('_', '-')} {shown(problem['input'])}: expected {what}."
