"""A linear head in closed form, every class counting alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.memory.class_statistics import ClassStatistics

TOLERANCE = 0.02


def balanced_moments(statistics: ClassStatistics) -> tuple[Tensor, Tensor]:
    """Return the class-balanced Gram matrix and the class means.  -> [m, m], [m, classes]

    A = C/M (G - Σ_c m_c μ_c μ_cᵀ) + Σ_c μ_c μ_cᵀ with masses m_c, M = Σ m_c, μ_c = s_c / m_c: the
    scatter within classes as the weights have it, and every class mean once. With weights 1/n_c
    every mass is 1, and A is the Gram matrix of the class-balanced least-squares problem itself;
    with equal weights it is its estimate under one scatter for all classes. Classes without nodes
    take no part. In float64, the part above A's diagonal not to be read.
    """
    mass = statistics.mass_
    met = mass > 0
    means = (statistics.sums_ / mass.clamp_min(torch.finfo(mass.dtype).tiny)[:, None]).t()
    means = means.where(met, 0.0)  # [m, classes]
    share = met.sum() / mass.sum().clamp_min(torch.finfo(mass.dtype).tiny)
    matrix = statistics.gram_.to(torch.float64, copy=True).mul_(share)
    within = met.double() - share * mass  # what each class mean's square still counts
    if bool((within.abs() > 1e-9).any()):
        matrix.addmm_(means * within, means.t())
    return matrix, means


def balanced_ridge(statistics: ClassStatistics, regularisation: float) -> Tensor:
    """Return V = argmin Σ_c 1/n_c Σ_{i∈c} ‖y_i - Vᵀφ_i‖² + λ ‖V‖².  -> float64 [m, classes]

    (A + λ I) V = [μ_0 ... μ_C-1], λ = ``regularisation`` x the mean of A's diagonal, so that one
    value means the same at every width. Solved by Cholesky in float64; λ grows tenfold while
    rounding keeps the matrix from being positive definite.
    """
    matrix, means = balanced_moments(statistics)
    return solved(matrix, means, regularisation)


def solved(matrix: Tensor, means: Tensor, regularisation: float) -> Tensor:
    """Return (A + λ I)⁻¹ M by Cholesky, λ = ``regularisation`` x the mean of A's diagonal.

    Of A the lower triangle is read, and its diagonal changed. float64 [m, m], [m, k] -> [m, k]
    """
    diagonal = matrix.diagonal()
    before = diagonal.clone()
    scale = float(before.abs().mean()) or 1.0  # what was counted out may leave a little below 0
    if not math.isfinite(scale):  # no regularisation would ever be enough
        raise DataError(
            f"embeddings must be finite and small enough to be squared, not {scale} on average: "
            "use scaling='unit'"
        )
    while True:
        diagonal.copy_(before + regularisation * scale)
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if not int(failed):
            return torch.cholesky_solve(means, factor)
        regularisation = max(10 * regularisation, 1e-7)


def choose_regularisation(
    training: ClassStatistics, validation: ClassStatistics, ladder: Sequence[float]
) -> float:
    """Return the least regularisation whose error on validation nodes is nearly the smallest.

    The error is the class-balanced squared one,
    Σ_c 1/n_c Σ_{i∈c} ‖y_i - Vᵀφ_i‖² = C - 2 tr(Vᵀ M) + tr(Vᵀ A V) with A and M of the validation
    nodes: in closed form from their statistics, no node needed. Nearly: within ``TOLERANCE``, since
    shrunken scores lose squared error long before they lose an answer. Statistics of validation
    nodes may be narrower: the choice is then made on the first features of both.
    """
    narrow = training.narrowed(validation.width)
    matrix, means = balanced_moments(narrow)
    asked, centres = balanced_moments(validation)
    asked = asked.tril() + asked.tril(-1).t()
    errors = []
    for regularisation in ladder:
        weights = solved(matrix.clone(), means, regularisation)
        hits = (weights[:, : centres.shape[1]] * centres).sum()  # the last classes may have no node
        error = float((weights * (asked @ weights)).sum() - 2 * hits)
        # A perfect fit rounds to either side of 0, and nothing is within a share of less than 0.
        errors.append(max(error + int((validation.mass_ > 0).sum()), 0.0))
    limit = (1 + TOLERANCE) * min(errors)
    return min(r for r, error in zip(ladder, errors, strict=True) if error <= limit)
