"""GDumb: greedy sampler and dumb learner.

Nothing is learned during a task: its samples only pass through a sampler that keeps the memory balanced over classes.
To predict, a new network is fitted from scratch to the memory alone. What a method gains over GDumb is what it gains by
learning continually. Prabhu, Torr and Dokania, "GDumb: A Simple Approach that Questions Our Progress in Continual
Learning", ECCV 2020.

As in the original, the sampler sees each sample once, in the first epoch of its task. The network is fitted after every
task, so that there are stages to compare, for 250 epochs whatever the epochs of the stream: it is to be trained to
convergence. A report says beside its name if there were fewer. The original clips gradients; the paper's comparison
does not, and neither does this. The paper's released program fills a reservoir in all epochs and fits after the last
task only: the quirk ``gdumb-as-released``, the same as ``--sampler reservoir --fit final``.

Measure it: ``acr run --method gdumb --dataset split-cifar100``
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from acr.config import MethodOptions, RunConfig
from acr.data.stream import Task
from acr.errors import InputError
from acr.memory import Buffer
from acr.memory.policies import Policy, Reservoir
from acr.methods.bases import MemoryMethod
from acr.methods.maths.fitting import batches, cutmix, learning_rates
from acr.methods.method import Batch, Context
from acr.networks import Network

FIT_EPOCHS = 250
"""Epochs of a fit, unless the data set or the user has others."""


class GDumbOptions(MethodOptions):
    """Options of GDumb."""

    revision: ClassVar[int] = 2
    """1: the epochs of a fit followed those of the stream, and a last small batch stood alone."""
    sources: ClassVar[Mapping[str, str]] = {
        "sampler": "GDumb's authors; the paper's released program has a reservoir",
        "fit": "chosen here, so that there are stages to compare; the released program fits once",
        "cutmix": "GDumb's authors and the paper's released program",
        **dict.fromkeys(
            ("fit_epochs", "fit_learning_rate", "fit_min_learning_rate"), "the launcher of the paper's released program"
        ),
    }
    sampler: Literal["greedy", "reservoir"] = "greedy"
    """Which samples the memory keeps: equally many of each class, or a reservoir sample."""
    fit: Literal["every", "final"] = "every"
    """Fit a network to the memory after every task, or after the final one only."""
    fit_epochs: int = Field(FIT_EPOCHS, ge=1)
    """Epochs of a fit, whatever the epochs of a task; fewer are said beside the numbers in reports."""
    fit_learning_rate: float = Field(0.05, gt=0)
    """Highest learning rate in a fit."""
    fit_min_learning_rate: float = Field(5e-4, ge=0)
    """Lowest learning rate in a fit."""
    cutmix: float = Field(0.5, ge=0, le=1)
    """Probability of CutMix on each batch of a fit."""


class GDumb(MemoryMethod):
    """Collect a balanced memory, then fit a network to it."""

    name = "gdumb"
    label = "GDumb"
    summary = "GDumb: a balanced memory, and a network fitted to it from scratch"
    no_average = (
        "it trains a new network after every task, with a schedule that ends at a low rate, and none in between"
    )
    Options: ClassVar[type[MethodOptions]] = GDumbOptions
    settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {  # the paper's
        "split-cifar100": {"weight_decay": 1e-6},  # the momentum depends on the buffer
        "split-mini-imagenet": {"fit_epochs": 256},
        "split-tiny-imagenet": {"fit_epochs": 256},
    }
    exemptions: ClassVar[dict[str, str]] = {"learns": "it learns at the end of a task only; its steps have no loss"}
    options: GDumbOptions

    @classmethod
    def settings_for(cls, dataset: str, buffer_size: int) -> Mapping[str, Any]:
        """The paper's settings; small memories of CIFAR-100 are fitted with momentum."""
        settings = super().settings_for(dataset, buffer_size)
        small = dataset == "split-cifar100" and buffer_size < 1000
        return {**settings, "momentum": 0.9} if small else settings

    def __init__(self, network: Network, options: GDumbOptions, context: Context) -> None:
        super().__init__(network, options, context)
        as_released = "gdumb-as-released" in context.protocol
        self.policy: Policy = Reservoir() if as_released or options.sampler == "reservoir" else GreedyBalanced()
        self.final_only = as_released or options.fit == "final"
        if self.final_only and context.tasks is None:
            raise InputError(
                "Without a known number of tasks GDumb cannot tell which one is the last; use --fit every."
            )

    @classmethod
    def complete_config(cls, config: RunConfig) -> RunConfig:
        """Check that the lowest learning rate of a fit is not above the highest."""
        options = config.options
        assert isinstance(options, GDumbOptions)
        low, high = options.fit_min_learning_rate, options.fit_learning_rate
        if low > high:
            raise InputError(f"--fit-min-learning-rate {low:g} is above --fit-learning-rate {high:g}.")
        return config

    @classmethod
    def shortened(cls, config: RunConfig) -> tuple[MethodOptions, float]:
        """Options with a fit of two epochs, and how many times longer the full fit is."""
        options = config.options
        assert isinstance(options, GDumbOptions)
        few = options.model_copy(update={"fit_epochs": 2})
        return few, options.fit_epochs / 2

    @classmethod
    def caveat(cls, values: Mapping[str, Any]) -> str:
        """A fit that is shorter than it should be."""
        epochs, full = values.get("fit_epochs"), cls.settings.get(str(values.get("dataset")), {}).get("fit_epochs")
        short = isinstance(epochs, int) and epochs < (full or FIT_EPOCHS)
        return f"fit epochs {epochs}" if short else ""

    def observe(self, batch: Batch) -> None:
        """Offer the batch to the memory. The greedy sampler sees each sample once, the reservoir in every epoch."""
        if batch.epoch == 0 or isinstance(self.policy, Reservoir):
            draws = self.context.generator("policy")
            self.policy.observe(self.buffer, batch.plain, batch.labels_on_host, batch.task, draws)

    def end_task(self, task: Task) -> None:
        """Fit a new network to the memory: after every task, or after the last one only."""
        if self.final_only and task.index + 1 != self.context.tasks:
            return
        self.network = self.context.build_network(f"gdumb-{task.index}")
        self.optimizer = self.make_optimizer(self.network)
        self.fit()

    def fit(self) -> None:
        """Train the network on the memory for all epochs of the schedule, in random views and with CutMix.

        The memory is on the device for the whole fit, and nothing waits for it. An epoch's order is one copy; a batch's
        draws are two: those of the views and the partners of CutMix.
        """
        options, rates, device = self.options, self.schedule(), self.context.device
        stored, stored_labels = self.buffer.images.to(device), self.buffer.labels.to(device)
        self.network.train()
        for epoch, rate in enumerate(rates):
            draws = self.context.generator("gdumb-fit", epoch)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            # Every epoch is a random permutation of the whole memory, in batches.
            order = torch.randperm(len(self.buffer), generator=draws).to(device, non_blocking=True)
            for slots in batches(order, self.context.batch_size):
                images, labels = self.context.views.replay(stored[slots], draws), stored_labels[slots]
                if float(torch.rand((), generator=draws)) < options.cutmix:
                    # λ·CE(h(x̃), y_a) + (1−λ)·CE(h(x̃), y_b), where λ is the share of x̃ that is the own image.
                    images, labels, others, share = cutmix(images, labels, draws)
                    logits = self.network(images)
                    loss = share * F.cross_entropy(logits, labels) + (1 - share) * F.cross_entropy(logits, others)
                else:
                    loss = F.cross_entropy(self.network(images), labels)
                self.step(loss)

    def schedule(self) -> list[float]:
        """The learning rates of a fit, one per epoch."""
        options = self.options
        return learning_rates(options.fit_epochs, options.fit_learning_rate, options.fit_min_learning_rate)


