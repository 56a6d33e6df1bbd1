"""A method that has learned, in the shape of one with more classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from acr.methods.method import Method

NOT_GROWN = ("buffer", "policy", "confidence")
"""Parts of a method's state without a place per class. (Stored logits are widened by the methods that store them.)"""


def load_grown(method: Method, state: Mapping[str, Any], before: int) -> None:
    """Give a new method what an older one with ``before`` outputs has learned.

    Every tensor with a place per class keeps its old values in front. What was added keeps the values of the new
    method: newly initialised outputs.
    """
    growth = Growth(before, method.network.num_classes)
    fresh = method.state_dict()
    grown = {
        name: value if name in NOT_GROWN or name not in fresh else growth.of(value, fresh[name])
        for name, value in state.items()
    }
    if "optimizer" in grown:
        parameters = [parameter for group in method.optimizer.param_groups for parameter in group["params"]]
        # What the optimiser keeps per parameter (momentum) has zeros for what was added.
        kept = {
            number: growth.of(values, dict.fromkeys(values, torch.zeros_like(parameters[int(number)])))
            for number, values in state["optimizer"]["state"].items()
        }
        grown["optimizer"] = {**grown["optimizer"], "state": kept}
    method.load_state_dict(grown)


@dataclass(frozen=True)
class Growth:
    """From a number of classes to another one that is no smaller."""

    before: int
    after: int

    def of(self, old: Any, new: Any) -> Any:
        """A part of a state in the shape of the same part of a new method."""
        if isinstance(old, Tensor) and isinstance(new, Tensor):
            return self.of_tensor(old, new)
        if isinstance(old, dict) and isinstance(new, dict):
            return {key: self.of(value, new[key]) if key in new else value for key, value in old.items()}
        if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)) and len(old) == len(new):
            return [self.of(a, b) for a, b in zip(old, new, strict=True)]
        return old

    def of_tensor(self, old: Tensor, new: Tensor) -> Tensor:
        """The new tensor with the old one in its first places, if they differ by the added classes only."""
        sizes = list(zip(old.shape, new.shape, strict=False))
        only_classes = all(a == b or (a, b) == (self.before, self.after) for a, b in sizes)
        if old.shape == new.shape or old.dim() != new.dim() or not only_classes:
            return old
        grown = new.clone()
        grown[tuple(slice(size) for size in old.shape)] = old.to(new.device)
        return grown
