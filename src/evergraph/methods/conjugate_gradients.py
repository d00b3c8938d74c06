"""Linear systems solved to the last digits that matter, given something that nearly solves them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Residuals in shares of the right side. What a head answers then differs from the exact one's
# answer by far less than what rounding has left in float32 sums.
TOLERANCE = 1e-9
# A float32 factor takes one to four steps where the matrix is far from singular. Where so many
# do not suffice, float64 from the start is sooner done.
STEPS = 8

Map = Callable[[Tensor], Tensor]


def conjugate_gradients(times: Map, nearly_solve: Map, right: Tensor) -> Tensor | None:
    """Return X with A X = B, column by column; None if the residuals do not become small.

    Preconditioned conjugate gradients, p = z + β p with z = P⁻¹ r and Polak and Ribière's
    β = zᵀ(r - r')/z'ᵀr', which forgives a P⁻¹ that is symmetric to rounding only.

    times: X -> A X, with A symmetric and positive definite; nearly_solve: B -> P⁻¹ B, P near A;
    right: B.  float64 [m, columns]

    >>> found = conjugate_gradients(lambda x: 2 * x, lambda b: 0.4 * b, torch.ones(2, 1).double())
    >>> found.tolist()
    [[0.5], [0.5]]
    """
    found = nearly_solve(right)
    residual = right - times(found)
    enough = TOLERANCE * right.norm(dim=0)
    direction = guess = nearly_solve(residual)
    slope = (residual * guess).sum(0)
    for _ in range(STEPS):
        if bool((residual.norm(dim=0) <= enough).all()):
            return found
        image = times(direction)
        step = _ratio(slope, (direction * image).sum(0))
        found = found + step * direction
        before, residual = residual, residual - step * image
        guess = nearly_solve(residual)
        direction = guess + _ratio((guess * (residual - before)).sum(0), slope) * direction
        slope = (residual * guess).sum(0)
    return None


def _ratio(over: Tensor, under: Tensor) -> Tensor:
    """Return a quotient, 0 for a column with nothing left to do."""
    return torch.where(under == 0, 0.0, over / under)
