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
ROUNDING = 1e-6  # relative differences of errors up to this are rounding, and decide nothing


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
        vectors = torch.zeros_like(self.features)
        is_landmark = self.landmarks >= 0
        vectors[is_landmark, self.landmarks[is_landmark]] = 1.0
        return vectors

    def first(self, nodes: int, width: int) -> Sample:
        """Return the first nodes with the first features alone."""
        few = self.part(slice(nodes))
        landmarks = few.landmarks.where(few.landmarks < width, -1)
        return Sample(few.features[:, :width], few.labels, few.weights, landmarks)


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

    a and λ are taken to stay; they change by a share of 1 / n. With equal node weights (not
    ``balanced``) A' = A - a w φφᵀ, and the right side of c loses a w φ.

    A landmark is left out as a landmark too: the weight of its own feature is 0. Otherwise its own
    feature, which no other node has as strongly, would fit others freely where it is asked itself,
    and λ would be chosen ten to a hundred times too large. An infinite penalty on that weight does
    this: with U = [φ, μ_c, e] all is A' = A + U S Uᵀ, solved by Woodbury's identity.

    masses: m, float64 [classes] -> float64 [..., n, classes]
    """
    nodes, means, own = halves
    rows, labels = torch.arange(len(sample)), sample.labels
    node_share = problem.share * sample.weights  # a w
    # Products of φ, μ_c and e, the columns of U, with all means: Uᵀ(A + λP)⁻¹μ
    scores = nodes @ means.mT
    classes, inverse = labels.unique(return_inverse=True)
    mean_scores = (means[..., classes, :] @ means.mT)[..., inverse, :]
    own_scores = own @ means.mT
    # μ'_c = keep μ_c - lose φ
    if balanced:
        mass, excess = masses[labels], problem.excess[labels]
        keep, lose = mass / (mass - sample.weights), sample.weights / (mass - sample.weights)
        new_excess = excess + node_share
        of_node, of_mean = new_excess * lose**2 - node_share, new_excess * keep**2 - excess
        of_both = -new_excess * lose * keep
    else:
        keep, lose = torch.ones_like(node_share), node_share
        of_node, of_mean = -node_share, torch.zeros_like(node_share)
        of_both = torch.zeros_like(node_share)
    nothing, is_landmark = torch.zeros_like(node_share), (sample.landmarks >= 0).double()
    change = _symmetric(of_node, of_both, nothing, of_mean, nothing, is_landmark)  # S
    inner = _symmetric(  # Uᵀ(A + λP)⁻¹U
        nodes.square().sum(-1),
        scores[..., rows, labels],
        (nodes * own).sum(-1),
        mean_scores[..., rows, labels],
        own_scores[..., rows, labels],
        own.square().sum(-1),
    )
    # (S⁻¹ + Uᵀ(A + λP)⁻¹U)⁻¹, where S⁻¹ is 0 for the own feature of a landmark.
    finite = torch.eye(3, dtype=inner.dtype, device=inner.device).repeat(len(sample), 1, 1)
    finite[:, 2, 2] -= is_landmark
    middle = torch.linalg.solve(finite + change @ inner, change.expand_as(inner))
    correction = (inner[..., :1, :] @ middle)[..., 0, :]  # [..., n, 3]
    new_scores: Tensor = (1 - correction[..., :1]) * scores
    new_scores -= correction[..., 1:2] * mean_scores + correction[..., 2:] * own_scores
    right = keep[:, None] * inner[..., 1, :] - lose[:, None] * inner[..., 0, :]  # with μ'_c
    new_scores[..., rows, labels] = right[..., 0] - (correction * right).sum(-1)
    return new_scores


def _symmetric(*values: Tensor) -> Tensor:
    """Return symmetric 3 x 3 matrices of their upper triangles.  [..., n] each -> [..., n, 3, 3]"""
    places = torch.tensor([[0, 1, 2], [1, 3, 4], [2, 4, 5]])
    return torch.stack(values, -1)[..., places]


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
    means = problem.means.t() @ path.basis
    ladder = torch.tensor(penalties, dtype=torch.float64)
    step = max(BLOCK_VALUES // max(len(means), 1), 1)
    for start in range(0, len(sample), step):
        part = sample.part(slice(start, start + step))
        nodes, own = part.features @ path.basis, path.basis[part.landmarks]
        # Where a few nodes are left out, for many λ at a time.
        at_a_time = max(BLOCK_VALUES // max(nodes.numel(), len(part) * len(means), 1), 1)
        for first in range(0, len(ladder), at_a_time):
            rungs = slice(first, first + at_a_time)
            shrink = (path.values + ladder[rungs, None]).rsqrt()[:, None]  # [λ, 1, m]
            halves = Halves(nodes * shrink, means * shrink, own * shrink)
            scores = left_out(problem, halves, part, masses, balanced=balanced)
            scores[:, torch.arange(len(part)), part.labels] -= 1.0
            totals[rungs] += (scores.square().sum(-1) * shares[start : start + step]).sum(-1)
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