class GreedyBalanced(Policy):
    """GDumb's sampler: a class with less than its share of the memory takes a place from the largest class."""

    name = "greedy-balanced"

    def observe(
        self, buffer: Buffer, images: Tensor, labels: Tensor, task: int, generator: torch.Generator, **columns: Tensor
    ) -> None:
        """Store each sample whose class is below its share: in a free slot, or in a random slot of the largest class.

        Takes a batch of n images, their n labels and their task, the source of draws, and n rows of further columns.
        """
        stored = buffer.labels.tolist()
        count = Counter(stored)
        writer: dict[int, int] = {}
        draws = torch.rand(len(labels), generator=generator, dtype=torch.float64).tolist()
        for row, (label, draw) in enumerate(zip(labels.tolist(), draws, strict=True)):
            # The share of a class: B/(number of classes stored, its own included).
            share = buffer.capacity / len(count.keys() | {label})
            if count[label] >= share:
                continue
            if len(stored) < buffer.capacity:
                slot = len(stored)
                stored.append(label)
            else:
                largest = max(count, key=lambda c: (count[c], -c))
                its_slots = [i for i, other in enumerate(stored) if other == largest]
                slot = its_slots[int(draw * len(its_slots))]
                count[largest] -= 1
                stored[slot] = label
            count[label] += 1
            writer[slot] = row
        slots, rows = (torch.tensor(list(v), dtype=torch.int64) for v in (writer.keys(), writer.values()))
        kept: dict[str, Any] = {name: values[rows] for name, values in columns.items()}
        buffer.write(slots, images[rows], labels[rows], task, **kept)
        buffer.seen += len(images)
