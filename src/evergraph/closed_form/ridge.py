"""Ridge regression from sums: a linear head in closed form, for every penalty of a ladder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.closed_form.statistics import ClassStatistics, mirrored
from evergraph.core.errors import DataError

# Classes solved at a time, which bounds the temporaries however many classes there are.
CLASSES = 1024


@dataclass(frozen=True, eq=False)
class RidgeProblem:
    """(A + λ P) V = M with A = a G + Σ_k b_k μ_k μ_kᵀ, without a copy of G.

    λ is ``regularisation`` x a scale, so that one value means the same at every width. P = I, for
    V = argmin Σ ‖y - Vᵀφ‖² + λ ‖V‖², with the mean of A's diagonal as scale; or any other matrix,
    as for features that are not whitened (see ``KernelMap``), with the ``total`` mass per feature
    times the mean of P's diagonal.

    Attributes:
        gram: G, lower triangle.  [m, m]
        share: a.  float64 []
        means: μ: of every class, 0 for one without nodes, or of all nodes.  float64 [m, k]
        excess: b.  float64 [k]
        right: M.  float64 [m, columns]
        total: number of classes with nodes if these count alike, or of nodes.
    """

    gram: Tensor
    share: Tensor
    means: Tensor
    excess: Tensor
    right: Tensor
    total: float = 1.0

    @classmethod
    def of(cls, statistics: ClassStatistics, *, balanced: bool = True) -> RidgeProblem:
        """Return the problem of classes: M are the class means, which scores 1 for the own class.

        A = C/M (G - Σ_c m_c μ_c μ_cᵀ) + Σ_c μ_c μ_cᵀ with masses m_c, M = Σ m_c, μ_c = s_c / m_c:
        the weighted scatter within classes, plus every class mean once. With weights 1/n_c every
        mass is 1, and A is the Gram matrix of the class-balanced least-squares problem itself; with
        equal weights it is its estimate under one scatter for all classes. Classes without nodes
        are ignored. Unless ``balanced``, nodes count by their weights.
        """
        mass = statistics.mass_
        nonempty, tiny = mass > 0, torch.finfo(mass.dtype).tiny
        share, total = nonempty.sum() / mass.sum().clamp_min(tiny), float(nonempty.sum())
        if not balanced:
            right = (statistics.sums_ * share).t()
            return cls(statistics.gram_, share, right, torch.zeros_like(mass), right, total)
        means = (statistics.sums_ / mass.clamp_min(tiny)[:, None]).t().masked_fill_(~nonempty, 0.0)
        excess = nonempty.double() - share * mass  # remaining weight of each class mean's square
        excess = excess.where(excess.abs() > 1e-9, 0.0)
        return cls(statistics.gram_, share, means, excess, means, total)

    @classmethod
    def plain(cls, matrix: Tensor, right: Tensor) -> RidgeProblem:
        """Return the problem of any A and M.  A: lower triangle, float64 [m, m]; [m, columns]"""
        return cls(matrix, right.new_ones(()), right[:, :0], right.new_zeros(0), right)

    def matrix(self) -> Tensor:
        """Return A; values above its diagonal are undefined.  -> float64 [m, m]"""
        matrix = self.gram.to(torch.float64, copy=True).mul_(self.share)
        if bool(self.excess.any()):
            pairs = zip(self.means.split(CLASSES, 1), self.excess.split(CLASSES), strict=True)
            for means, excess in pairs:
                matrix.addmm_(means * excess, means.t())
        return matrix

    def diagonal(self) -> Tensor:
        """Return A's diagonal.  -> float64 [m]"""
        diagonal = self.gram.diagonal().double() * self.share
        pairs = zip(self.means.split(CLASSES, 1), self.excess.split(CLASSES), strict=True)
        for means, excess in pairs:
            diagonal = diagonal + means.square() @ excess
        return diagonal

    def scale(self, penalty: Tensor | None = None) -> float:
        """Return what λ is relative to; raise if A is not finite.  penalty: P, if not I"""
        # Removing nodes may leave the diagonal slightly below 0.
        scale = float(self.diagonal().abs().mean()) or 1.0
        if not math.isfinite(scale):  # no regularisation would be enough
            raise DataError(
                f"embeddings must be finite and small enough to be squared, not {scale} on "
                "average: use scaling='unit'"
            )
        if penalty is None:
            return scale
        return self.total * float(penalty.diagonal().mean()) / len(penalty) or 1.0

    def solution(self, regularisation: float, penalty: Tensor | None = None) -> RidgeSolution:
        """Return V, by a Cholesky factor.  penalty: P, if not I

        λ grows tenfold while rounding keeps the matrix from being positive definite.
        """
        scale = self.scale(penalty)
        while (factor := self._factor(regularisation * scale, penalty)) is None:
            regularisation = max(10 * regularisation, 1e-7)
        weights = torch.empty_like(self.right)
        for part, into in zip(self.right.split(CLASSES, 1), weights.split(CLASSES, 1), strict=True):
            into.copy_(torch.cholesky_solve(part, factor))
        return RidgeSolution(self, factor, weights)

    def _factor(self, ridge: float, penalty: Tensor | None = None) -> Tensor | None:
        """Return L of A + λ P; None if rounding has left the matrix indefinite."""
        matrix = self.matrix()
        if penalty is None:
            matrix.diagonal().add_(ridge)
        else:
            matrix.add_(penalty, alpha=ridge)
        factor, failed = torch.linalg.cholesky_ex(matrix)
        return None if int(failed) else factor


