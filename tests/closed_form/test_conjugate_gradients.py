"""Conjugate gradients: by hand, against LAPACK, and where they give up."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form.ridge import RESIDUAL, STEPS, conjugate_gradients


def test_two_steps_solve_two_unknowns() -> None:
    matrix = torch.tensor([[4.0, 1.0], [1.0, 3.0]]).double()
    right = torch.tensor([[1.0, 0.0], [2.0, 0.0]]).double()
    products = []

    def times(x: Tensor) -> Tensor:
        products.append(x)
        return matrix @ x

    found = conjugate_gradients(times, lambda b: b.clone(), right)
    assert found is not None
    # (4 x + y, x + 3 y) = (1, 2): x = 1/11, y = 7/11; and nothing for a right side of nothing
    expected = torch.tensor([[1 / 11, 0.0], [7 / 11, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert len(products) == 3  # that of the start, and one a step


@given(seed=st.integers(0, 10_000), width=st.integers(1, 40), columns=st.integers(1, 5))
def test_a_rough_factor_is_enough(seed: int, width: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(width, width, generator=generator).double()
    matrix = root @ root.t() + 0.1 * torch.eye(width).double()
    right = torch.randn(width, columns, generator=generator).double()
    rough = torch.linalg.cholesky(matrix.float())
    found = conjugate_gradients(
        lambda x: matrix @ x, lambda b: torch.cholesky_solve(b.float(), rough).double(), right
    )
    assert found is not None
    residual = (right - matrix @ found).norm(dim=0) / right.norm(dim=0)
    assert float(residual.max()) <= 1.01 * RESIDUAL


def test_what_takes_too_long_is_given_up() -> None:
    hard = torch.logspace(0, 6, 4 * STEPS).double()[:, None]  # so many eigenvalues apart
    right = torch.ones(4 * STEPS, 1).double()
    assert conjugate_gradients(lambda x: hard * x, lambda b: b.clone(), right) is None
    broken = conjugate_gradients(lambda x: hard * x, lambda b: b * torch.nan, right)
    assert broken is None
