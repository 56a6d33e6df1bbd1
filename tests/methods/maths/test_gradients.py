from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import nn

from acr.methods.maths import gradients
from acr.methods.maths.gradients import assign_gradient, flat_gradient, project_agem, project_gem


def random_problem(seed: int, tasks: int, size: int, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    memory = scale * torch.randn(tasks, size, dtype=torch.float64, generator=generator)
    return scale * torch.randn(size, dtype=torch.float64, generator=generator), memory


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_flat_gradient_round_trip_and_missing_gradients_are_zero() -> None:
    layer = nn.Linear(2, 2)
    layer.weight.grad = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    flat = flat_gradient(layer.parameters())
    assert flat.tolist() == [1, 2, 3, 4, 0, 0]
    flat[4:] = 5
    assign_gradient(layer.parameters(), flat)
    assert layer.bias.grad is not None
    assert layer.bias.grad.tolist() == [5, 5]
    flat.zero_()
    assert layer.weight.grad.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="6 numbers"):
        assign_gradient(layer.parameters(), flat[:5])


def test_gem_by_hand() -> None:
    # One task: v = max(margin, -⟨g,m⟩/(⟨m,m⟩ + ridge)) = max(.5, 2/(1 + 1)) = 1, so g + m.
    result = project_gem(torch.tensor([-2.0, 3.0]), torch.tensor([[1.0, 0.0]]), margin=0.5, ridge=1.0)
    assert result.tolist() == [-1, 3]
    # With a margin above that, the margin decides.
    result = project_gem(torch.tensor([-2.0, 3.0]), torch.tensor([[1.0, 0.0]]), margin=4, ridge=1.0)
    assert result.tolist() == [2, 3]


def test_gem_leaves_an_agreeing_gradient_alone() -> None:
    gradient = torch.tensor([1.0, 1.0])
    assert project_gem(gradient, torch.tensor([[1.0, 0.0], [0.0, 0.0]])) is gradient
    assert project_gem(gradient, torch.zeros(0, 2)) is gradient


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.sampled_from([0.0, 0.5, 2.0]), st.booleans())
def test_gem_satisfies_constraints_and_equals_another_solver(seed: int, tasks: int, margin: float, twin: bool) -> None:
    gradient, memory = random_problem(seed, tasks, 12)
    if twin:
        memory[-1] = memory[0]
    ridge = 1e-3
    result = project_gem(gradient, memory, margin, ridge)
    if ((memory @ gradient) >= 0).all():
        assert result is gradient
        return
    quadratic = (memory @ memory.T + ridge * torch.eye(tasks)).numpy()
    linear = (memory @ gradient).numpy()
    other = minimize(
        lambda v: 0.5 * v @ quadratic @ v + linear @ v,
        np.full(tasks, margin + 1.0),
        jac=lambda v: quadratic @ v + linear,
        bounds=[(margin, None)] * tasks,
        method="L-BFGS-B",
        options={"ftol": 1e-16, "gtol": 1e-12, "maxiter": 5000},
    ).x
    expected = gradient + memory.T @ torch.from_numpy(other)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    # Every constraint holds up to what the ridge allows; the multipliers are bounded by the other solver's.
    assert (memory @ result >= -ridge * (torch.from_numpy(other) + 0.1) - 1e-9).all()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from(["plain", "zero", "twin", "huge", "tiny", "opposite"]), min_size=1, max_size=8),
    st.sampled_from([torch.float32, torch.float64]),
    st.sampled_from([1e-30, 1.0, 1e15, 1e30]),
)
def test_gem_never_fails_on_finite_gradients(seed: int, kinds: list[str], dtype: torch.dtype, scale: float) -> None:
    gradient, memory = random_problem(seed, len(kinds), 7, scale)
    for row, kind in zip(memory, kinds, strict=True):
        if kind == "zero":
            row.zero_()
        elif kind == "twin":
            row.copy_(memory[0])
        elif kind == "huge":
            row *= 1e6
        elif kind == "tiny":
            row *= 1e-6
        elif kind == "opposite":
            row.copy_(-gradient)
    result = project_gem(gradient.to(dtype), memory.to(dtype))
    assert result.dtype == dtype
    assert torch.isfinite(result).all()


def test_gem_survives_a_failing_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    gradient, memory = random_problem(3, 6, 20)
    memory[0] = -gradient
    expected = project_gem(gradient, memory)

    def fails(*_: object) -> None:
        raise RuntimeError("Maximum number of iterations reached.")

    monkeypatch.setattr("scipy.optimize.nnls", fails)
    torch.testing.assert_close(project_gem(gradient, memory), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_projections_do_not_hide_what_is_not_finite(bad: float) -> None:
    gradient, memory = random_problem(0, 2, 5)
    broken = gradient.clone()
    broken[2] = bad
    assert project_gem(broken, memory) is broken
    same(project_agem(broken, memory[0]), broken)
    memory[1, 3] = bad
    assert project_gem(gradient, memory).isnan().all()
    assert project_agem(gradient, memory[1]).isnan().all()
    assert project_gem(broken, memory) is broken
    same(project_agem(broken, memory[1]), broken)


def test_products_over_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    gradient, memory = random_problem(5, 3, 50)
    whole = project_gem(gradient, memory)
    monkeypatch.setattr(gradients, "_BLOCK", 7)
    torch.testing.assert_close(project_gem(gradient, memory), whole)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-30, 1.0, 1e18]), st.sampled_from([1e-30, 1.0, 1e18]))
def test_agem_equals_the_closed_form(seed: int, scale: float, reference_scale: float) -> None:
    gradient, memory = random_problem(seed, 1, 9)
    reference = memory[0]
    inner = gradient @ reference
    expected = gradient if inner >= 0 else gradient - inner / (reference @ reference) * reference
    result = project_agem((gradient * scale).float(), (reference * reference_scale).float())
    torch.testing.assert_close(result.double() / scale, expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([torch.float32, torch.float64]), st.sampled_from([1e-30, 1.0, 1e18]))
def test_agem_equals_the_branches_on_the_host_bit_for_bit(seed: int, dtype: torch.dtype, scale: float) -> None:
    gradient, memory = random_problem(seed, 1, 9)
    gradient, reference = gradient.to(dtype), (scale * memory[0]).to(dtype)
    size, reference_size = gradient.abs().max().item(), reference.abs().max().item()
    ours, theirs = gradient.double()[None] / size, reference.double()[None] / reference_size
    inner, square = (ours @ theirs.T).item(), (theirs @ theirs.T).item()
    expected = gradient if inner >= 0 else gradient - (reference / reference_size) * (inner / square * size)
    same(project_agem(gradient, reference), expected)


def test_agem_with_nothing_to_project_on() -> None:
    gradient = torch.tensor([1.0, -1.0])
    same(project_agem(gradient, torch.zeros(2)), gradient)
    same(project_agem(gradient, 2 * gradient), gradient)
    assert project_agem(torch.zeros(2), gradient).tolist() == [0, 0]
    assert project_agem(gradient, -gradient).tolist() == [0, 0]
