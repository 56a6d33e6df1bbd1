from __future__ import annotations

from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from acr.methods.maths.selection import (
    KernelMachine,
    SecondOrder,
    Weighting,
    delete_rows,
    fit,
    row_weights,
    select_rows,
)

STORED, BATCH, CLASSES, SEEN, RIDGE, MU = 9, 4, 3, 40, 1e-3, 0.5


def objective(kernel: Tensor, labels: Tensor, alpha: Tensor, weights: Tensor, ridge: float) -> Tensor:
    """J as it is written down."""
    logits = kernel @ alpha
    losses = F.cross_entropy(logits, labels, reduction="none")
    return (weights * losses).mean() + ridge * torch.trace(alpha.T @ kernel @ alpha)


def problem(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, KernelMachine]:
    generator = torch.Generator().manual_seed(seed)
    rows = STORED + BATCH
    features = torch.randn(rows, 6, dtype=torch.float64, generator=generator)
    kernel = features @ features.T + 0.1 * torch.eye(rows)
    labels = torch.randint(CLASSES, (rows,), generator=generator)
    alpha = 0.3 * torch.randn(rows, CLASSES, dtype=torch.float64, generator=generator)
    return kernel, labels, alpha, KernelMachine(kernel, labels, alpha, RIDGE)


def gradient_by_autograd(kernel: Tensor, labels: Tensor, alpha: Tensor, weights: Tensor, ridge: float) -> Tensor:
    alpha = alpha.detach().requires_grad_()
    (found,) = torch.autograd.grad(objective(kernel, labels, alpha, weights, ridge), alpha, create_graph=True)
    return found


def hessian_by_autograd(kernel: Tensor, labels: Tensor, alpha: Tensor, weights: Tensor) -> Tensor:
    size = alpha.numel()
    found = torch.autograd.functional.hessian(lambda a: objective(kernel, labels, a, weights, RIDGE), alpha)
    return found.reshape(size, size)


def second_order_norm(kernel: Tensor, labels: Tensor, alpha: Tensor, s: Tensor, omega: Tensor, w: Tensor) -> Tensor:
    """‖∇J₀ - μ∇²J·s‖, differentiable in w, by nothing but autograd of J."""
    difference = omega - w if (omega - w).sum() > 0 else w - omega
    alpha = alpha.detach().requires_grad_()
    (first,) = torch.autograd.grad(objective(kernel, labels, alpha, difference, 0.0), alpha, create_graph=True)
    (whole,) = torch.autograd.grad(objective(kernel, labels, alpha, difference, RIDGE), alpha, create_graph=True)
    (product,) = torch.autograd.grad((whole * s).sum(), alpha, create_graph=True)
    return (first - MU * product).norm()


def second_order_by_autograd(*arguments: Tensor) -> Tensor:
    *rest, w = arguments
    w = w.detach().requires_grad_()
    return torch.autograd.grad(second_order_norm(*rest, w), w)[0]


def test_gradient_and_hessian_equal_autograd() -> None:
    kernel, labels, alpha, machine = problem()
    weights = row_weights(STORED, BATCH, SEEN)
    torch.testing.assert_close(machine.gradient(weights), gradient_by_autograd(kernel, labels, alpha, weights, 0.0))
    hessian = hessian_by_autograd(kernel, labels, alpha, weights)
    direction = torch.randn(alpha.shape, dtype=torch.float64)
    torch.testing.assert_close(machine.hessian_times(direction, weights).flatten(), hessian @ direction.flatten())


def test_conjugate_gradients_solve() -> None:
    _, _, _, machine = problem()
    weights = row_weights(STORED, BATCH, SEEN)
    target = machine.gradient(weights)
    solution = machine.solve(target, weights, max_iterations=500, tolerance=1e-10)
    torch.testing.assert_close(machine.hessian_times(solution, weights), target, rtol=1e-7, atol=1e-9)
    assert machine.solve(torch.zeros_like(target), weights).abs().max() == 0


def test_fit_finds_the_minimum_and_starts_again_where_lost() -> None:
    kernel, labels, _, _ = problem()
    weights = row_weights(STORED, BATCH, SEEN)
    alpha = fit(kernel, labels, weights, CLASSES, torch.Generator().manual_seed(0), RIDGE)
    gradient = gradient_by_autograd(kernel, labels, alpha, weights, RIDGE)
    assert gradient.abs().max() < 1e-4
    lost = fit(kernel * torch.nan, labels, weights, CLASSES, torch.Generator().manual_seed(0), RIDGE)
    assert lost.abs().max() == 0


