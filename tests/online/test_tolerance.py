"""How far a learner with a tolerance is from the exact one: never further than derived here.

A part of a vector is counted as y_b where it is x_b, with ‖x_b - y_b‖ ≤ τ ‖y_b‖. Parts that a view
is made of are of unit length, |v| of them, so ‖x - y‖ ≤ τ √|v|. φ_v(x) = √(2/(m|v|)) max(0, x R) is
Lipschitz and 0 at 0: with L = √(2/m) ‖R‖₂ both ‖φ(x)‖ ≤ L and ‖φ(x) - φ(y)‖ ≤ L τ, for n nodes of C
classes:

    sums      ‖ΔG‖₂ ≤ 2 n L² τ,  ‖Δs_c‖ ≤ n_c L τ
    problem   A = C/n (G - Σ n_c μ_c μ_cᵀ) + Σ μ_c μ_cᵀ:  ‖ΔA‖₂ ≤ 6 C L² τ,  ‖ΔM‖_F ≤ √C L τ,
              λ = r tr(A)/m:  |Δλ| ≤ r ‖ΔA‖₂
    head      (A' + λ'I) ΔV = ΔM - (ΔA + Δλ I) V and ‖(A' + λ'I)⁻¹‖₂ ≤ 1/λ':
              ‖ΔV‖_F ≤ (√C L τ + 6 (1 + r) C L² τ ‖V‖_F) / λ'
    scores    ‖Δs(x)‖ ≤ L ‖ΔV‖_F
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.seeding import seeded
from evergraph.memory import ClassStatistics
from evergraph.methods.balanced_ridge import balanced_moments, balanced_ridge
from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead, FusedHead, OnlineHead
from evergraph.online.learner import OnlineLearner

R = 0.01  # the regularisation of both heads


def sums_of(head: OnlineHead) -> list[tuple[ClassStatistics, float]]:
    """Return the sums of every view of a head, and L."""
    if isinstance(head, AnalyticHead):
        matrix = head.scorer().expansion.matrix
        return [(head.statistics_, lipschitz(matrix))]
    assert isinstance(head, FusedHead)
    parts = head.scorer().parts
    matrices = [torch.cat([parts.matrices[p] for p in parts.needed(v)]) for v in head.parsed]
    return [(s, lipschitz(m)) for s, m in zip(head.statistics_, matrices, strict=True)]


def lipschitz(matrix: Tensor) -> float:
    found = math.sqrt(2 / matrix.shape[1]) * torch.linalg.matrix_norm(matrix.double(), 2)
    return float(found) * (1 + 1e-6)  # vectors of length 1 are so up to rounding


def deltas(seed: int, steps: int) -> list[Delta]:
    """Nodes with random edges to those before, which pull them a little."""
    generator = seeded(seed, "growth")
    found = []
    for step in range(steps):
        new = [3 * step + i for i in range(3)]
        ends = torch.randint(0, new[-1] + 1, (3,), generator=generator).tolist()
        found.append(
            Delta(
                nodes=new,
                features=torch.randn(3, 2, generator=generator) + 2.0,
                labels=torch.randint(0, 3, (3,), generator=generator).tolist(),
                edges=list(zip(new, ends, strict=True)),
            )
        )
    return found


HEADS: dict[str, Callable[[], OnlineHead]] = {
    "analytic": lambda: AnalyticHead(width=16),
    "auto": lambda: FusedHead(width=16, codes=4),
}


@pytest.mark.parametrize("name", HEADS)
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 50), steps=st.integers(2, 6), tolerance=st.sampled_from([0.0, 0.05, 0.3])
)
def test_sums_and_scores_stay_within_the_bound(
    name: str, seed: int, steps: int, tolerance: float
) -> None:
    near, exact = (OnlineLearner(head=HEADS[name](), tolerance=t) for t in (tolerance, 0.0))
    for delta in deltas(seed, steps):
        near.apply(delta)
        exact.apply(delta)
    for (ours, size), (plain, _) in zip(sums_of(near.head), sums_of(exact.head), strict=True):
        within(ours, plain, size, tolerance)


def within(ours: ClassStatistics, plain: ClassStatistics, size: float, tolerance: float) -> None:
    """Compare sums, V and scores of a learner with a tolerance to those of the exact one."""
    counts = plain.counts_
    assert ours.counts_.equal(counts)
    gram, other = (s.gram_.tril() + s.gram_.tril(-1).t() for s in (ours, plain))
    nodes, classes, rounding = int(counts.sum()), int((counts > 0).sum()), 1e-9
    off = torch.linalg.matrix_norm(gram - other, 2)
    assert off <= 2 * nodes * size**2 * tolerance + rounding
    sums = (ours.sums_ - plain.sums_).norm(dim=1)
    assert (sums <= counts * size * tolerance + rounding).all()
    ridge = R * float(balanced_moments(ours)[0].diagonal().mean())
    found, right = (balanced_ridge(s, R) for s in (ours, plain))
    pull = math.sqrt(classes) * size + 6 * (1 + R) * classes * size**2 * float(right.norm())
    limit = pull * tolerance / ridge
    assert float((found - right).norm()) <= limit + 1e-6


def test_a_tolerance_saves_counting_and_moves_scores() -> None:
    """Else the bounds above would hold for nothing."""
    near, exact = (OnlineLearner(head=AnalyticHead(width=16), tolerance=t) for t in (0.3, 0.0))
    counted = [[each.apply(delta).counted for each in (near, exact)] for delta in deltas(0, 6)]
    fewer, all_that_moved = map(sum, zip(*counted, strict=True))
    assert 18 <= fewer < all_that_moved
    ids = list(range(18))
    assert near.embed(ids).equal(exact.embed(ids))
    assert near.predict_proba(ids)[1].ne(exact.predict_proba(ids)[1]).any()
