"""Joint training: the upper bound. All classes are learned at once, as one task, and evaluated per original task.

It is not a continual method: only the last row of its accuracy matrix is filled, and it has no backward transfer.

Measure it: ``acr run --method joint --dataset split-cifar100``
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from acr.methods.finetune import Finetune


class Joint(Finetune):
    """Fine-tuning on the merged stream."""

    name = "joint"
    label = "Joint training"
    reference = True
    summary = "Joint training on all classes at once: the upper bound"
    sees_all_tasks = True
    exemptions: ClassVar[Mapping[str, str]] = {"no-future": "trained on all tasks at once: an upper bound"}
