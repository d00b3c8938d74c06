"""Heads for every penalty of a ladder from one decomposition, and the penalty that suits best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.closed_form.ridge import RidgeProblem
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

        >>> PenaltyPath.of(torch.tensor([[4.]]).double(), torch.tensor([[4.]])).values
        tensor([1.], dtype=torch.float64)
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

    def weights(self, right: Tensor, penalty: float) -> Tensor:
        """Return (A + λP)⁻¹ M.  M: float64 [m, columns] -> [m, columns]"""
        return self.basis @ ((self.basis.t() @ right) / (self.values + penalty)[:, None])


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

    penalty: P of all features, if not the identity, see ``RidgeProblem``.
    """
    width = validation.width
    problem = RidgeProblem.of(training.narrowed(width), balanced=balanced)
    asked = RidgeProblem.of(validation, balanced=balanced)
    gram, right = asked.matrix(), asked.right
    right = torch.nn.functional.pad(right, (0, problem.right.shape[1] - right.shape[1]))
    gram = gram.tril() + gram.tril(-1).t()
    part = None if penalty is None else penalty[:width, :width]
    path = PenaltyPath.of(problem.matrix(), part)
    scale = RidgeProblem.of(training, balanced=balanced).scale(penalty)
    errors = []
    for value in ladder:
        weights = path.weights(problem.right, max(value, 1e-9) * scale)
        error = asked.total + float((weights * (gram @ weights - 2 * right)).sum())
        # A perfect fit rounds to either side of 0, and a limit relative to a negative error fails.
        errors.append(max(error, 0.0))
    return nearly_best(ladder, errors)


def nearly_best(
    ladder: Sequence[float], errors: Sequence[float], tolerance: float = TOLERANCE
) -> float:
    """Return the least regularisation whose error is within a share of the smallest.

    Shrunken scores raise the squared error long before they change a prediction.

    >>> nearly_best([1.0, 0.1, 0.01], [0.5, 0.505, 0.6])
    0.1
    """
    limit = (1 + tolerance) * min(errors)
    return min(r for r, error in zip(ladder, errors, strict=True) if error <= limit)
