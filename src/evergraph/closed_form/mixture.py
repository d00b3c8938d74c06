"""Heads of all views, solved from their sums and mixed with weights fitted on probes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.closed_form.counting import count_views
from evergraph.closed_form.fusing import SHARPNESS, Probes, fused_weights, mixture_loss
from evergraph.closed_form.ridge import balanced_ridge, choose_regularisation
from evergraph.closed_form.statistics import ClassStatistics
from evergraph.closed_form.view_map import ViewMap
from evergraph.closed_form.views import ViewRows
from evergraph.core.label_space import LabelSpace
from evergraph.core.resources import Resources

# With few labels the largest are chosen, see docs/decisions/0082.
LADDER = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)
# The regularisation is chosen on the first features alone: cheap at any width.
CHOICE_WIDTH = 512
# Scores of probes processed together: nodes x classes x views.
MOST_SCORES = 1 << 26
FUSINGS = ("fitted", "shares", "equal")


@dataclass(frozen=True, eq=False)
class Mixture:
    """Heads of all views and their weights: s = Σ_v a_v V_vᵀφ_v.

    Attributes:
        heads: V of every view.  float32 [m, classes] each
        weights: a of every view.  float64 [views]
        bare: a of the views without class codes, used if no label is shown.  float64
        error: loss of the whole mixture on the probes; infinite without probes.
    """

    heads: list[Tensor]
    weights: Tensor
    bare: Tensor
    error: float


def side_by_side(heads: Sequence[Tensor], weights: Tensor, width: int) -> Tensor:
    """Return a_v V_v of some views, concatenated, each of this width.  -> [classes, all widths]"""
    pairs = zip(heads, weights.float(), strict=True)
    parts = [torch.nn.functional.pad((h * w).t(), (0, width - len(h))) for h, w in pairs]
    return torch.cat(parts, dim=1).contiguous()


@dataclass(frozen=True, eq=False)
class Mixing:
    """Solves and mixes heads; a function of sums and probes alone.

    Attributes:
        expand: φ of every view.
        space: the classes allowed for a node.
        balanced: whether all classes have equal weight, or all nodes.
        fusing: one of ``FUSINGS``, see ``Auto``.
        resources: the workers that count.
    """

    expand: ViewMap
    space: LabelSpace
    balanced: bool
    fusing: str
    resources: Resources

    def __call__(
        self, statistics: Sequence[ClassStatistics], probes: Probes, rows: ViewRows
    ) -> Mixture:
        """Return the mixture.  rows: view rows of the probes, with class codes"""
        pairs = zip(statistics, self.strengths(statistics, probes, rows), strict=True)
        heads = [
            balanced_ridge(s, strength, balanced=self.balanced).float() for s, strength in pairs
        ]
        scores = self._scores(heads, rows)
        views = self.expand.views
        bare = [place for place, view in enumerate(views) if not view.codes]
        # A far view says which subgraph a node is in: useful where no labels are shown, misleading
        # if they are, since class codes say more, and subgraphs may have been joined since.
        near = [place for place, view in enumerate(views) if not view.is_far] or bare
        met = statistics[0].counts_.cpu() > 0  # a forgotten class has no nodes
        met[probes.labels_] = True
        weights = torch.zeros(len(heads), dtype=torch.float64, device=scores.device)
        weights[near], error = self._fitted(scores[:, :, near], probes, met)
        plain = self._fitted(scores[:, :, bare], probes, met)[0] if bare else weights[:0]
        return Mixture(heads, weights, plain, error)

    def strengths(
        self, statistics: Sequence[ClassStatistics], probes: Probes, rows: ViewRows
    ) -> list[float]:
        """Return λ of every view with the least error on the probes, by their first features.

        The first n of m random features hold n/m of a kernel value: all of them shrink scores as
        much with m/n times the λ. Landmarks take the same factor, as measured in decision 90.
        """
        if not len(probes):
            return [0.01] * len(statistics)
        device, labels = self.expand.device, probes.labels_
        narrow = min(CHOICE_WIDTH, statistics[0].width)
        shares = torch.bincount(labels).float()[labels].reciprocal()
        weights = shares if self.balanced else torch.ones_like(shares)
        validation = count_views(
            [ClassStatistics(narrow, device=device) for _ in statistics],
            rows, labels.to(device), weights.to(device),
            expand=self.expand.narrowed(narrow), resources=self.resources,
        )  # fmt: skip
        more = statistics[0].width / narrow
        return [
            more * choose_regularisation(each, other, LADDER, balanced=self.balanced)
            for each, other in zip(statistics, validation, strict=True)
        ]

    def _scores(self, heads: Sequence[Tensor], rows: ViewRows) -> Tensor:
        """Return the scores of every head for every probe.  -> [probes, classes, heads]"""
        views = self.expand.views
        found: list[Tensor] = []
        for part in self.expand.blocks(rows):
            projected = self.expand.seen_of(part, views)
            pairs = zip(views, heads, strict=True)
            scores = [self.expand.scores(view, projected, head.t()) for view, head in pairs]
            found.append(torch.stack(scores, dim=2))
        nothing = torch.empty(0, heads[0].shape[1], len(heads), device=self.expand.device)
        return torch.cat(found) if found else nothing

    def _fitted(self, scores: Tensor, probes: Probes, met: Tensor) -> tuple[Tensor, float]:
        """Return the weights of some views, and the loss of their mixture on the probes.

        scores: [probes, classes, views]; met: whether a class has a node.  bool [classes]
        """
        few = _few(probes, scores.shape[1] * scores.shape[2])
        chosen, labels = scores[few], probes.labels_[few]
        allowed = self.space.allowed(self.space.task_of(labels))
        if not bool(met.all()):
            allowed = met.expand(len(labels), -1) if allowed is None else allowed & met
        used = slice(0) if self.fusing == "equal" else slice(None)
        weights = fused_weights(
            chosen[used], labels[used], balanced=self.balanced,
            allowed=None if allowed is None else allowed[used],
        )  # fmt: skip
        if self.fusing == "shares":
            weights = SHARPNESS * weights / weights.sum().clamp_min(1e-12)
        if not len(labels):
            return weights, math.inf
        return weights, mixture_loss(
            chosen, labels, weights, allowed=allowed, balanced=self.balanced
        )


def _few(probes: Probes, values: int) -> Tensor:
    """Return the probes, equally many per class, that fit into one step.  values: of each"""
    most = max(MOST_SCORES // max(values, 1), 1)
    if len(probes) <= most:
        return torch.arange(len(probes))
    return probes.first(max(most // int(probes.labels_.unique().numel()), 1))
