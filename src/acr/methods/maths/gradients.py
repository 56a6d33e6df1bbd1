"""Whole-network gradients as one vector, and the projections of GEM and A-GEM.

* GEM: Lopez-Paz and Ranzato, "Gradient episodic memory for continual learning", NeurIPS 2017.
* A-GEM: Chaudhry, Ranzato, Rohrbach and Elhoseiny, "Efficient lifelong learning with A-GEM", ICLR 2019.

Both projections need inner products of vectors with one entry per parameter. They are summed in double precision, block
by block, so that a whole gradient is never copied to double precision. Gradients stay on their device: A-GEM's
projection is decided there as well, and GEM reads a matrix with one row and one column per task, because its quadratic
program is solved on the host.
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

    The host waits for the device once, for the inner products of the t memory gradients with each other and with g
    (t² + t + 3 numbers), because the program is solved on the host. The t entries of v are copied back.

    Args:
        gradient: g, one entry per parameter.
        memory_gradients: G, one row per earlier task.
        margin: lower bound γ of v; above zero it pushes the result beyond orthogonality, towards the old tasks.
        ridge: added to the diagonal of GGᵀ.

    Returns a vector of the shape of `gradient`.
    """
    if len(memory_gradients) == 0:
        return gradient
    # Dividing all gradients by one number and the ridge by its square does not change v, and no square overflows.
    own, others = _largest(gradient), _largest(memory_gradients)
    scale = torch.maximum(own, others).clamp_min(1)
    # q = Gg and GGᵀ, copied to the host together with the sizes, which are not finite if a gradient is not.
    beside = _products(memory_gradients, gradient[None], scale, scale)
    square = _products(memory_gradients, memory_gradients, scale, scale)
    numbers = torch.cat([beside.flatten(), square.flatten(), torch.stack([own, others, scale])]).cpu().double().numpy()
    tasks = len(memory_gradients)
    linear, gram, (own_size, size, divisor) = numbers[:tasks], numbers[tasks:-3].reshape(tasks, tasks), numbers[-3:]
    if not np.isfinite(own_size):
        return gradient
    if not np.isfinite(size):
        return torch.full_like(gradient, torch.nan)
    # If no entry of q is negative, the step raises no earlier task's loss, to first order.
    if (linear >= 0).all():
        return gradient
    # P = GGᵀ + ridge·I, symmetrised; v = argmin ½vᵀPv + qᵀv subject to v ≥ margin.
    multipliers = _bounded_minimum((gram + gram.T) / 2 + ridge / divisor**2 * np.eye(tasks), linear, margin)
    # Gᵀv + g
    weights = torch.from_numpy(multipliers).to(gradient.dtype).to(gradient.device, non_blocking=True)
    return gradient + weights @ memory_gradients


def project_agem(gradient: Tensor, reference: Tensor) -> Tensor:
    """A-GEM's projection: g − (⟨g,r⟩/⟨r,r⟩) r if ⟨g,r⟩ < 0, otherwise g.

    g is `gradient` and r is `reference`, the gradient on a memory batch; both have one entry per parameter, as has the
    result. A reference of zeros changes nothing. Values that are not finite are passed on, as in `project_gem`.

    Both cases are computed and one is chosen on the device, so that the host never waits for it.
    """
    size, reference_size = _largest(gradient), _largest(reference)
    # With g and r divided by their largest entries, a tiny r loses no precision. If g or r is zero, this is 0/0 = NaN.
    row = reference[None]
    inner = _products(gradient[None], row, size, reference_size)[0, 0]
    square = _products(row, row, reference_size, reference_size)[0, 0]
    # g − (⟨g,r⟩/⟨r,r⟩) r. If r is not finite, ⟨g,r⟩ is NaN, and so is all of this.
    share = (inner / square * size).to(reference.dtype)
    projected = gradient - (reference / reference_size.to(reference.dtype)) * share
    opposed = (inner < 0) | ~torch.isfinite(reference_size)
    return torch.where(opposed & torch.isfinite(size), projected, gradient)


def sum_dtype(device: torch.device) -> torch.dtype:
    """The precision in which sums are taken: float64, or float32 on a device that has no float64 (``mps``)."""
    return torch.float32 if device.type == "mps" else torch.float64


def _largest(values: Tensor) -> Tensor:
    """The largest absolute value, a scalar on the device of the values; NaN if one of them is, 0 if there are none."""
    values = values.detach()
    largest = torch.maximum(values.max(), -values.min()) if values.numel() else values.new_zeros(())
    return largest.to(sum_dtype(values.device))


def _products(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    """The inner products of the rows of a/scale_a with those of b/scale_b, len(a) x len(b), in double precision."""
    dtype = sum_dtype(a.device)
    total = torch.zeros(len(a), len(b), dtype=dtype, device=a.device)
    for start in range(0, a.shape[1], _BLOCK):
        part = slice(start, start + _BLOCK)
        block_a = a[:, part].detach().to(dtype, copy=True).div_(scale_a)
        block_b = block_a if b is a else b[:, part].detach().to(dtype, copy=True).div_(scale_b)
        total += block_a @ block_b.T
    return total


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
