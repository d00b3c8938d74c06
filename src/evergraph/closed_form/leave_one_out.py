"""Counted nodes predicted as if each had been left out, and the penalty that predicts them best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from evergraph.closed_form.ridge import PenaltyPath, RidgeProblem, RidgeSolution, nearly_best
from evergraph.closed_form.statistics import ClassStatistics

# Values of φ or of scores at a time.
BLOCK_VALUES = 1 << 20
ROUNDING = 1e-6  # of errors, which must not decide


@dataclass(frozen=True, eq=False)
class Sample:
    """Counted nodes that are left out in turn.

    Attributes:
        features: φ.  float64 [n, m]
        labels: of classes with two nodes or more.  int64 [n]
        weights: with which they are counted.  float64 [n]
        landmarks: the feature that is a node's own, if the node is a landmark, else -1.  int64 [n]
    """

    features: Tensor
    labels: Tensor
    weights: Tensor
    landmarks: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, rows: slice) -> Sample:
        """Return some of the nodes."""
        return Sample(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def own(self) -> Tensor:
        """Return e of the feature that is a node's own, 0 for other nodes.  -> [n, m]"""
        found = torch.zeros_like(self.features)
        basis = self.landmarks >= 0
        found[basis, self.landmarks[basis]] = 1.0
        return found

    def first(self, nodes: int, width: int) -> Sample:
        """Return the first nodes with the first features alone."""
        some = self.part(slice(nodes))
        own = some.landmarks.where(some.landmarks < width, -1)
        return Sample(some.features[:, :width], some.labels, some.weights, own)


class Halves(NamedTuple):
    """Vectors x̂ of a solution with x̂ · ŷ = xᵀ(A + λP)⁻¹y, or of several, one for every λ.

    Attributes:
        nodes: φ̂ of the sample.  [..., n, m]
        means: of every class.  [..., classes, m]
        own: ê of the feature that is a node's own; anything for other nodes.  [..., n, m]
    """

    nodes: Tensor
    means: Tensor
    own: Tensor


def left_out(
    problem: RidgeProblem, halves: Halves, sample: Sample, masses: Tensor, *, balanced: bool
) -> Tensor:
    """Return the scores of counted nodes, each computed as if it were left out of V.

    Without φ of class c, which has mass m_c and counts with weight w, and with everything else
    unchanged, A and the right side of c change within the span of φ and μ_c:

        μ'_c = (m_c μ_c - w φ) / (m_c - w),
        A' = A - a w φφᵀ - b_c μ_c μ_cᵀ + (b_c + a w) μ'_c μ'_cᵀ

    With U = [φ, μ_c] that is A' = A + U S Uᵀ, solved by Woodbury's identity. a and λ are taken to
    stay; they change by a share of 1 / n. With equal node weights (not ``balanced``)
    A' = A - a w φφᵀ, and the right side of c loses a w φ.

    A landmark is left out as a landmark too: its weight is 0, one condition more. Otherwise its own
    feature, which no other node has as strongly, would fit others freely where it is asked itself,
    and λ would be chosen ten to a hundred times too large.

    masses: m, float64 [classes] -> float64 [..., n, classes]
    """
    nodes, means, own = halves
    rows, labels, share = torch.arange(len(sample)), sample.labels, problem.share
    lost = share * sample.weights  # a w
    scores, pull = nodes @ means.mT, nodes.square().sum(-1)
    met, places = labels.unique(return_inverse=True)
    of_means = (means[..., met, :] @ means.mT)[..., places, :]  # μ_cᵀ(A + λP)⁻¹μ
    if balanced:
        mass, excess = masses[labels], problem.excess[labels]
        keep, lose = mass / (mass - sample.weights), sample.weights / (mass - sample.weights)
        now = excess + lost
        change = _pairs(now * lose**2 - lost, -now * lose * keep, now * keep**2 - excess)
    else:
        keep, lose = torch.ones_like(lost), lost
        change = _pairs(-lost, torch.zeros_like(lost), torch.zeros_like(lost))
    own_score = scores[..., rows, labels]
    inner = _pairs(pull, own_score, of_means[..., rows, labels])  # Uᵀ(A + λP)⁻¹U
    eye = torch.eye(2, dtype=inner.dtype, device=inner.device)
    middle = torch.linalg.solve(eye + change @ inner, change.expand_as(inner))
    # Uᵀ(A + λP)⁻¹μ'_c
    of_right = keep[:, None] * inner[..., 1, :] - lose[:, None] * inner[..., 0, :]

    def without(by_node: Tensor, by_mean: Tensor, by_all: Tensor) -> tuple[Tensor, Tensor]:
        """Return xᵀ(A' + λP)⁻¹ times all right sides from x's products with φ, μ_c and means."""
        pair = torch.stack([by_node, by_mean], -1)
        taken = (pair[..., None, :] @ middle)[..., 0, :]  # [..., n, 2]
        found = by_all - taken[..., :1] * scores - taken[..., 1:] * of_means
        found[..., rows, labels] = keep * by_mean - lose * by_node - (taken * of_right).sum(-1)
        return found, taken

    found, taken = without(pull, own_score, scores)
    basis = sample.landmarks >= 0
    if bool(basis.any()):
        by_node, by_all = (nodes * own).sum(-1), own @ means.mT
        by_mean = by_all[..., rows, labels]
        of_own, taken_own = without(by_node, by_mean, by_all)
        # The weight of the own feature is brought to 0 along its column of the inverse.
        pair = torch.stack([by_node, by_mean], -1)
        across = by_node - (taken * pair).sum(-1)
        along = own.square().sum(-1) - (taken_own * pair).sum(-1)
        step = (across / along.clamp_min(torch.finfo(along.dtype).tiny)).where(basis, 0.0)
        found = found - step[..., None] * of_own
    return found


