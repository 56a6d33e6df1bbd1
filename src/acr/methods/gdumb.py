"""GDumb: greedy sampler and dumb learner.

Nothing is learned while a task goes by: its samples only pass a sampler that keeps the memory balanced over classes.
To predict, a new network is fitted from scratch to the memory alone. What a method gains over this is what it gains by
learning continually. Prabhu, Torr and Dokania, "GDumb: A Simple Approach that Questions Our Progress in Continual
Learning", ECCV 2020.

The sampler sees each sample once, in a task's first epoch, as in the original; the network is fitted after every task,
so that there are stages to compare, and in proportion to the epochs that other methods get (250 for 50). The original
clips gradients; the paper's comparison does not, and neither does this. The paper's released program fills a reservoir
in all epochs and fits after the last task only: the quirk ``gdumb-as-released``, the same as ``--sampler reservoir
--fit final``.

Measure it: ``acr run --method gdumb --dataset split-cifar100``
"""

from __future__ import annotations

from collections import Counter
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
from acr.methods.maths.fitting import cutmix, learning_rates
from acr.methods.method import Batch, Context
from acr.networks import Network

FEWEST_EPOCHS = 10


class GDumbOptions(MethodOptions):
    """Options of GDumb."""

    sampler: Literal["greedy", "reservoir"] = "greedy"
    """What the memory keeps: as many samples of each class, or a reservoir sample."""
    fit: Literal["every", "final"] = "every"
    """After which tasks a network is fitted to the memory."""
    fit_epochs: int | None = Field(None, ge=1)
    """Epochs of a fit; --fit-factor times the epochs of a task, and at least 10, if not given."""
    fit_factor: float = Field(5.0, gt=0)
    """Epochs of a fit for each epoch of a task."""
    fit_learning_rate: float = Field(0.05, gt=0)
    """Highest learning rate of a fit."""
    fit_min_learning_rate: float = Field(5e-4, ge=0)
    """Lowest learning rate of a fit."""
    cutmix: float = Field(0.5, ge=0, le=1)
    """Probability of CutMix on a batch of a fit."""


class GDumb(MemoryMethod):
    """Collect, then fit."""

    name = "gdumb"
    label = "GDumb"
    summary = "GDumb: a balanced memory, and a network fitted to it from scratch"
    Options: ClassVar[type[MethodOptions]] = GDumbOptions
    exemptions: ClassVar[dict[str, str]] = {"learns": "it learns at the end of a task only; its steps have no loss"}
    options: GDumbOptions

    def __init__(self, network: Network, options: GDumbOptions, context: Context) -> None:
        super().__init__(network, options, context)
        as_released = "gdumb-as-released" in context.protocol
        self.policy: Policy = Reservoir() if as_released or options.sampler == "reservoir" else GreedyBalanced()
        self.final_only = as_released or options.fit == "final"
        if self.final_only and context.tasks is None:
            raise InputError("GDumb can fit after the last task only where the number of tasks is known: --fit every.")

    @classmethod
    def complete_config(cls, config: RunConfig) -> RunConfig:
        """A fit's lowest rate lies below its highest."""
        options = config.options
        assert isinstance(options, GDumbOptions)
        low, high = options.fit_min_learning_rate, options.fit_learning_rate
        if low > high:
            raise InputError(f"--fit-min-learning-rate {low:g} lies above --fit-learning-rate {high:g}.")
        return config

    @classmethod
    def shortened(cls, config: RunConfig) -> tuple[MethodOptions, float]:
        """A fit of a few epochs."""
        options = config.options
        assert isinstance(options, GDumbOptions)
        few = options.model_copy(update={"fit_epochs": 2})
        return few, fit_epochs(options, config.epochs) / 2

    def observe(self, batch: Batch) -> None:
        """Offer the batch to the memory. The greedy sampler sees a sample once, the reservoir in every epoch."""
        if batch.epoch == 0 or isinstance(self.policy, Reservoir):
            draws = self.context.generator("policy")
            self.policy.observe(self.buffer, batch.plain, batch.labels.cpu(), batch.task, draws)

    def end_task(self, task: Task) -> None:
        """Fit a new network to the memory, if it is time."""
        if self.final_only and task.index + 1 != self.context.tasks:
            return
        self.network = self.context.build_network(f"gdumb-{task.index}")
        self.optimizer = self.make_optimizer(self.network)
        self.fit()

    def fit(self) -> None:
        """All epochs over the memory, in random views and with CutMix."""
        options, rates = self.options, self.schedule()
        self.network.train()
        for epoch, rate in enumerate(rates):
            draws = self.context.generator("gdumb-fit", epoch)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            for slots in torch.split(torch.randperm(len(self.buffer), generator=draws), self.context.batch_size):
                images = self.context.views.replay(self.buffer.images[slots], draws)
                labels = self.buffer.labels[slots].to(self.context.device)
                if float(torch.rand((), generator=draws)) < options.cutmix:
                    images, labels, others, share = cutmix(images, labels, draws)
                    logits = self.network(images)
                    loss = share * F.cross_entropy(logits, labels) + (1 - share) * F.cross_entropy(logits, others)
                else:
                    loss = F.cross_entropy(self.network(images), labels)
                self.step(loss)

    def schedule(self) -> list[float]:
        """The learning rate of every epoch of a fit."""
        options = self.options
        epochs = fit_epochs(options, self.context.epochs)
        return learning_rates(epochs, options.fit_learning_rate, options.fit_min_learning_rate)


def fit_epochs(options: GDumbOptions, epochs: int) -> int:
    """Epochs of a fit: as many as asked for, or in proportion to the epochs that other methods get."""
    return options.fit_epochs or max(FEWEST_EPOCHS, round(options.fit_factor * epochs))


class GreedyBalanced(Policy):
    """GDumb's sampler: a class that has less than its share of the memory takes a place from the largest class."""

    name = "greedy-balanced"

    def observe(
        self, buffer: Buffer, images: Tensor, labels: Tensor, task: int, generator: torch.Generator, **columns: Tensor
    ) -> None:
        """Sample after sample: to a free slot, or to a random slot of the largest class, while its class lacks some."""
        stored = buffer.labels.tolist()
        count = Counter(stored)
        writer: dict[int, int] = {}
        draws = torch.rand(len(labels), generator=generator, dtype=torch.float64).tolist()
        for row, (label, draw) in enumerate(zip(labels.tolist(), draws, strict=True)):
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