def test_first_order_influence_equals_autograd() -> None:
    kernel, labels, alpha, machine = problem()
    omega = row_weights(STORED, BATCH, SEEN)
    s = machine.solve(machine.gradient(omega), omega)
    weights = omega.clone().requires_grad_()
    inner = (gradient_by_autograd(kernel, labels, alpha, weights, RIDGE) * s).sum()
    torch.testing.assert_close(machine.first_order(s), -torch.autograd.grad(inner, weights)[0])


@pytest.mark.parametrize("weighting", get_args(Weighting))
@pytest.mark.parametrize("gone", [[], [2], [0, 7, 12], [1, 3, 5, 8, 9, 10]])
def test_second_order_influence_equals_autograd_and_finite_differences(gone: list[int], weighting: Weighting) -> None:
    kernel, labels, alpha, machine = problem()
    omega = row_weights(STORED, BATCH, SEEN, weighting)
    s = machine.solve(machine.gradient(omega), omega)
    second_order, w = SecondOrder(machine, omega, s, MU), torch.ones_like(omega)
    for row in gone:
        second_order.delete(row)
        w[row] = 0
    found = second_order.influences()
    torch.testing.assert_close(second_order.norm(), second_order_norm(kernel, labels, alpha, s, omega, w).detach())
    torch.testing.assert_close(found, second_order_by_autograd(kernel, labels, alpha, s, omega, w))
    if torch.equal(omega, w):
        return  # Σ(ω − w) = 0, where the sign of δ jumps: no difference quotient exists
    step = 1e-6
    for row in range(len(w)):
        up, down = w.clone(), w.clone()
        up[row] += step
        down[row] -= step
        difference = second_order_norm(kernel, labels, alpha, s, omega, up) - second_order_norm(
            kernel, labels, alpha, s, omega, down
        )
        assert found[row].item() == pytest.approx(difference.item() / (2 * step), rel=1e-4, abs=1e-7)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.01, 10.0]))
def test_greedy_deletion_equals_the_plain_loop(seed: int, nu: float) -> None:
    kernel, labels, alpha, machine = problem(seed)
    omega = row_weights(STORED, BATCH, SEEN)
    s = machine.solve(machine.gradient(omega), omega)
    first, w, expected = machine.first_order(s), torch.ones_like(omega), []
    for _ in range(BATCH):
        scores = first + nu * second_order_by_autograd(kernel, labels, alpha, s, omega, w)
        scores[expected] = -torch.inf
        expected.append(int(scores.argmax()))
        w[expected[-1]] = 0
    assert delete_rows(machine, omega, s, BATCH, MU, nu).tolist() == expected


def test_weights() -> None:
    assert row_weights(3, 2, 8).tolist() == [1, 1, 1, 0.25, 0.25]
    assert row_weights(3, 2, 8, "share").tolist() == [0.375, 0.375, 1, 1, 1]
    assert row_weights(3, 2, 2, "share").tolist() == [1, 1, 1, 1, 1]  # never more than a stored row
    assert row_weights(3, 2, 8, "equal").tolist() == [1, 1, 1, 1, 1]
    assert row_weights(3, 2, 8, "batch-share").tolist() == [0.25, 0.25, 1, 1, 1]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 7), st.sampled_from(get_args(Weighting)))
def test_selection_fills_every_slot_once(seed: int, stored: int, batch: int, weighting: Weighting) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = stored + batch
    features = torch.randn(rows, 4, generator=generator)
    labels = torch.randint(2, (rows,), generator=generator)

    def select() -> object:
        draws = torch.Generator().manual_seed(seed)
        return select_rows(features @ features.T, labels, stored, batch, 50, 2, draws, weighting=weighting)

    found = select()
    assert found.deleted.unique().numel() == batch
    assert found.rows.unique().numel() == stored
    assert not set(found.rows.tolist()) & set(found.deleted.tolist())
    assert set(found.slots.tolist()) == {row - batch for row in found.deleted.tolist() if row >= batch}
    assert found.rows[found.slots].tolist() == found.new_rows.tolist() == sorted(found.new_rows.tolist())
    untouched = [slot for slot in range(stored) if slot not in found.slots.tolist()]
    assert found.rows[untouched].tolist() == [batch + slot for slot in untouched]
    assert torch.equal(select().deleted, found.deleted)


@pytest.mark.parametrize("kernel", [torch.eye(5), torch.zeros(5, 5), torch.full((5, 5), torch.nan)])
def test_selection_with_nothing_to_choose_by_keeps_what_is_stored(kernel: Tensor) -> None:
    found = select_rows(kernel, torch.zeros(5, dtype=torch.long), 3, 2, 9, 1, torch.Generator().manual_seed(0))
    assert found.deleted.tolist() == [0, 1]
    assert found.rows.tolist() == [2, 3, 4]


def test_selection_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match="5 rows"):
        select_rows(torch.eye(4), torch.zeros(4, dtype=torch.long), 3, 2, 9, 2, torch.Generator())
