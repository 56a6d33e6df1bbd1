"""Averaged weights: a second network whose weights are the mean of the first one's over the steps of its training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from acr.networks.network import Network
from acr.values import HalfLife


class WeightAverage:
    """The weighted mean of a network's weights after each step, where weights halve with every half-life.

    With θ_k the weights after step k and d = 2^(−1/half-life), after n steps it is Σ d^(n−k) θ_k / Σ d^(n−k), k = 1..n.
    So the weights before the first step do not count. Where the half-life differs between tasks, every step multiplies
    the weights of those before it by its own d. Running averages of batch norm are averaged like weights.

    ``network`` is a network like the one that is trained; it becomes the averaged one.
    """

    def __init__(self, network: Network, half_life: HalfLife) -> None:
        self.network = network.eval().requires_grad_(False)
        self.half_life = half_life
        self.total = 0.0
        """Σ d^(n−k), the sum of all weights so far."""

    @torch.no_grad()
    def update(self, trained: Network, steps_of_task: int, tasks: int) -> None:
        """Include the weights of a network after one more step. Nothing waits for a GPU.

        The step belongs to a task of so many steps, the first, second ... (1, 2 ...) of its run.
        """
        self.total = self.total * 2 ** (-1 / self.half_life.steps(steps_of_task, tasks)) + 1
        mean, new = _averaged(self.network), _averaged(trained)
        torch._foreach_lerp_(mean, new, 1 / self.total)

    def state_dict(self) -> dict[str, Any]:
        """The averaged network and the sum of the weights."""
        return {"network": dict(self.network.state_dict()), "total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        self.network.load_state_dict(state["network"])
        self.total = float(state["total"])


def _averaged(network: Network) -> list[Tensor]:
    """What is averaged: parameters, and buffers that are not counts."""
    return [*network.parameters(), *(buffer for buffer in network.buffers() if buffer.is_floating_point())]
