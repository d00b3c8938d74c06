"""Class-balanced ridge regression: a linear head in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.closed_form.statistics import ClassStatistics
from evergraph.core.errors import DataError

# A float32 factor takes half the time of a float64 one, but refining it takes a few products with
# A per class: this pays above this width, which grows with the number of classes.
NARROW = 1536
NARROW_PER_CLASS = 64
# Rows of G converted to float64 at a time, so that they are still in cache when multiplied.
ROWS = 128
# Classes solved at a time, which bounds the temporaries however many classes there are.
CLASSES = 1024
# Residuals relative to the right side. The remaining error of the scores is far below the rounding
# of float32 sums.
RESIDUAL = 1e-9
# With a float32 factor one to four steps suffice if the matrix is far from singular. If this many
# do not suffice, float64 from the start is faster.
STEPS = 8

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class BalancedProblem:
    """The class-balanced Gram matrix A and class means of some statistics, without a copy of G.

    A = a G + Σ_c b_c μ_c μ_cᵀ, see ``balanced_moments``.

    Attributes:
        gram: G, lower triangle.  [m, m]
        share: a.  float64 []
        means: μ of every class, 0 for one without nodes.  float64 [m, classes]
        excess: b.  float64 [classes]
    """

    gram: Tensor
    share: Tensor
    means: Tensor
    excess: Tensor

    @classmethod
    def of(cls, statistics: ClassStatistics, *, balanced: bool = True) -> BalancedProblem:
        """Return the problem of the nodes so far, with equal node weights unless ``balanced``."""
        mass = statistics.mass_
        met = mass > 0
        tiny = torch.finfo(mass.dtype).tiny
        share = met.sum() / mass.sum().clamp_min(tiny)
        if not balanced:
            means = (statistics.sums_ * share).t()
            return cls(statistics.gram_, share, means, torch.zeros_like(mass))
        means = (statistics.sums_ / mass.clamp_min(tiny)[:, None]).t().masked_fill_(~met, 0.0)
        excess = met.double() - share * mass  # remaining weight of each class mean's square
        return cls(statistics.gram_, share, means, excess.where(excess.abs() > 1e-9, 0.0))

    def matrix(self, dtype: torch.dtype) -> Tensor:
        """Return A; values above its diagonal are undefined.  -> [m, m]"""
        matrix = self.gram.to(dtype, copy=True).mul_(self.share)
        if bool(self.excess.any()):
            pairs = zip(self.means.split(CLASSES, 1), self.excess.split(CLASSES), strict=True)
            for means, excess in pairs:
                matrix.addmm_((means * excess).to(dtype), means.t().to(dtype))
        return matrix

    def diagonal(self) -> Tensor:
        """Return A's diagonal.  -> float64 [m]"""
        found = self.gram.diagonal().double() * self.share
        pairs = zip(self.means.split(CLASSES, 1), self.excess.split(CLASSES), strict=True)
        for means, excess in pairs:
            found = found + means.square() @ excess
        return found

    def times(self, right: Tensor) -> Tensor:
        """Return A X in float64, whatever the dtype of G.  [m, columns] -> [m, columns]"""
        total = torch.zeros_like(right)
        for start in range(0, len(right), ROWS):
            rows = slice(start, min(start + ROWS, len(right)))
            part = self.gram[rows, : rows.stop].double()
            left, corner = part[:, :start], part[:, start:]
            total[rows].addmm_(corner.tril() + corner.tril(-1).t(), right[rows])
            total[rows].addmm_(left, right[:start])
            total[:start].addmm_(left.t(), right[rows])
        return total.mul_(self.share) + (self.means * self.excess) @ (self.means.t() @ right)