@dataclass(frozen=True, eq=False)
class RidgeSolution:
    """V with the factor needed to leave out single nodes (``left_out``).

    Attributes:
        problem: A and M.
        factor: L, the Cholesky factor of A + λ P.  float64 [m, m]
        weights: V.  float64 [m, columns]
    """

    problem: RidgeProblem
    factor: Tensor
    weights: Tensor

    def half(self, rows: Tensor) -> Tensor:
        """Return x̂ with x̂ · ŷ = xᵀ(A + λP)⁻¹y for every row x.  float64 [n, m] -> [n, m]"""
        solved: Tensor = torch.linalg.solve_triangular(self.factor, rows.t(), upper=False)
        return solved.t()


def balanced_ridge(
    statistics: ClassStatistics,
    regularisation: float,
    *,
    balanced: bool = True,
    penalty: Tensor | None = None,
) -> Tensor:
    """Return V = argmin Σ_c 1/n_c Σ_{i∈c} ‖y_i - Vᵀφ_i‖² + λ VᵀPV.  -> float64 [m, classes]

    See ``RidgeProblem``; unless ``balanced``, nodes count by their weights, without class
    balancing. penalty: P, if not the identity
    """
    problem = RidgeProblem.of(statistics, balanced=balanced)
    return problem.solution(regularisation, penalty).weights


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
        factor = torch.linalg.cholesky(penalty.double())
        half = torch.linalg.solve_triangular(factor, mirrored(matrix), upper=False)
        whitened = torch.linalg.solve_triangular(factor, half.t(), upper=False)  # L⁻¹ A L⁻ᵀ
        values, vectors = torch.linalg.eigh(whitened)
        basis = torch.linalg.solve_triangular(factor.t(), vectors, upper=True)
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
    held_back = RidgeProblem.of(validation, balanced=balanced)
    gram, right = mirrored(held_back.matrix()), held_back.right
    right = torch.nn.functional.pad(right, (0, problem.right.shape[1] - right.shape[1]))
    narrow_penalty = None if penalty is None else penalty[:width, :width]
    path = PenaltyPath.of(problem.matrix(), narrow_penalty)
    scale = RidgeProblem.of(training, balanced=balanced).scale(penalty)
    errors = []
    for value in ladder:
        weights = path.weights(problem.right, max(value, 1e-9) * scale)
        error = held_back.total + float((weights * (gram @ weights - 2 * right)).sum())
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
