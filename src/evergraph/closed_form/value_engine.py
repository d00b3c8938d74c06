"""The engine for numbers and for several labels of a node: ridge regression of every value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from evergraph.closed_form.engine import Answers, ViewEngine
from evergraph.closed_form.fusing import PRIOR, Fused
from evergraph.closed_form.leave_one_out import Halves, Sample
from evergraph.closed_form.penalty_path import LADDER, PenaltyPath, nearly_best
from evergraph.closed_form.targets import TargetMoments, TargetStatistics


class ValueSolution(NamedTuple):
    """V of a view, the Cholesky factor of G̃ + λP, and the centred sums."""

    weights: Tensor  # float64 [m, targets]
    factor: Tensor  # float64 [m, m]
    part: TargetMoments


# With fewer nodes none is left out: what is left of so few says nothing about penalties.
FEWEST = 8


class ValueEngine(ViewEngine):
    """ŷ(x) = Σ_v a_v V_vᵀφ_v(x) + b for values of nodes, as ``ViewEngine`` has it for classes.

    V_v = (G̃_v + λ_v P_v)⁻¹ M̃_v with G̃ = Σ φ̃φ̃ᵀ and M̃ = Σ φ̃ỹᵀ of centred features and values, so
    that b is not penalised. λ, a and b have the least squared error, each value relative to its
    variance, on nodes that are predicted as if they had been left out. Every node counts alike.

    >>> from evergraph.closed_form.view_map import RandomMap
    >>> from evergraph.closed_form.views import View
    >>> from evergraph.closed_form.engine import Answers
    >>> engine, rows = ValueEngine(targets=1), torch.arange(1.0, 9.0)[:, None]
    >>> engine.begin(RandomMap((View((0,)),), {0: torch.ones(1, 1)}))
    >>> engine.count(rows, 3 * rows + 7)
    >>> engine.solve(Answers(rows, 3 * rows + 7, torch.full((8,), -1)))
    >>> slope = engine.heads_[0] * 2 ** 0.5  # φ(x) = √2 x
    >>> slope.round(decimals=2).item(), engine.fused_.offsets.round(decimals=1).item()
    (3.0, 7.0)
    """

    sums_: list[TargetStatistics]  # type: ignore[assignment]

    def __init__(self, *, targets: int, regularisation: float | None = None) -> None:
        super().__init__(balanced=False, regularisation=regularisation)
        self.targets = targets

    def _empty(self, width: int) -> TargetStatistics:  # type: ignore[override]
        return TargetStatistics(width, targets=self.targets, precise=True)

    @property
    def nodes(self) -> int:
        """Number of nodes counted."""
        return int(self.sums_[0].mass_.max()) if len(self.sums_[0].mass_) else 0

    def grow(self, classes: int) -> None:
        """Make room for more values, which are 0 for all nodes so far."""
        self.solved &= classes <= self.targets
        self.targets = max(classes, self.targets)
        self.sums_ = [sums.widened(self.targets) for sums in self.sums_]

    def weigh_classes(self, sizes: Tensor) -> None:
        """Do nothing: there are no classes."""

    def _weights(self, labels: Tensor) -> Tensor:
        return torch.ones(len(labels))

    def _tidy(self) -> None:
        """Do nothing: sums without nodes are gone."""

    def _moments(self, sums: TargetStatistics) -> TargetMoments:
        """Return the sums, centred, with mean features and values in place of totals."""
        part = sums.moments(list(range(sums.targets)))
        mean, level = part.sums / part.count, part.totals / part.count
        gram = part.gram.double()
        gram = (gram.tril() + gram.tril(-1).t()).addr(part.sums, mean, alpha=-1)
        cross = part.cross.addr(part.sums, level, alpha=-1)
        spread = (part.squares - part.count * level.square()).clamp_min(0.0)
        return TargetMoments(gram, mean, part.count, cross, level, spread)

    def solution(self, place: int) -> ValueSolution:  # type: ignore[override]
        """Return V of a view with what leaving nodes out needs."""
        part = self._moments(self.sums_[place])
        penalty = self.penalty(self.map.views[place])
        strength = float(self.strengths_[place]) * _scale(part, penalty)
        factor = _factor(part.gram, strength, penalty)
        return ValueSolution(torch.cholesky_solve(part.cross, factor), factor, part)

    def _solved(self, place: int, sample: Sample) -> tuple[Tensor, Tensor]:
        if not self.nodes:
            width = self.sums_[place].width
            return torch.zeros(width, self.targets).double(), sample.features[:, :0]
        weights, factor, part = self.solution(place)
        self._levels[place] = part.totals - part.sums @ weights
        halves = Halves(*(
            torch.linalg.solve_triangular(factor, rows.t(), upper=False).t()
            for rows in (sample.features - part.sums, part.cross.t(), sample.own())
        ))  # fmt: skip
        return weights, left_out_values(halves, sample, part)

    def solve(self, answers: Answers) -> list[Tensor]:
        """Set λ, a, b and a_v V_v from the sums and the nodes that are left out in turn."""
        self._levels = [torch.zeros(self.targets).double() for _ in self.sums_]
        if len(answers.labels) < FEWEST:
            assert answers.landmarks is not None
            answers = Answers(answers.rows[:0], answers.labels[:0], answers.landmarks[:0])
        return super().solve(answers)

    def _choice(  # type: ignore[override]
        self, sums: TargetStatistics, sample: Sample, penalty: Tensor | None
    ) -> float:
        part = self._moments(sums)
        scale = _scale(part, penalty)
        path = PenaltyPath.of(part.gram, penalty)
        basis = path.basis
        nodes, cross = (sample.features - part.sums) @ basis, part.cross.t() @ basis
        own = sample.own() @ basis
        errors = []
        for value in LADDER:
            shrink = (path.values + value * scale).rsqrt()
            halves = Halves(nodes * shrink, cross * shrink, own * shrink)
            gaps = (left_out_values(halves, sample, part) - sample.labels).square().sum(0)
            errors.append(float((gaps / part.squares.clamp_min(1e-12)).sum()))
        return nearly_best(LADDER, errors)

    def mixture(self, answers: Answers, _: Sequence[int] = ()) -> Fused:
        """Return weights a ≥ 0 of the views with the least squared error, and intercepts b.

        A view has weight 1 / views before anything is known, see ``fused_weights``.
        """
        scores, labels, views = self.scores_, answers.labels, len(self.sums_)
        weights, offsets = torch.full((views,), 1 / views).double(), torch.zeros(self.targets)
        if scores.shape[:2] == labels.shape and len(labels) > 1:
            level, centre = labels.double().mean(0), scores.mean(0)  # [targets], [targets, views]
            scale = (labels - level).norm(dim=0).clamp_min(1e-12)
            rows = ((scores - centre) / scale[:, None]).flatten(0, 1)
            right = ((labels - level) / scale).flatten()
            prior = (PRIOR / len(labels)) ** 0.5
            left = np.vstack([rows.numpy(), prior * np.eye(views)])
            found, _ = nnls(left, np.append(right.numpy(), np.full(views, prior / views)))
            weights = torch.from_numpy(found)
            offsets = level - centre @ weights
        levels = torch.stack(self._levels, 1) @ weights
        # The intercept of the mixture is relative to those of the views, which are in ``scores``.
        return Fused(weights, offsets + levels)


def left_out_values(halves: Halves, sample: Sample, part: TargetMoments) -> Tensor:
    """Return the values predicted for counted nodes, each computed as if it were left out.

    ŷ = y - (y - Vᵀφ̃ - ȳ) / (1 - h) with h = 1/n + φ̃ᵀ(G̃ + λP)⁻¹φ̃; a landmark is left out as a
    landmark first, which sets its own weight to 0. part: centred sums.  -> float64 [n, targets]
    """
    nodes, cross, own = halves
    found, lever = nodes @ cross.t(), nodes.square().sum(1)
    across = (nodes * own).sum(1)
    along = own.square().sum(1).clamp_min(torch.finfo(own.dtype).tiny)
    basis = sample.landmarks >= 0
    found = found - (across / along).where(basis, 0.0)[:, None] * (own @ cross.t())
    lever = lever - (across.square() / along).where(basis, 0.0) + 1 / part.count
    rest = (1 - lever).clamp_min(1e-6)[:, None]
    right = sample.labels.double()
    return right - (right - found - part.totals) / rest


def _scale(part: TargetMoments, penalty: Tensor | None) -> float:
    """Return what λ is relative to, as ``penalty_scale`` does for classes."""
    if penalty is None:
        return float(part.gram.diagonal().abs().mean()) or 1.0
    return part.count * float(penalty.diagonal().mean()) / len(penalty) or 1.0


def _factor(gram: Tensor, strength: float, penalty: Tensor | None) -> Tensor:
    """Return L of G̃ + λP, with λ raised until rounding leaves it positive definite."""
    added = torch.eye(len(gram), dtype=gram.dtype) if penalty is None else penalty.double()
    while True:
        factor: Tensor
        factor, failed = torch.linalg.cholesky_ex(gram + strength * added)
        if not int(failed):
            return factor
        strength = max(10 * strength, 1e-12)