def balanced_moments(
    statistics: ClassStatistics, *, balanced: bool = True
) -> tuple[Tensor, Tensor]:
    """Return the class-balanced Gram matrix and the class means.  -> [m, m], [m, classes]

    A = C/M (G - Σ_c m_c μ_c μ_cᵀ) + Σ_c μ_c μ_cᵀ with masses m_c, M = Σ m_c, μ_c = s_c / m_c: the
    weighted scatter within classes, plus every class mean once. With weights 1/n_c every mass is 1,
    and A is the Gram matrix of the class-balanced least-squares problem itself; with equal weights
    it is its estimate under one scatter for all classes. Classes without nodes are ignored. In
    float64; values above A's diagonal are undefined.
    """
    problem = BalancedProblem.of(statistics, balanced=balanced)
    return problem.matrix(torch.float64), problem.means


def balanced_ridge(
    statistics: ClassStatistics,
    regularisation: float,
    *,
    balanced: bool = True,
    penalty: Tensor | None = None,
) -> Tensor:
    """Return V = argmin Σ_c 1/n_c Σ_{i∈c} ‖y_i - Vᵀφ_i‖² + λ ‖V‖².  -> float64 [m, classes]

    Unless ``balanced``, nodes count by their weights, without class balancing.

    (A + λ I) V = [μ_0 ... μ_C-1], λ = ``regularisation`` x the mean of A's diagonal, so that one
    value means the same at every width. Wide problems are solved with a Cholesky factor in float32,
    refined with products in float64 until residuals are 1e-9 of the right side; narrow ones, and
    those too near to singular, with a factor in float64. λ grows tenfold while rounding keeps the
    matrix from being positive definite.

    penalty: P, if not the identity, see ``BalancedSolution``
    """
    if penalty is not None:
        return BalancedSolution.of(
            statistics, regularisation, balanced=balanced, penalty=penalty
        ).weights
    problem, met = BalancedProblem.of(statistics, balanced=balanced), statistics.mass_ > 0
    if bool(met.all()):
        return _solved(problem, problem.means, regularisation)
    weights = torch.zeros_like(problem.means)
    weights[:, met] = _solved(problem, problem.means[:, met], regularisation)
    return weights


@dataclass(frozen=True, eq=False)
class BalancedSolution:
    """V of ``balanced_ridge`` with the factor needed to leave out single nodes (``left_out``).

    Attributes:
        problem: A and the class means.
        factor: L, the Cholesky factor of A + λ I.  float64 [m, m]
        weights: V.  float64 [m, classes]
        balanced: whether all classes have equal weight, or all nodes.
    """

    problem: BalancedProblem
    factor: Tensor
    weights: Tensor
    balanced: bool = True

    @classmethod
    def of(
        cls,
        statistics: ClassStatistics,
        regularisation: float,
        *,
        balanced: bool = True,
        penalty: Tensor | None = None,
    ) -> BalancedSolution:
        """Solve with a factor in float64.

        penalty: P, if λ tr(VᵀPV) is added instead of λ‖V‖², as for features that are not whitened
        (see ``KernelMap``); λ is then relative to C/m times the mean of P's diagonal.
        [m, m]
        """
        problem = BalancedProblem.of(statistics, balanced=balanced)
        scale = penalty_scale(statistics, penalty, balanced=balanced)
        while (factor := _factor(problem, regularisation * scale, torch.float64, penalty)) is None:
            regularisation = max(10 * regularisation, 1e-7)
        return cls(problem, factor, _substituted(factor, problem.means), balanced)

    def half(self, rows: Tensor) -> Tensor:
        """Return x̂ with x̂ · ŷ = xᵀ(A + λP)⁻¹y for every row x.  float64 [n, m] -> [n, m]"""
        found: Tensor = torch.linalg.solve_triangular(self.factor, rows.t(), upper=False)
        return found.t()


def penalty_scale(
    statistics: ClassStatistics, penalty: Tensor | None = None, *, balanced: bool = True
) -> float:
    """Return what λ is relative to, see ``BalancedSolution.of``; raise if A is not finite."""
    scale = _scale(BalancedProblem.of(statistics, balanced=balanced))
    if penalty is None:
        return scale
    classes = float((statistics.mass_ > 0).sum())
    return classes * float(penalty.diagonal().mean()) / len(penalty) or 1.0


