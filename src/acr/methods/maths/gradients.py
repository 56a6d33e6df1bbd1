"""Whole-network gradients as one vector, and the projections of GEM and A-GEM.

* GEM: Lopez-Paz and Ranzato, "Gradient episodic memory for continual learning", NeurIPS 2017.
* A-GEM: Chaudhry, Ranzato, Rohrbach and Elhoseiny, "Efficient lifelong learning with A-GEM", ICLR 2019.

Both projections need inner products of vectors as long as the network. They are summed in double precision, block by
block, so that no double copy of a whole gradient exists; all the rest of GEM happens on a matrix with one row a task.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_BLOCK = 1 << 18  # columns that are in double precision at a time
_SWEEPS = 2000  # of the coordinate descent behind a failed solver


def flat_gradient(parameters: Iterable[nn.Parameter]) -> Tensor:
    """The gradients of the parameters, one after the other; a parameter that has none counts as zeros."""
    parts = [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in parameters]
    return torch.cat(parts) if parts else torch.zeros(0)


def assign_gradient(parameters: Iterable[nn.Parameter], gradient: Tensor) -> None:
    """Write a vector made by `flat_gradient` back, also to parameters that had no gradient.

    The vector is copied: neither later changes of it nor the optimiser's own reach the other side.
    """
    parameters = list(parameters)
    needed = sum(p.numel() for p in parameters)
    if gradient.shape != (needed,):
        raise ValueError(f"The parameters hold {needed} numbers, but the gradient's shape is {tuple(gradient.shape)}.")
    position = 0
    for parameter in parameters:
        part = gradient[position : position + parameter.numel()].view_as(parameter)
        position += parameter.numel()
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter)
        parameter.grad.copy_(part)


def project_gem(gradient: Tensor, memory_gradients: Tensor, margin: float = 0.5, ridge: float = 1e-3) -> Tensor:
    """GEM's projection: the gradient nearest to `gradient` that (up to the ridge) raises no earlier task's loss.

    With G the memory gradients, one row a task: if G·g has no negative entry, g itself. Otherwise Gᵀv + g, where v
    minimises ½vᵀ(GGᵀ + ridge·I)v + (Gg)ᵀv subject to v ≥ margin. Then ⟨result, G_k⟩ ≥ -ridge·v_k for every task k. A
    margin above zero pushes past orthogonality towards the old tasks.

    The ridge makes the problem strictly convex whatever the gradients are: duplicates, zeros, any scale. Should the
    solver give up all the same, coordinate descent on the same problem takes its place. Numbers that are not finite
    are not hidden: such a `gradient` comes back as it is, and such a memory gradient makes the whole result NaN, so
    that the training loop's own check finds it.
    """
    if len(memory_gradients) == 0 or not _is_finite(gradient):
        return gradient
    if not _is_finite(memory_gradients):
        return torch.full_like(gradient, torch.nan)
    # Dividing all gradients by one number and the ridge by its square leaves v as it is, and no square overflows.
    scale = max(1.0, _largest(gradient), _largest(memory_gradients))
    linear = _products(memory_gradients, gradient[None], scale, scale)[:, 0]
    if (linear >= 0).all():
        return gradient
    gram = _products(memory_gradients, memory_gradients, scale, scale)
    multipliers = _bounded_minimum((gram + gram.T) / 2 + ridge / scale**2 * np.eye(len(gram)), linear, margin)
    return gradient + torch.from_numpy(multipliers).to(memory_gradients) @ memory_gradients


def project_agem(gradient: Tensor, reference: Tensor) -> Tensor:
    """A-GEM's projection: if g opposes the memory's gradient r, g - (⟨g,r⟩/⟨r,r⟩) r; otherwise g itself.

    A zero reference opposes nothing. Numbers that are not finite come through, as in `project_gem`.
    """
    if not _is_finite(gradient):
        return gradient
    if not _is_finite(reference):
        return torch.full_like(gradient, torch.nan)
    size, reference_size = _largest(gradient), _largest(reference)
    if size == 0 or reference_size == 0:
        return gradient
    inner = _products(gradient[None], reference[None], size, reference_size)[0, 0]
    if inner >= 0:
        return gradient
    square = _products(reference[None], reference[None], reference_size, reference_size)[0, 0]
    # ⟨g,r⟩/⟨r,r⟩·r in units of the largest entries: a tiny reference is as good as a large one.
    return gradient - (reference / reference_size) * float(inner / square * size)


def _is_finite(values: Tensor) -> bool:
    return bool(torch.isfinite(values).all())


def _largest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def _products(a: Tensor, b: Tensor, scale_a: float, scale_b: float) -> NDArray[np.float64]:
    """The inner products of the rows of a/scale_a and b/scale_b, in double precision."""
    total = torch.zeros(len(a), len(b), dtype=torch.float64)
    for start in range(0, a.shape[1], _BLOCK):
        block_a = a[:, start : start + _BLOCK].detach().cpu().double() / scale_a
        block_b = b[:, start : start + _BLOCK].detach().cpu().double() / scale_b
        total += block_a @ block_b.T
    return total.numpy()


def _bounded_minimum(quadratic: NDArray[np.float64], linear: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
    """The v ≥ bound that minimises ½vᵀPv + qᵀv.

    With v = bound + u this is non-negative least squares on a square root of P. The root comes from the
    eigenvalues, lifted to rounding level, because Cholesky's fails where the ridge is lost beside huge gradients.
    """
    from scipy.optimize import nnls  # slow to import, and needed by few

    values, vectors = np.linalg.eigh(quadratic)
    root = np.sqrt(np.maximum(values, len(values) * np.finfo(np.float64).eps * values.max()))
    target = -(linear + bound * quadratic.sum(axis=1))
    try:
        excess, _ = nnls(root[:, None] * vectors.T, (vectors.T @ target) / root)
    except (RuntimeError, ValueError, np.linalg.LinAlgError):
        excess = _coordinate_descent((vectors * root**2) @ vectors.T, target)
    return bound + excess


def _coordinate_descent(quadratic: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """The u ≥ 0 that minimises ½uᵀPu - targetᵀu. Slower than `nnls`, but each step can only descend."""
    solution = np.zeros_like(target)
    for _ in range(_SWEEPS):
        before = solution.copy()
        for k in range(len(solution)):
            residual = target[k] - quadratic[k] @ solution
            solution[k] = max(0.0, solution[k] + residual / quadratic[k, k])
        if np.abs(solution - before).max() <= 1e-12 * np.abs(solution).max():
            break
    return solution
