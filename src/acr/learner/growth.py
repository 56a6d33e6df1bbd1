"""A method that has learned, in the shape of one with more classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from acr.methods.method import Method

NOT_GROWN = ("buffer", "policy", "confidence")
"""Parts of a method's state without a place per class. (Stored logits are widened by the methods that store them.)"""


def load_grown(method: Method, state: Mapping[str, Any]) -> None:
    """Give a new method what an older one with at most as many outputs has learned.

    Every tensor that has grown keeps its old values in front. What was added keeps the values of the new method: newly
    initialised outputs.
    """
    fresh = method.state_dict()
    grown = {
        name: value if name in NOT_GROWN or name not in fresh else _grown(value, fresh[name])
        for name, value in state.items()
    }
    if "optimizer" in grown:
        grown["optimizer"] = {**grown["optimizer"], "state": _grown_optimizer(state["optimizer"]["state"], method)}
    method.load_state_dict(grown)


def _grown(old: Any, new: Any) -> Any:
    """A part of a state in the shape of the same part of a new method."""
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        return _grown_tensor(old, new)
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: _grown(value, new[key]) if key in new else value for key, value in old.items()}
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)) and len(old) == len(new):
        return [_grown(a, b) for a, b in zip(old, new, strict=True)]
    return old


def _grown_tensor(old: Tensor, new: Tensor) -> Tensor:
    """The new tensor with the old one in its first places; the old one if they are not of the same kind."""
    if old.shape == new.shape or old.dim() != new.dim():
        return old
    if any(before > after for before, after in zip(old.shape, new.shape, strict=True)):
        return old
    grown = new.clone()
    grown[tuple(slice(size) for size in old.shape)] = old.to(new.device)
    return grown


def _grown_optimizer(state: Mapping[Any, Any], method: Method) -> dict[Any, Any]:
    """What the optimiser keeps per parameter (momentum), with zeros for what was added to the parameter."""
    parameters = [parameter for group in method.optimizer.param_groups for parameter in group["params"]]
    return {
        number: {
            name: _grown_tensor(value, torch.zeros_like(parameters[int(number)]))
            if isinstance(value, Tensor)
            else value
            for name, value in kept.items()
        }
        for number, kept in state.items()
    }
