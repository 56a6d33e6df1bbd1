"""The interface of a method, what it is given, and the registry.

A method is a class with a handful of functions, called in this order:

    for task in stream:
        begin_task(task)
        for epoch ...:
            for batch ...:
                observe(batch)      # makes the optimiser step itself, returns the loss
            end_epoch()
        end_task(task)

It sees the current task only: no samples of other tasks, no test images, no files, no device names, no command line.
Whatever it keeps between two calls belongs in ``state_dict``; a run resumed from it continues as if never interrupted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from acr.config import MethodOptions, Precision, RunConfig
from acr.data.stream import Task
from acr.data.strong_view import StrongDraws
from acr.errors import InputError, unknown
from acr.memory.confidence import ConfidenceTable
from acr.methods.context import Batch as Batch
from acr.methods.context import Context as Context
from acr.methods.second_views import SecondView, SecondViewDraws, wrapped_view
from acr.networks import Network
from acr.networks.averaging import WeightAverage


class Method:
    """Base class: network, optimiser, and what most methods share. Subclasses implement ``observe``."""

    name: ClassVar[str]
    """How commands and files call it."""
    label: ClassVar[str] = ""
    """How tables, figures and pages call it; the name if empty. Colour and rank follow the order of the registry."""
    summary: ClassVar[str] = ""
    """One line for ``acr methods``."""
    reference: ClassVar[bool] = False
    """Not a contender but what methods are measured against (fine-tuning, joint training): grey, last in tables."""
    Options: ClassVar[type[MethodOptions]] = MethodOptions
    head: ClassVar[Literal["linear", "proxy"]] = "linear"
    uses_memory: ClassVar[bool] = True
    """Whether the method uses the buffer size."""
    sees_all_tasks: ClassVar[bool] = False
    """Whether it is trained on the merged stream: an upper bound, not a continual method."""
    settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Config values by data set, where its authors or the paper used others than the data set's own defaults."""
    settings_source: ClassVar[str] = "the launcher of the paper's released program"
    """Where :attr:`settings` come from, for ``acr methods NAME``."""
    precisions: ClassVar[Collection[Precision]] = ("32", "bf16-mixed", "16-mixed")
    """Values of ``--precision`` that it can run with. ``16-mixed`` scales the loss, so that a method that uses
    gradients itself, and not only through :meth:`step`, cannot."""
    uses_last_epochs: ClassVar[bool] = False
    """Whether the last epochs of a task differ from the others, so that a task cannot be ended early."""
    no_average: ClassVar[str] = ""
    """Why ``--average-weights`` does not apply to the method, as a clause; empty if it does."""
    exemptions: ClassVar[Mapping[str, str]] = {}
    """Checks of :func:`acr.testing.check_method` that do not apply, each with the reason."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        # Both describe one method: a method built on another one must not be taken for it in tables.
        cls.label = vars(cls).get("label", "")
        cls.reference = vars(cls).get("reference", False)

    def __init__(self, network: Network, options: MethodOptions, context: Context) -> None:
        self.network = network
        self.options = options
        self.context = context
        self.optimizer = self.make_optimizer(network)
        self.confidence: ConfidenceTable | None = None
        """Confidence of the current task's samples, if the method records it."""
        self.average: WeightAverage | None = None
        """The averaged network, if the run has one. The training loop updates it after every step."""

    @classmethod
    def settings_for(cls, dataset: str, buffer_size: int) -> Mapping[str, Any]:
        """:attr:`settings` for a data set; overridden where a value depends on the buffer size too."""
        return cls.settings.get(dataset, {})

    @classmethod
    def complete_config(cls, config: RunConfig) -> RunConfig:
        """Fill in the fields that follow from others, before anything is read or written.

        Raises an error for a config that this method cannot run.
        """
        return config

    @classmethod
    def shortened(cls, config: RunConfig) -> tuple[MethodOptions, float]:
        """Options that shorten long work at the end of a task, and by what factor they do: for estimates of time."""
        return config.options, 1.0

    @classmethod
    def caveat(cls, values: Mapping[str, Any]) -> str:
        """What reports must say beside the method's name for a run with these config values; usually nothing."""
        return ""

    def make_optimizer(self, network: Network) -> torch.optim.Optimizer:
        """SGD, without momentum and weight decay unless the run sets them; one optimiser for the whole run."""
        c = self.context
        return torch.optim.SGD(
            network.parameters(),
            lr=c.learning_rate,
            momentum=c.momentum,
            weight_decay=c.weight_decay,
            fused=True if c.device.type == "cuda" else None,
        )

    def begin_task(self, task: Task) -> None:
        """A new task starts. Set only what ``state_dict`` holds: a run resumed within the task does not call this."""

    def observe(self, batch: Batch) -> Tensor | None:
        """Learn from a batch; returns the loss before the step as a scalar, or None if there is no loss.

        The network is in training mode when this is called.
        """
        raise NotImplementedError

    def end_epoch(self) -> None:
        """All batches of an epoch have been observed."""

    def end_task(self, task: Task) -> None:
        """All epochs of a task are over."""

    @contextmanager
    def answering(self, *, as_trained: bool = False) -> Iterator[None]:
        """Ask the method within this: ``network`` is then the one that answers, in evaluation mode.

        It is the averaged one, if the run has one, unless the network ``as_trained`` is wanted.
        """
        trained = self.network
        if self.average is not None and not as_trained:
            self.network = self.average.network
        self.network.eval()
        try:
            yield
        finally:
            self.network = trained

    def logits(self, images: Tensor) -> Tensor:
        """Scores of all classes, n x K, by ``network``, which is in evaluation mode; see :meth:`answering`."""
        return self.network(images)

    def predictor(self) -> nn.Module:
        """What answers, as one module in evaluation mode that maps images to the scores of :meth:`logits`.

        A classifier is exported from it, so a method that overrides ``logits`` overrides this too.
        """
        return self.network.eval()

    def embed(self, images: Tensor) -> Tensor:
        """Embeddings of images, n x features, by the network that answers; it is in evaluation mode."""
        return self.network.features(images)

    def draw_second_view(self, n: int, kind: SecondView, part: int = 0) -> SecondViewDraws:
        """Draws of the second view of ``n`` images, on the host; ``part`` gives each call in one step its own."""
        views, generator = self.context.views, self.context.generator("second-view", part)
        if kind == "strong":
            return views.draw_strong((n, *self.context.image_shape), generator)
        return views.draw_crop_flip(n, generator) if kind == "crop-flip" else None

    def second_view(self, images: Tensor, draws: SecondViewDraws) -> Tensor:
        """A second view of every image, made from the first by draws that were sent to the device."""
        if "wrapped-views" in self.context.protocol:
            return wrapped_view(images, lambda first: self._view(first, draws), self.network.mean, self.network.std)
        return self._view(images, draws)

    def _view(self, images: Tensor, draws: SecondViewDraws) -> Tensor:
        assert draws is not None
        views = self.context.views
        return views.strong(images, draws) if isinstance(draws, StrongDraws) else views.crop_flip(images, draws)

    def step(self, loss: Tensor) -> None:
        """One optimiser step on the gradient of a loss."""
        self.optimizer.zero_grad(set_to_none=True)
        scaler = self.context.scaler
        if scaler is None:
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        else:
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            scaler.step(self.optimizer)  # left out where a scaled gradient overflowed
            scaler.update()

    def state_dict(self) -> dict[str, Any]:
        """Everything the method keeps, as nested dicts and lists of tensors, numbers, strings and None."""
        state = {"network": dict(self.network.state_dict()), "optimizer": self.optimizer.state_dict()}
        if self.average is not None:
            state["average"] = self.average.state_dict()
        return state if self.context.scaler is None else {**state, "scaler": self.context.scaler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        if self.context.scaler is not None:
            self.context.scaler.load_state_dict(state["scaler"])

    def memory(self) -> dict[str, Tensor]:
        """Contents of the replay memory (``images``, ``labels``, ``tasks``, further columns); empty without one."""
        return {}

    def memory_as_stored(self) -> dict[str, Tensor]:
        """What the memory takes up: as :meth:`memory`, but images as they are stored, which may be compressed."""
        return self.memory()

    def keep_in_memory(self, slots: Tensor) -> None:
        """Remove all samples from the memory but those in these slots: people must be able to delete their data."""

    def facts(self) -> dict[str, float]:
        """Figures about itself that belong in a run's summary, by name; what they are counted from is in the state."""
        return {}

    def side_memory_bytes(self) -> int:
        """Bytes kept of past samples outside the memory (anchors, for example), reported separately from the budget."""
        return 0


REGISTRY: dict[str, str | type[Method]] = {
    "acr": "acr.methods.acr:ACR",
    "er": "acr.methods.er:ER",
    "gem": "acr.methods.gem:GEM",
    "agem": "acr.methods.agem:AGEM",
    "gss": "acr.methods.gss:GSS",
    "gdumb": "acr.methods.gdumb:GDumb",
    "hal": "acr.methods.hal:HAL",
    "metasp": "acr.methods.metasp:MetaSP",
    "soif": "acr.methods.soif:SOIF",
    "derpp": "acr.methods.derpp:DERpp",
    "er-ace": "acr.methods.er_ace:ERACE",
    "pcr": "acr.methods.pcr:PCR",
    "cls-er": "acr.methods.cls_er:CLSER",
    "scr": "acr.methods.scr:SCR",
    "aver": "acr.methods.aver:Aver",
    "finetune": "acr.methods.finetune:Finetune",
    "joint": "acr.methods.joint:Joint",
}
"""Maps a name to a class, or to "module:Class", imported only when used. Tables and colours follow this order."""


class Broken(NamedTuple):
    """A method of another package that cannot be used."""

    why: str
    """A sentence that names the package."""
    error: Exception | None = None


@cache
def _installed() -> dict[str, list[EntryPoint]]:
    """Methods of other packages, which name them in their entry points ``acr.methods``."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group="acr.methods"):
        found.setdefault(entry.name, []).append(entry)
    return found


@cache
def _load(name: str) -> type[Method] | Broken:
    """The class of an installed method. One broken package must not keep the others from being used."""
    entries = _installed()[name]
    if len(entries) > 1:
        return Broken(f"Several packages have a method {name!r}: {_packages(entries)}. Uninstall all but one of them.")
    begin = f"The package {_packages(entries)} has a method {name!r} that cannot be used: "
    try:
        found = entries[0].load()
    except Exception as error:  # whatever the import of somebody's module raises
        said = " ".join(str(error).split())[:300]
        return Broken(f"{begin}{entries[0].value} cannot be imported ({type(error).__name__}: {said}).", error)
    if not (isinstance(found, type) and issubclass(found, Method)):
        return Broken(f"{begin}{entries[0].value} is not a subclass of acr.methods.method.Method.")
    why = unfit(found)
    if not why and found.name != name:
        why = f"{entries[0].value} calls itself {found.name!r}; class and entry point must use one name"
    return Broken(f"{begin}{why}.") if why else found


def _packages(entries: Iterable[EntryPoint]) -> str:
    """The names of the packages that have these entry points."""
    return " and ".join(sorted(entry.dist.name if entry.dist is not None else "unknown" for entry in entries))


def unfit(cls: type[Method]) -> str:
    """Why the command line and config files could not use a method, as a clause; empty if they can."""
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not name:
        return "the class has no name"
    if not isinstance(cls.Options, type) or not issubclass(cls.Options, MethodOptions):
        return "Options is not a subclass of acr.config.MethodOptions"
    clash = sorted(set(cls.Options.model_fields) & set(RunConfig.model_fields))
    return f"the options {clash} have names that are already fields of every run" if clash else ""


def register(method: type[Method]) -> type[Method]:
    """Register a method under its name; use it as a decorator. Packages can use the entry point ``acr.methods``."""
    known = REGISTRY.get(method.name)
    if known is not None and known is not method:
        raise InputError(f"A method {method.name!r} exists already ({known}); give yours another name.")
    REGISTRY[method.name] = method
    return method


def method_names() -> list[str]:
    """All methods: this package's, those registered in this process, and those of installed packages."""
    return list(dict.fromkeys((*REGISTRY, *_installed())))


def method_classes() -> list[type[Method]]:
    """The classes of all methods that can be used; :func:`method_problems` says what is wrong with the others."""
    return [method_class(name) for name in method_names() if name in REGISTRY or not isinstance(_load(name), Broken)]


def method_problems() -> list[str]:
    """One sentence for each method of an installed package that cannot be used."""
    problems = []
    for name, entries in _installed().items():
        if isinstance(REGISTRY.get(name), str):
            problems.append(
                f"The package {_packages(entries)} has a method {name!r} that cannot be used: acr itself has one of "
                "that name."
            )
        elif name not in REGISTRY and isinstance(broken := _load(name), Broken):
            problems.append(broken.why)
    return problems


def method_class(name: str) -> type[Method]:
    """The class of a method, by its name."""
    found = REGISTRY.get(name)
    if found is None and name in _installed():
        loaded = _load(name)
        if isinstance(loaded, Broken):
            raise InputError(loaded.why) from loaded.error
        found = loaded
    if found is None:
        raise unknown("method", name, method_names())
    if isinstance(found, str):
        module, attribute = found.split(":")
        found = getattr(import_module(module), attribute)
    assert isinstance(found, type)
    return found
