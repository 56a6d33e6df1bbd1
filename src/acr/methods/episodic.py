"""What GEM and A-GEM share: a memory with an equal part for every task, filled at the end of the task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from acr.config import MethodOptions, Precision
from acr.data.stream import Task
from acr.methods.bases import MemoryMethod
from acr.methods.maths.gradients import flat_gradient


class EpisodicMethod(MemoryMethod):
    """A memory of episodes: each of the T tasks gets B // T of the B slots, chosen at random from its samples.

    Where the number of tasks is not known, the t tasks seen so far get B // t slots each, and older tasks are trimmed.
    """

    precisions: ClassVar[Collection[Precision]] = (
        "32",
        "bf16-mixed",
    )  # it projects gradients, which 16-mixed would scale
    Options: ClassVar[type[MethodOptions]] = MethodOptions
    settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {  # the paper's
        "split-cifar100": {"learning_rate": 0.03},
        "split-mini-imagenet": {"learning_rate": 0.01},
        "split-tiny-imagenet": {"learning_rate": 0.01},
    }

    def end_task(self, task: Task) -> None:
        """Trim the older tasks if necessary, and store random samples of the finished one."""
        # B // T per task, or B // t where T is not known; at least one sample even if there are more tasks than slots.
        seen = torch.unique(self.buffer.tasks).numel() + 1
        share = max(1, self.buffer.capacity // (self.context.tasks or seen))
        if self.context.tasks is None:
            self.trim(share)
        room = self.buffer.capacity - len(self.buffer)
        chosen = torch.randperm(len(task), generator=self.context.generator("episode"))[: min(share, room)]
        self.buffer.append(task.images(chosen), task.targets[chosen], task.index)
        self.buffer.seen += len(task)

    def trim(self, share: int) -> None:
        """Keep the first ``share`` samples of every stored task; they were stored in random order."""
        kept = [(self.buffer.tasks == t).nonzero()[:share, 0] for t in torch.unique(self.buffer.tasks)]
        self.buffer.keep(torch.cat(kept) if kept else torch.zeros(0, dtype=torch.int64))

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient of a loss as one vector over all parameters; each parameter's ``.grad`` is overwritten."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        return flat_gradient(self.network.parameters())
