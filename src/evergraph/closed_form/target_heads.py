"""Heads for numbers and for several labels of a node: ridge regression of every value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from torch import Tensor

from evergraph.closed_form.engine import ViewEngine
from evergraph.closed_form.fusing import PRIOR, Answers, Fused, lead_over_chance
from evergraph.closed_form.leave_one_out import ROUNDING, Halves, Sample
from evergraph.closed_form.ridge import LADDER, PenaltyPath, RidgeSolution, nearly_best
from evergraph.closed_form.statistics import mirrored
from evergraph.closed_form.targets import TargetMoments, TargetStatistics

# With fewer nodes none is left out: predictions from so few tell nothing about penalties.
FEWEST = 8
# Scores of a least-squares head lie between 0 and 1; a sigmoid needs them multiplied by this.
STEEPNESS = 10.0


@dataclass(frozen=True, eq=False)
class TargetWeights:
    """A linear head with offsets: ŷ = Vᵀφ + b.

    Attributes:
        weights: V.  float64 [m, targets]
        offsets: b.  float64 [targets]
    """

    weights: Tensor
    offsets: Tensor


def target_ridge(
    statistics: TargetStatistics, regularisation: float, *, centred: bool
) -> TargetWeights:
    """Return argmin Σ_i (y_it - v_tᵀφ_i - b_t)² + λ ‖v_t‖² for every target t, where it is known.

    v_t = (G + λ I)⁻¹ M_t, λ = ``regularisation`` x the mean of G's diagonal. ``centred``: G and M
    are those of centred features and values, see ``TargetMoments.problem``,
    and b_t = ȳ_t - v_tᵀφ̄ is not penalised; otherwise b is 0. A target that is unknown for all nodes
    is predicted as 0.

    Without centring, for labels of which every node has exactly one, with n nodes per class, this
    equals the head of classes (``balanced_ridge``) with either of its weights: there A is G / n and
    its right side M / n. In general the head of classes weighs all classes equally, this one all
    nodes.
    """
    weights = torch.zeros(
        statistics.width, statistics.targets, dtype=torch.float64, device=statistics.device
    )
    offsets = weights.new_zeros(statistics.targets)
    for group in statistics.groups():
        part = statistics.moments(group)
        solved = part.problem(centred=centred).solution(regularisation).weights
        weights[:, group] = solved
        if centred:
            offsets[group] = part.level - part.mean @ solved
    return TargetWeights(weights, offsets)


def choose_target_regularisation(
    training: TargetStatistics,
    validation: TargetStatistics,
    ladder: Sequence[float],
    *,
    centred: bool,
) -> float:
    """Return the least regularisation whose error on validation nodes is nearly the smallest.

    The error is the squared one in closed form, see ``squared_errors``. For regression
    (``centred``) each target's error is relative to its variance, so that units do not matter.
    """
    training = training.narrowed(validation.width)
    errors = []
    for regularisation in ladder:
        head = target_ridge(training, regularisation, centred=centred)
        errors.append(float(squared_errors(validation, head, relative=centred).sum()))
    return nearly_best(ladder, errors)


def squared_errors(
    statistics: TargetStatistics, head: TargetWeights, *, relative: bool = False
) -> Tensor:
    """Return Σ_i (y_it - v_tᵀφ_i - b_t)² of every target, over nodes that have it.  -> [targets]

    = Σ y² + n b² + vᵀ G v - 2 b Σ y - 2 vᵀ M + 2 b vᵀ Σφ, computed from sums without the nodes.
    relative: divided by Σ (y - ȳ)².
    """
    errors = torch.zeros_like(head.offsets)
    for group in statistics.groups():
        part = statistics.moments(group)
        v, b = head.weights[:, group], head.offsets[group]
        error = part.squares + part.count * b.square() + quadratic(part.gram, v)
        error += 2 * (b * (part.sums @ v) - b * part.totals - (v * part.cross).sum(0))
        if relative:
            error /= part.spread
        errors[group] = error.clamp_min(0.0)
    return errors


def quadratic(gram: Tensor, vectors: Tensor) -> Tensor:
    """Return vᵀ G v of every column.  lower triangle [m, m], float64 [m, k] -> [k]"""
    return (vectors * (mirrored(gram).double() @ vectors)).sum(0)


def fitted_sigmoid(statistics: TargetStatistics, head: TargetWeights) -> tuple[Tensor, Tensor]:
    """Return a and c of p_t = σ(a_t s_t + c_t), the probability of a label with score s_t.

    Scores of nodes with and without a label are assumed normal with one variance, so that
    a = (μ₊ - μ₋) / σ² and c = log(n₊ / n₋) - a (μ₊ + μ₋) / 2, with means and variance from
    sums over held-back nodes: μ₊ = vᵀM / n₊, μ₋ = vᵀ(Σφ - M) / n₋, σ² = (vᵀGv - n₊μ₊² - n₋μ₋²) / n.
    A label that all of them have, or none, or with μ₊ not above μ₋, gets the fixed
    a = 10, c = -5.  -> float64 [targets] each
    """
    slope = torch.full_like(head.offsets, STEEPNESS)
    shift = -slope / 2
    for group in statistics.groups():
        part = statistics.moments(group)
        v = head.weights[:, group]
        positive, negative = part.totals, part.count - part.totals  # n₊, n₋
        both_occur = (positive > 0.5) & (negative > 0.5)
        high = (v * part.cross).sum(0) / positive.clamp_min(1)  # μ₊
        low = (part.sums @ v - (v * part.cross).sum(0)) / negative.clamp_min(1)  # μ₋
        within = quadratic(part.gram, v) - positive * high.square() - negative * low.square()
        variance = (within / part.count).clamp_min(1e-6)  # as if scores differed by 0.001
        a = (high - low) / variance
        c = (positive.clamp_min(1) / negative.clamp_min(1)).log() - a * (high + low) / 2
        usable = both_occur & (a > 0)
        slope[group] = a.where(usable, slope[group])
        shift[group] = c.where(usable, shift[group])
    return slope, shift


class ValueEngine(ViewEngine):
    """ŷ(x) = Σ_v a_v V_vᵀφ_v(x) + b for values of nodes, as ``ViewEngine`` has it for classes.

    V_v = (G̃_v + λ_v P_v)⁻¹ M̃_v with G̃ = Σ φ̃φ̃ᵀ and M̃ = Σ φ̃ỹᵀ of centred features and values, so
    that b is not penalised. λ, a and b have the least squared error, each value relative to its
    variance, on nodes that are predicted as if they had been left out. Every node counts alike.

    >>> from evergraph.closed_form.view_map import RandomMap
    >>> from evergraph.closed_form.views import View
    >>> from evergraph.closed_form.fusing import Answers
    >>> engine, rows = ValueEngine(targets=1), torch.arange(1.0, 9.0)[:, None]
    >>> engine.begin(RandomMap((View((0,)),), {0: torch.ones(1, 1)}))
    >>> engine.count(rows, 3 * rows + 7)
    >>> _ = engine.solve(Answers(rows, 3 * rows + 7, torch.full((8,), -1)))
    >>> slope = engine.heads_[0] * 2 ** 0.5  # φ(x) = √2 x
    >>> slope.round(decimals=2).item(), engine.fused_.offsets.round(decimals=1).item()
    (3.0, 7.0)
    """

    sums_: list[TargetStatistics]  # type: ignore[assignment]

    def __init__(self, *, targets: int, regularisation: float | None = None) -> None:
        super().__init__(balanced=False, regularisation=regularisation)
        self.targets = targets

    def _empty(self, width: int) -> TargetStatistics:  # type: ignore[override]
        return TargetStatistics(width, targets=self.targets)

    @property
    def nodes(self) -> int:
        return int(self.sums_[0].mass_.max()) if len(self.sums_[0].mass_) else 0

    def grow(self, classes: int) -> None:
        """Make room for more values, which are 0 for all nodes so far."""
        self.solved &= classes <= self.targets
        self.targets = max(classes, self.targets)
        self.sums_ = [sums.widened(self.targets) for sums in self.sums_]

    def _moments(self, sums: TargetStatistics) -> TargetMoments:
        return sums.moments(list(range(sums.targets)))

    def solution(self, view: int) -> RidgeSolution:
        problem = self._moments(self.sums_[view]).problem(centred=True)
        penalty = self.penalty(self.map.views[view])
        return problem.solution(float(self.strengths_[view]), penalty)

    def _solved(self, view: int, sample: Sample) -> tuple[Tensor, Tensor]:
        if not self.nodes:
            width = self.sums_[view].width
            return torch.zeros(width, self.targets).double(), sample.features[:, :0]
        solution, moments = self.solution(view), self._moments(self.sums_[view])
        self._levels[view] = moments.level - moments.mean @ solution.weights
        halves = Halves(
            nodes=solution.half(sample.features - moments.mean),
            means=solution.half(solution.problem.right.t()),
            own=solution.half(sample.own()),
        )
        return solution.weights, left_out_values(halves, sample, moments)

    def solve(self, answers: Answers) -> tuple[list[Tensor], Tensor]:
        """Set λ, a, b and a_v V_v from the sums and the nodes that are left out in turn."""
        self._levels = [torch.zeros(self.targets).double() for _ in self.sums_]
        if len(answers.labels) < FEWEST:
            assert answers.landmarks is not None
            answers = Answers(answers.rows[:0], answers.labels[:0], answers.landmarks[:0])
        return super().solve(answers)

    def _choice(  # type: ignore[override]
        self, sums: TargetStatistics, sample: Sample, penalty: Tensor | None
    ) -> float:
        moments = self._moments(sums)
        problem = moments.problem(centred=True)
        path, scale = PenaltyPath.of(problem.matrix(), penalty), problem.scale(penalty)
        nodes = (sample.features - moments.mean) @ path.basis
        cross = problem.right.t() @ path.basis
        own = sample.own() @ path.basis
        errors = []
        for value in LADDER:
            shrink = (path.values + value * scale).rsqrt()
            halves = Halves(nodes * shrink, cross * shrink, own * shrink)
            predicted = left_out_values(halves, sample, moments)
            squared = (predicted - sample.labels).square().sum(0)
            errors.append(float((squared / moments.spread.clamp_min(1e-12)).sum()))
        return nearly_best(LADDER, errors, ROUNDING)

    def _lead(self, scores: Tensor, answers: Answers) -> float:
        if scores.shape[:2] != answers.labels.shape:
            return math.nan
        return lead_over_chance(scores @ self.fused_.weights, answers.labels)

    def mixture(self, scores: Tensor, answers: Answers, _: Sequence[int]) -> Fused:
        """Return weights a ≥ 0 of the views with the least squared error, and intercepts b.

        A view has weight 1 / views before anything is known, see ``fused_weights``.
        """
        labels, views = answers.labels, len(self.sums_)
        weights = torch.full((views,), 1 / views).double()
        offsets = torch.zeros(self.targets)
        if scores.shape[:2] == labels.shape and len(labels) > 1:
            level = labels.double().mean(0)  # [targets]
            centre = scores.mean(0)  # [targets, views]
            scale = (labels - level).norm(dim=0).clamp_min(1e-12)
            rows = ((scores - centre) / scale[:, None]).flatten(0, 1)
            right = ((labels - level) / scale).flatten()
            prior = (PRIOR / len(labels)) ** 0.5
            left = np.vstack([rows.numpy(), prior * np.eye(views)])
            values = np.append(right.numpy(), np.full(views, prior / views))
            least_squares, _ = scipy.optimize.nnls(left, values)
            weights = torch.from_numpy(least_squares)
            offsets = level - centre @ weights
        levels = torch.stack(self._levels, 1) @ weights
        # The intercept of the mixture is relative to those of the views, which are in ``scores``.
        return Fused(weights, offsets + levels)


def left_out_values(halves: Halves, sample: Sample, moments: TargetMoments) -> Tensor:
    """Return the values predicted for counted nodes, each computed as if it were left out.

    ŷ = y - (y - Vᵀφ̃ - ȳ) / (1 - h) with the leverage h = 1/n + φ̃ᵀ(G̃ + λP)⁻¹φ̃; a landmark is
    left out as a landmark first, which sets its own weight to 0.  -> float64 [n, targets]
    """
    nodes, cross, own = halves
    fitted, leverage = nodes @ cross.t(), nodes.square().sum(1)
    across = (nodes * own).sum(1)  # φ̃ᵀ(G̃ + λP)⁻¹e
    diagonal = own.square().sum(1).clamp_min(torch.finfo(own.dtype).tiny)  # eᵀ(G̃ + λP)⁻¹e
    is_landmark = sample.landmarks >= 0
    fitted = fitted - (across / diagonal).where(is_landmark, 0.0)[:, None] * (own @ cross.t())
    leverage = leverage - (across.square() / diagonal).where(is_landmark, 0.0) + 1 / moments.count
    remainder = (1 - leverage).clamp_min(1e-6)[:, None]
    right = sample.labels.double()
    return right - (right - fitted - moments.level) / remainder