def _pairs(first: Tensor, across: Tensor, second: Tensor) -> Tensor:
    """Return symmetric 2 x 2 matrices.  [..., n] each -> [..., n, 2, 2]"""
    flat: Tensor = torch.stack([first, across, across, second], -1)
    return flat.reshape(*flat.shape[:-1], 2, 2)


def left_out_scores(
    solution: RidgeSolution, sample: Sample, masses: Tensor, *, balanced: bool
) -> Tensor:
    """Return the scores of a sample by ``left_out``, some nodes at a time.  -> [n, classes]"""
    scores = torch.empty(len(sample), len(masses), dtype=torch.float64)
    means = solution.half(solution.problem.means.t())
    step = max(BLOCK_VALUES // max(len(masses), 1), 1)
    for start in range(0, len(sample), step):
        part = sample.part(slice(start, start + step))
        halves = Halves(solution.half(part.features), means, solution.half(part.own()))
        scores[start : start + step] = left_out(
            solution.problem, halves, part, masses, balanced=balanced
        )
    return scores


def left_out_errors(
    path: PenaltyPath,
    problem: RidgeProblem,
    sample: Sample,
    masses: Tensor,
    penalties: Sequence[float],
    *,
    balanced: bool,
) -> list[float]:
    """Return the squared error of the sample, each node left out, for every λ.

    All classes have equal weight if ``balanced``, else all nodes.
    """
    counts = torch.bincount(sample.labels).double()
    shares = counts[sample.labels].reciprocal() if balanced else torch.ones(len(sample))
    totals = torch.zeros(len(penalties), dtype=torch.float64)
    means, ladder = problem.means.t() @ path.basis, torch.tensor(penalties, dtype=torch.float64)
    step = max(BLOCK_VALUES // max(len(means), 1), 1)
    for start in range(0, len(sample), step):
        part = sample.part(slice(start, start + step))
        nodes, own = part.features @ path.basis, path.basis[part.landmarks]
        # Where a few nodes are left out, for many λ at a time.
        some = max(BLOCK_VALUES // max(nodes.numel(), len(part) * len(means), 1), 1)
        for first in range(0, len(ladder), some):
            each = slice(first, first + some)
            shrink = (path.values + ladder[each, None]).rsqrt()[:, None]  # [λ, 1, m]
            halves = Halves(nodes * shrink, means * shrink, own * shrink)
            scores = left_out(problem, halves, part, masses, balanced=balanced)
            scores[:, torch.arange(len(part)), part.labels] -= 1.0
            totals[each] += (scores.square().sum(-1) * shares[start : start + step]).sum(-1)
    return [float(total) for total in totals]


def choose_penalty(
    statistics: ClassStatistics,
    sample: Sample,
    penalties: Sequence[float],
    *,
    balanced: bool = True,
    penalty: Tensor | None = None,
) -> float:
    """Return the λ whose error on nodes left out in turn is the smallest, the least of equals.

    penalties: λ in question; penalty: P, if not the identity, see ``RidgeProblem``.

    Two classes by the sign of one feature, without noise: the least λ wins.

    >>> rows = torch.tensor([[1.], [2.], [-1.], [-2.]]).double()
    >>> statistics, labels = ClassStatistics(1, precise=True), torch.tensor([0, 0, 1, 1])
    >>> statistics.add(rows, labels, torch.ones(4))
    >>> sample = Sample(rows, labels, torch.ones(4).double(), torch.full((4,), -1))
    >>> choose_penalty(statistics, sample, [10.0, 0.1])
    0.1
    """
    problem = RidgeProblem.of(statistics, balanced=balanced)
    path = PenaltyPath.of(problem.matrix(), penalty)
    errors = left_out_errors(path, problem, sample, statistics.mass_, penalties, balanced=balanced)
    return nearly_best(penalties, errors, ROUNDING)
