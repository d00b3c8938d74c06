"""Heads for every penalty of a ladder from one decomposition, and the penalty that suits best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.closed_form.ridge import CLASSES, BalancedProblem, balanced_moments, penalty_scale
from evergraph.closed_form.statistics import ClassStatistics

# With few labels the largest are chosen, see docs/decisions/0082.
LADDER = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)
TOLERANCE = 0.02


@dataclass(frozen=True, eq=False)
class PenaltyPath:
    """(A + λP)⁻¹ for every λ: B diag(1 / (e + λ)) Bᵀ with BᵀAB = diag(e) and BᵀPB = I.

    Attributes:
        values: e.  float64 [m]
        basis: B.  float64 [m, m]
    """

    values: Tensor
    basis: Tensor

    @classmethod
    def of(cls, matrix: Tensor, penalty: Tensor | None = None) -> PenaltyPath:
        """Decompose A, or A and P if there is another penalty than λI.

        matrix: A, of which the lower triangle is read, float64 [m, m]; penalty: P, [m, m]

        >>> PenaltyPath.of(torch.tensor([[4.]]).double(), torch.tensor([[2.]])).values
        tensor([2.], dtype=torch.float64)
        """
        if penalty is None:
            values, basis = torch.linalg.eigh(matrix)
            return cls(values.clamp_min(0.0), basis)
        matrix = matrix.tril() + matrix.tril(-1).t()
        factor = torch.linalg.cholesky(penalty.double())
        half = torch.linalg.solve_triangular(factor, matrix, upper=False)
        whole = torch.linalg.solve_triangular(factor, half.t(), upper=False)  # L⁻¹ A L⁻ᵀ
        values, turn = torch.linalg.eigh(whole)
        basis = torch.linalg.solve_triangular(factor.t(), turn, upper=True)
        return cls(values.clamp_min(0.0), basis)


def choose_regularisation(
    training: ClassStatistics,
    validation: ClassStatistics,
    ladder: Sequence[float],
    *,
    balanced: bool = True,
    penalty: Tensor | None = None,
) -> float:
    """Return the least regularisation whose error on validation nodes is nearly the smallest.

    The error is the class-balanced squared error,
    Σ_c 1/n_c Σ_{i∈c} ‖y_i - Vᵀφ_i‖² = C - 2 tr(Vᵀ M) + tr(Vᵀ A V) with A and M of the validation
    nodes: in closed form from their statistics, without the nodes. For "nearly", see
    ``nearly_best``. Statistics of validation nodes may be narrower: the choice then uses the first
    features of both, with λ relative to its scale for all features.

    penalty: P of all features, if not the identity, see ``BalancedSolution``.
    """
    width = validation.width
    problem = BalancedProblem.of(training.narrowed(width), balanced=balanced)
    asked, centres = balanced_moments(validation, balanced=balanced)
    asked = asked.tril() + asked.tril(-1).t()
    part = None if penalty is None else penalty[:width, :width]
    path = PenaltyPath.of(problem.matrix(torch.float64), part)
    turned = path.basis.t() @ problem.means
    scale = penalty_scale(training, penalty, balanced=balanced)
    penalties = turned.new_tensor(ladder).clamp_min(1e-9) * scale
    shrunk = path.values[:, None] + penalties  # [m, ladder]
    centres = torch.nn.functional.pad(centres, (0, turned.shape[1] - centres.shape[1]))
    totals = torch.zeros_like(penalties)
    at_a_time = max(CLASSES // len(ladder), 1)
    for some, centre in zip(turned.split(at_a_time, 1), centres.split(at_a_time, 1), strict=True):
        weights = path.basis @ (some[:, None] / shrunk[:, :, None]).flatten(1)
        error = (weights * (asked @ weights)).view(*shrunk.shape, -1)
        hits = weights.view(*shrunk.shape, -1) * centre[:, None]
        totals += (error - 2 * hits).sum((0, 2))
    # A perfect fit rounds to either side of 0, and a limit relative to a negative error fails.
    errors = (totals + int((validation.mass_ > 0).sum())).clamp_min(0.0).tolist()
    return nearly_best(ladder, errors)


def nearly_best(ladder: Sequence[float], errors: Sequence[float]) -> float:
    """Return the least regularisation whose error is within ``TOLERANCE`` of the smallest.

    Shrunken scores raise the squared error long before they change a prediction.

    >>> nearly_best([1.0, 0.1, 0.01], [0.5, 0.505, 0.6])
    0.1
    """
    limit = (1 + TOLERANCE) * min(errors)
    return min(r for r, error in zip(ladder, errors, strict=True) if error <= limit)
