"""Which of the stored and new samples SOIF keeps: regularised influence functions of a kernel machine.

Sun, Mu and Hua, "Regularizing second-order influences for continual learning", CVPR 2023. The rows are the b new
samples followed by the B stored ones, n = b + B. With K their kernel, coefficients α (n x classes) and weights w,

    J(α; w) = (1/n) Σ_i w_i CE((Kα)_i, y_i) + λ tr(αᵀKα),      and J₀ is J without the λ term.

α minimises J for the weights ω: 1, but less for the rows that a ``Weighting`` names. With s = H⁻¹∇J₀(α; ω) and H the
Hessian of J, the influence of row i is I_i = −∂/∂w_i ⟨∇J, s⟩. Deleting rows changes the influences that later
selections will see. The size of that second-order effect is regularised by its derivative,
I²_i = ∂/∂w_i ‖∇J₀(α; δ) − μ∇²J(α; δ)s‖ with δ = ±(ω − w), the sign being + if Σ(ω − w) > 0. All w start at 1. Rows are
deleted one by one, each time the one with the largest I_i + ν I²_i, and its w is set to 0.

All derivatives are in closed form. With P the softmax outputs, Y the one-hot labels, R = P − Y, U = Ks and
C_i u = p_i∘u − p_i⟨p_i,u⟩ the curvature of row i's cross-entropy,

    ∇J₀ = K(w∘R)/n,   ∇²J·d = K(w∘C(Kd))/n + 2λKd,   I_i = −⟨R_i, U_i⟩/n,
    I²_i = ∓⟨q_i, (KF)_i⟩/‖F‖  with  q = (R − μC(U))/n  and  F = K(δ∘q) − 2μλU.

A deletion adds one outer product to K((ω − w)∘q) and one to K times that, so it costs one product of K with a vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Weighting = Literal["released", "share", "equal", "batch-share"]
"""Which rows the kernel machine's fit weights by less than 1, with N the samples seen: the last b stored ones by b/N
(``released``), the new ones by B/N, their fair share of the stream (``share``), or by b/N (``batch-share``), or none
(``equal``)."""

_RESTARTS = 5
_LOST = 10.0  # an objective above this has diverged: a uniform prediction costs log(classes)


@dataclass(frozen=True)
class Selection:
    """What becomes of b new samples (rows 0..b-1) and B slots (rows b..b+B-1)."""

    deleted: Tensor
    """The b deleted rows, in the order of deletion."""
    slots: Tensor
    """The slots that are overwritten, ascending."""
    new_rows: Tensor
    """The new sample that each of these slots receives, ascending."""
    rows: Tensor
    """The row that each of the B slots holds afterwards."""


def select_rows(
    kernel: Tensor,
    labels: Tensor,
    stored_count: int,
    batch: int,
    seen: int,
    num_classes: int,
    generator: torch.Generator,
    *,
    mu: float = 0.5,
    nu: float = 0.01,
    ridge: float = 1e-3,
    weighting: Weighting = "released",
) -> Selection:
    """Choose B of b + B samples. The rows are the new samples followed by the stored ones.

    The fit reads numbers at every iteration, and the problem is small, so all of it runs on the host: the kernel and
    the labels are copied there first, which waits for the device once each if they are not there already. The result
    is on the host.

    Args:
        kernel: K, n x n with n = b + B.
        labels: classes of the n rows, in 0..num_classes-1.
        stored_count: B.
        batch: b.
        seen: number of samples of the stream before this batch.
        num_classes: number of classes seen.
        generator: draws the start of the kernel machine's fit.
        mu: weight μ of the curvature in the second-order term.
        nu: weight ν of the second-order term.
        ridge: regularisation λ of the kernel machine.
        weighting: which rows the fit weights by less than 1.
    """
    rows = batch + stored_count
    if kernel.shape != (rows, rows) or labels.shape != (rows,):
        raise ValueError(
            f"{rows} rows need a kernel of {rows} x {rows} and {rows} labels, not "
            f"{tuple(kernel.shape)} and {tuple(labels.shape)}."
        )
    kernel, labels = kernel.cpu(), labels.cpu()
    # ω, and the α that minimises J(α; ω).
    weights = row_weights(stored_count, batch, seen, weighting).to(kernel)
    alpha = fit(kernel, labels, weights, num_classes, generator, ridge)
    machine = KernelMachine(kernel, labels, alpha, ridge)
    # s = H⁻¹∇J₀(α; ω)
    solution = machine.solve(machine.gradient(weights), weights)
    deleted = delete_rows(machine, weights, solution, batch, mu, nu)
    return _selection(deleted, stored_count, batch)


def row_weights(stored_count: int, batch: int, seen: int, weighting: Weighting = "released") -> Tensor:
    """ω, one weight per row: b new rows followed by B stored ones, of a stream of which ``seen`` samples came before.

    >>> row_weights(4, 2, 8).tolist(), row_weights(4, 2, 8, "share").tolist()
    ([1.0, 1.0, 1.0, 1.0, 0.25, 0.25], [0.5, 0.5, 1.0, 1.0, 1.0, 1.0])
    """
    weights = torch.ones(batch + stored_count, dtype=torch.float64)
    seen = max(seen, 1)
    if weighting == "released":
        weights[stored_count:] = batch / seen  # of n = b + B rows, those from the B-th on
    elif weighting == "share":
        weights[:batch] = min(1.0, stored_count / seen)
    elif weighting == "batch-share":
        weights[:batch] = batch / seen
    return weights


def fit(
    kernel: Tensor,
    labels: Tensor,
    weights: Tensor,
    num_classes: int,
    generator: torch.Generator,
    ridge: float = 1e-3,
    max_iterations: int = 300,
) -> Tensor:
    """The α (n x classes) that minimises J(α; ω), by L-BFGS with a fixed step of .25 from the start .01·N(0, 1).

    Without a line search the iteration may diverge; then it restarts from other numbers. If it never converges, the
    result is α = 0, which predicts all classes equally.

    Args:
        kernel: K, n x n.
        labels: classes of the n rows.
        weights: ω, one per row.
        num_classes: number of classes.
        generator: draws the start.
        ridge: λ.
        max_iterations: most iterations of one attempt.
    """
    targets = F.one_hot(labels, num_classes).to(kernel)
    rows = len(kernel)

    for _ in range(_RESTARTS + 1):
        start = 0.01 * torch.randn(rows, num_classes, generator=generator)
        alpha = start.to(kernel).requires_grad_()
        optimiser = torch.optim.LBFGS([alpha], lr=0.25, max_iter=max_iterations, history_size=10)

        @torch.no_grad()
        def objective(alpha: Tensor = alpha) -> Tensor:
            logits = kernel @ alpha
            log_probabilities = logits.log_softmax(1)
            # J(α; ω), and its gradient K(ω∘R/n + 2λα).
            loss = -(weights @ (log_probabilities * targets).sum(1)) / rows + ridge * (alpha * logits).sum()
            residual = (log_probabilities.exp() - targets) * weights[:, None] / rows
            alpha.grad = kernel @ (residual + 2 * ridge * alpha)
            return loss

        optimiser.step(objective)  # type: ignore[no-untyped-call]
        if float(objective()) <= _LOST:  # False if it is NaN
            return alpha.detach()
    return torch.zeros(rows, num_classes).to(kernel)


class KernelMachine:
    """Derivatives of J at one α. `weights` are w, one per row; results have the shape of α unless stated."""

    def __init__(self, kernel: Tensor, labels: Tensor, alpha: Tensor, ridge: float) -> None:
        self.kernel, self.ridge = kernel, ridge
        self.probabilities = (kernel @ alpha).softmax(1)
        self.residual = self.probabilities - F.one_hot(labels, alpha.shape[1]).to(kernel)

    def gradient(self, weights: Tensor) -> Tensor:
        """∇J₀(α; w) = K(w∘R)/n."""
        return self.kernel @ (weights[:, None] * self.residual) / len(self.kernel)

    def curvature(self, values: Tensor) -> Tensor:
        """C(u): each row of `values` times the Hessian of its cross-entropy with respect to its logits."""
        # C_i u = p_i∘u − p_i⟨p_i,u⟩
        scaled = self.probabilities * values
        return scaled - self.probabilities * scaled.sum(1, keepdim=True)

    def hessian_times(self, direction: Tensor, weights: Tensor) -> Tensor:
        """∇²J(α; w)·d = K(w∘C(Kd))/n + 2λKd, with d `direction`."""
        curved = weights[:, None] * self.curvature(self.kernel @ direction) / len(self.kernel)
        return self.kernel @ (curved + 2 * self.ridge * direction)

    def solve(self, target: Tensor, weights: Tensor, max_iterations: int = 50, tolerance: float = 1e-6) -> Tensor:
        """∇²J(α; w)⁻¹·target by conjugate gradients, until the residual is `tolerance` times the target in length."""
        solution, residual = torch.zeros_like(target), target.clone()
        direction, square = residual.clone(), residual.square().sum()
        goal = tolerance**2 * square
        for _ in range(max_iterations):
            if square <= goal:
                break
            product = self.hessian_times(direction, weights)
            curvature = (direction * product).sum()
            if curvature <= 0:  # only by rounding: nothing more to gain in this direction
                break
            step = square / curvature
            solution += step * direction
            residual -= step * product
            previous, square = square, residual.square().sum()
            direction = residual + (square / previous) * direction
        return solution

    def first_order(self, solution: Tensor) -> Tensor:
        """I_i = −⟨R_i, (Ks)_i⟩/n, one value per row, with s `solution`."""
        return -(self.residual * (self.kernel @ solution)).sum(1) / len(self.kernel)


class SecondOrder:
    """I² of every row, updated as rows are deleted. `weights` are ω and `solution` is s."""

    def __init__(self, machine: KernelMachine, weights: Tensor, solution: Tensor, mu: float) -> None:
        image = machine.kernel @ solution  # U = Ks
        self._kernel = machine.kernel
        self._direction = (machine.residual - mu * machine.curvature(image)) / len(image)  # q = (R − μC(U))/n
        self._difference = weights - 1  # ω − w, with all w = 1 at the start
        self._offset = 2 * mu * machine.ridge * image  # 2μλU
        self._offset_image = self._kernel @ self._offset
        self._sum = self._kernel @ (self._difference[:, None] * self._direction)  # S = K((ω − w)∘q)
        self._sum_image = self._kernel @ self._sum

    def delete(self, row: int) -> None:
        """Set the row's w to 0: row i of (ω − w)∘q grows by q_i, so S grows by K_i q_iᵀ and KS by (K K_i) q_iᵀ."""
        self._difference[row] += 1
        column = self._kernel[:, row]
        self._sum += torch.outer(column, self._direction[row])
        self._sum_image += torch.outer(self._kernel @ column, self._direction[row])

    def norm(self) -> Tensor:
        """‖F‖ = ‖∇J₀(α; δ) − μ∇²J(α; δ)s‖, a scalar. With δ = ±(ω − w), F = ±S − 2μλU, so ‖F‖ = ‖S ∓ 2μλU‖."""
        return torch.linalg.vector_norm(self._sum - self._sign() * self._offset)

    def influences(self) -> Tensor:
        """I²_i = ∂‖F‖/∂w_i = ∓⟨q_i, (KF)_i⟩/‖F‖ = −⟨q_i, (K(S ∓ 2μλU))_i⟩/‖F‖, one value per row."""
        image = self._sum_image - self._sign() * self._offset_image
        return -(self._direction * image).sum(1) / self.norm().clamp_min(torch.finfo(image.dtype).tiny)

    def _sign(self) -> float:
        return 1.0 if self._difference.sum() > 0 else -1.0


