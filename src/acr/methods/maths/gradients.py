"""Whole-network gradients as one vector, and the projections of GEM and A-GEM.

* GEM: Lopez-Paz and Ranzato, "Gradient episodic memory for continual learning", NeurIPS 2017.
* A-GEM: Chaudhry, Ranzato, Rohrbach and Elhoseiny, "Efficient lifelong learning with A-GEM", ICLR 2019.

Both projections need inner products of vectors with one entry per parameter. They are summed in double precision, block
by block, so that a whole gradient is never copied to double precision; the rest of GEM works on a matrix with one row
and one column per task.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_BLOCK = 1 << 18  # entries of a gradient that are in double precision at a time
_SWEEPS = 2000  # of the coordinate descent that replaces a failed solver


def flat_gradient(parameters: Iterable[nn.Parameter]) -> Tensor:
    """The gradients of all parameters as one vector; a parameter without a gradient counts as zeros."""
    parts = [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in parameters]
    return torch.cat(parts) if parts else torch.zeros(0)


def assign_gradient(parameters: Iterable[nn.Parameter], gradient: Tensor) -> None:
    """Write a vector in the order of `flat_gradient` to the `.grad` of the parameters, also where there was none.

    The values are copied, so that later changes to the vector or to `.grad` do not affect the other.
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

    With g the gradient and the rows of G the memory gradients: g itself if G·g has no negative entry. Otherwise
    Gᵀv + g, where v minimises ½vᵀ(GGᵀ + ridge·I)v + (Gg)ᵀv subject to v ≥ margin. Then ⟨result, G_k⟩ ≥ −ridge·v_k for
    every task k.

    The ridge makes the problem strictly convex for all gradients, duplicates and zeros included. If the solver fails
    nevertheless, coordinate descent solves the same problem. Values that are not finite are not hidden: such a
    `gradient` is returned as it is, and such a memory gradient makes the whole result NaN, so that the training loop's
    own check finds it.

    Args:
        gradient: g, one entry per parameter.
        memory_gradients: G, one row per earlier task.
        margin: lower bound γ of v; above zero it pushes the result beyond orthogonality, towards the old tasks.
        ridge: added to the diagonal of GGᵀ.

    Returns a vector of the shape of `gradient`.
    """
    if len(memory_gradients) == 0 or not _is_finite(gradient):
        return gradient
    if not _is_finite(memory_gradients):
        return torch.full_like(gradient, torch.nan)
    # Dividing all gradients by one number and the ridge by its square does not change v, and no square overflows.
    scale = max(1.0, _largest(gradient), _largest(memory_gradients))
    # q = Gg: if no entry is negative, the step raises no earlier task's loss, to first order.
    linear = _products(memory_gradients, gradient[None], scale, scale)[:, 0]
    if (linear >= 0).all():
        return gradient
    # P = GGᵀ + ridge·I, symmetrised; v = argmin ½vᵀPv + qᵀv subject to v ≥ margin.
    gram = _products(memory_gradients, memory_gradients, scale, scale)
    multipliers = _bounded_minimum((gram + gram.T) / 2 + ridge / scale**2 * np.eye(len(gram)), linear, margin)
    # Gᵀv + g
    return gradient + torch.from_numpy(multipliers).to(memory_gradients) @ memory_gradients


def project_agem(gradient: Tensor, reference: Tensor) -> Tensor:
    """A-GEM's projection: g − (⟨g,r⟩/⟨r,r⟩) r if ⟨g,r⟩ < 0, otherwise g itself.

    g is `gradient` and r is `reference`, the gradient on a memory batch; both have one entry per parameter, as has the
    result. A reference of zeros changes nothing. Values that are not finite are passed on, as in `project_gem`.
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
    # g − (⟨g,r⟩/⟨r,r⟩) r, with g and r divided by their largest entries, so that a tiny r loses no precision.
    return gradient - (reference / reference_size) * float(inner / square * size)


def _is_finite(values: Tensor) -> bool:
    return bool(torch.isfinite(values).all())


def _largest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def _products(a: Tensor, b: Tensor, scale_a: float, scale_b: float) -> NDArray[np.float64]:
    """The inner products of the rows of a/scale_a with those of b/scale_b, len(a) x len(b), in double precision."""
    total = torch.zeros(len(a), len(b), dtype=torch.float64)
    for start in range(0, a.shape[1], _BLOCK):
        block_a = a[:, start : start + _BLOCK].detach().cpu().double() / scale_a
        block_b = b[:, start : start + _BLOCK].detach().cpu().double() / scale_b
        total += block_a @ block_b.T
    return total.numpy()


def _bounded_minimum(quadratic: NDArray[np.float64], linear: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
    """The v ≥ bound that minimises ½vᵀPv + qᵀv, with P `quadratic` and q `linear`.

    With v = bound + u, this is: u ≥ 0 minimises ½uᵀPu − targetᵀu with target = −(q + bound·P1). If P = AᵀA, that is
    non-negative least squares: u ≥ 0 minimises ‖Au − b‖² with Aᵀb = target.
    """
    from scipy.optimize import nnls  # slow to import, and only GEM needs it

    # P = VΛVᵀ gives A = Λ^½Vᵀ and b = Λ^−½Vᵀ·target. Eigenvalues are raised to at least rounding level; a Cholesky
    # factorisation would fail where the ridge is lost beside huge gradients.
    values, vectors = np.linalg.eigh(quadratic)
    root = np.sqrt(np.maximum(values, len(values) * np.finfo(np.float64).eps * values.max()))
    target = -(linear + bound * quadratic.sum(axis=1))
    try:
        excess, _ = nnls(root[:, None] * vectors.T, (vectors.T @ target) / root)
    except (RuntimeError, ValueError, np.linalg.LinAlgError):
        excess = _coordinate_descent((vectors * root**2) @ vectors.T, target)
    return bound + excess


def _coordinate_descent(quadratic: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """The u ≥ 0 that minimises ½uᵀPu − targetᵀu, with P `quadratic`. Slower than `nnls`, but no step can go uphill."""
    solution = np.zeros_like(target)
    for _ in range(_SWEEPS):
        before = solution.copy()
        for k in range(len(solution)):
            residual = target[k] - quadratic[k] @ solution
            solution[k] = max(0.0, solution[k] + residual / quadratic[k, k])
        if np.abs(solution - before).max() <= 1e-12 * np.abs(solution).max():
            break
    return solution
