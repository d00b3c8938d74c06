"""Ridge regression from sums: a linear head in closed form."""

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
ROWS_PER_BLOCK = 128
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
        met, tiny = mass > 0, torch.finfo(mass.dtype).tiny
        share, total = met.sum() / mass.sum().clamp_min(tiny), float(met.sum())
        if not balanced:
            right = (statistics.sums_ * share).t()
            return cls(statistics.gram_, share, right, torch.zeros_like(mass), right, total)
        means = (statistics.sums_ / mass.clamp_min(tiny)[:, None]).t().masked_fill_(~met, 0.0)
        excess = met.double() - share * mass  # remaining weight of each class mean's square
        excess = excess.where(excess.abs() > 1e-9, 0.0)
        return cls(statistics.gram_, share, means, excess, means, total)

    @classmethod
    def plain(cls, matrix: Tensor, right: Tensor) -> RidgeProblem:
        """Return the problem of any A and M.  A: lower triangle, float64 [m, m]; [m, columns]"""
        return cls(matrix, right.new_ones(()), right[:, :0], right.new_zeros(0), right)

    def matrix(self, dtype: torch.dtype = torch.float64) -> Tensor:
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
        for start in range(0, len(right), ROWS_PER_BLOCK):
            rows = slice(start, min(start + ROWS_PER_BLOCK, len(right)))
            part = self.gram[rows, : rows.stop].double()
            left, corner = part[:, :start], part[:, start:]
            total[rows].addmm_(corner.tril() + corner.tril(-1).t(), right[rows])
            total[rows].addmm_(left, right[:start])
            total[:start].addmm_(left.t(), right[rows])
        return total.mul_(self.share) + (self.means * self.excess) @ (self.means.t() @ right)

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

    def solve(self, regularisation: float) -> Tensor:
        """Return V with λ I as penalty.  -> float64 [m, columns]

        Wide problems are solved with a Cholesky factor in float32, refined with products in float64
        until residuals are 1e-9 of the right side; narrow ones, and those too near to singular,
        with a factor in float64. λ grows tenfold while rounding keeps the matrix from being
        positive definite.
        """
        found = self._refined(regularisation * self.scale())
        return self.solution(regularisation).weights if found is None else found

    def _refined(self, ridge: float) -> Tensor | None:
        """Return V by a factor in float32; None if that is slower or does not converge."""
        width, columns = self.right.shape
        if width <= NARROW + NARROW_PER_CLASS * columns:
            return None
        factor = self._factor(ridge, torch.float32)
        if factor is None:
            return None
        return conjugate_gradients(
            lambda right: self.times(right).add_(right, alpha=ridge),
            lambda right: torch.cholesky_solve(right.float(), factor).double(),
            self.right,
        )

    def solution(self, regularisation: float, penalty: Tensor | None = None) -> RidgeSolution:
        """Return V with its factor in float64.  penalty: P, if not I"""
        scale = self.scale(penalty)
        while (factor := self._factor(regularisation * scale, torch.float64, penalty)) is None:
            regularisation = max(10 * regularisation, 1e-7)
        weights = torch.empty_like(self.right)
        for part, into in zip(self.right.split(CLASSES, 1), weights.split(CLASSES, 1), strict=True):
            into.copy_(torch.cholesky_solve(part, factor))
        return RidgeSolution(self, factor, weights)

    def _factor(
        self, ridge: float, dtype: torch.dtype, penalty: Tensor | None = None
    ) -> Tensor | None:
        """Return L of A + λ P; None if rounding has left the matrix indefinite."""
        matrix = self.matrix(dtype)
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
        found: Tensor = torch.linalg.solve_triangular(self.factor, rows.t(), upper=False)
        return found.t()


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
    if penalty is None:
        return problem.solve(regularisation)
    return problem.solution(regularisation, penalty).weights


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