def delete_rows(machine: KernelMachine, weights: Tensor, solution: Tensor, count: int, mu: float, nu: float) -> Tensor:
    """Delete ``count`` rows, each time the one with the largest I_i + ν I²_i; ties go to the lower row.

    ``weights`` are ω, ``solution`` is s, ``mu`` and ``nu`` are μ and ν. Returns the rows in the order of deletion.
    """
    first_order = machine.first_order(solution)
    second_order = SecondOrder(machine, weights, solution, mu)
    gone = torch.zeros(len(weights), dtype=torch.bool, device=weights.device)
    deleted = []
    for _ in range(count):
        scores = torch.nan_to_num(first_order + nu * second_order.influences())
        row = int(scores.masked_fill(gone, -torch.inf).argmax())
        gone[row] = True
        second_order.delete(row)
        deleted.append(row)
    return torch.tensor(deleted, dtype=torch.long)


def _selection(deleted: Tensor, stored_count: int, batch: int) -> Selection:
    """Surviving new rows overwrite the slots of deleted stored rows, in order."""
    kept = torch.ones(batch + stored_count, dtype=torch.bool)
    kept[deleted] = False
    slots, new_rows = (~kept[batch:]).nonzero()[:, 0], kept[:batch].nonzero()[:, 0]
    rows = torch.arange(batch, batch + stored_count)
    rows[slots] = new_rows
    return Selection(deleted, slots, new_rows, rows)