def solved(matrix: Tensor, means: Tensor, regularisation: float) -> Tensor:
    """Return (A + λ I)⁻¹ M for any A, λ = ``regularisation`` x the mean of its diagonal.

    Only the lower triangle of A is read. float64 [m, m], [m, k] -> [m, k]
    """
    nothing = means.new_zeros(len(matrix), 0)
    problem = BalancedProblem(matrix, means.new_ones(()), nothing, means.new_zeros(0))
    return _solved(problem, means, regularisation)


def _solved(problem: BalancedProblem, means: Tensor, regularisation: float) -> Tensor:
    scale = _scale(problem)
    while True:
        ridge = regularisation * scale
        found = _refined(problem, means, ridge)
        if found is not None:
            return found
        factor = _factor(problem, ridge, torch.float64)
        if factor is not None:
            return _substituted(factor, means)
        regularisation = max(10 * regularisation, 1e-7)


def _scale(problem: BalancedProblem) -> float:
    """Return the mean of A's diagonal, to which λ is relative."""
    # Removing nodes may leave it slightly below 0.
    scale = float(problem.diagonal().abs().mean()) or 1.0
    if not math.isfinite(scale):  # no regularisation would be enough
        raise DataError(
            f"embeddings must be finite and small enough to be squared, not {scale} on average: "
            "use scaling='unit'"
        )
    return scale


def _refined(problem: BalancedProblem, means: Tensor, ridge: float) -> Tensor | None:
    """Return V by a factor in float32; None if that is slower or does not converge."""
    width, classes = means.shape
    if width <= NARROW + NARROW_PER_CLASS * classes:
        return None
    factor = _factor(problem, ridge, torch.float32)
    if factor is None:
        return None
    return conjugate_gradients(
        lambda right: problem.times(right).add_(right, alpha=ridge),
        lambda right: torch.cholesky_solve(right.float(), factor).double(),
        means,
    )


def _substituted(factor: Tensor, means: Tensor) -> Tensor:
    """Return (L Lᵀ)⁻¹ M, some classes at a time."""
    found = torch.empty_like(means)
    for part, into in zip(means.split(CLASSES, 1), found.split(CLASSES, 1), strict=True):
        into.copy_(torch.cholesky_solve(part, factor))
    return found


def _factor(
    problem: BalancedProblem, ridge: float, dtype: torch.dtype, penalty: Tensor | None = None
) -> Tensor | None:
    """Return L of A + λ I or A + λ P; None if rounding has left the matrix indefinite."""
    matrix = problem.matrix(dtype)
    if penalty is None:
        matrix.diagonal().add_(ridge)
    else:
        matrix.add_(penalty, alpha=ridge)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    return None if int(failed) else factor


def conjugate_gradients(times: Map, nearly_solve: Map, right: Tensor) -> Tensor | None:
    """Return X with A X = B, column by column; None if the residuals do not become small.

    Preconditioned conjugate gradients, p = z + β p with z = P⁻¹ r and Polak and Ribière's
    β = zᵀ(r - r')/z'ᵀr', which tolerates a P⁻¹ that is symmetric only up to rounding.

    times: X -> A X, with A symmetric and positive definite; nearly_solve: B -> P⁻¹ B, P near A;
    right: B.  float64 [m, columns]

    >>> found = conjugate_gradients(lambda x: 2 * x, lambda b: 0.4 * b, torch.ones(2, 1).double())
    >>> found.tolist()
    [[0.5], [0.5]]
    """

    def ratio(over: Tensor, under: Tensor) -> Tensor:  # 0 for a column that has converged
        return torch.where(under == 0, 0.0, over / under)

    found = nearly_solve(right)
    residual = right - times(found)
    enough = RESIDUAL * right.norm(dim=0)
    direction = guess = nearly_solve(residual)
    slope = (residual * guess).sum(0)
    for _ in range(STEPS):
        if bool((residual.norm(dim=0) <= enough).all()):
            return found
        image = times(direction)
        step = ratio(slope, (direction * image).sum(0))
        found = found + step * direction
        before, residual = residual, residual - step * image
        guess = nearly_solve(residual)
        direction = guess + ratio((guess * (residual - before)).sum(0), slope) * direction
        slope = (residual * guess).sum(0)
    return None
