"""Scores of several heads mixed, with weights fitted on nodes whose answers are known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from evergraph.closed_form.kept_nodes import draw_order
from evergraph.closed_form.views import ViewRows
from evergraph.graphs.csr import first_of_each_row

# Sharpness of a single view without probes: scores of a least-squares head lie between 0 and 1.
SHARPNESS = 10.0
# How strongly a weight is drawn to its share of ``SHARPNESS``, divided by the number of probes:
# a few probes have little influence.
PRIOR = 0.02
# How strongly an intercept is drawn to 0, times the classes and divided by the number of probes: a
# few nodes a class say little about it.
FLAT = 0.7
MOST_OFFSETS = 512  # classes; an intercept for each of more would cost more than heads do
STEPS = 50
TOLERANCE = 1e-9
BLOCK_VALUES = 1 << 20  # scores processed at a time; temporaries take as much again
# Most scores of answers held back, nodes x classes x views, that the mixture is fitted to.
MOST_SCORES = 1 << 26
# Fewer answers say nothing about chance; and the lead, in standard errors, from which they are
# called better: penalties and mixture were chosen on the same answers.
FEWEST_ANSWERS, LEAD = 30, 3.0


@dataclass(frozen=True, eq=False)
class Answers:
    """Nodes whose answers are known, to choose penalties and the mixture of views by.

    They were counted, and are left out in turn, or they are held back from the sums.

    Attributes:
        rows: what they are counted as.  float32 [n, dims], or rows of the views
        labels: int64 [n]; of those that were counted, of classes with two nodes or more
        landmarks: the landmark that a node is, or -1.  int64 [n]; None if they are held back
        allowed: the classes that each may have; None for all that there are.  bool [n, classes]
        weights: with which those that were counted are; 1 by default.  float32 [n]
    """

    rows: Tensor | ViewRows
    labels: Tensor
    landmarks: Tensor | None = None
    allowed: Tensor | None = None
    weights: Tensor | None = None

    @classmethod
    def none(cls) -> Answers:
        """Return no answers."""
        nothing = torch.zeros(0, dtype=torch.int64)
        return cls(torch.zeros(0, 0), nothing, nothing)

    @property
    def held_back(self) -> bool:
        """Whether they are not in the sums."""
        return self.landmarks is None

    def asked(self, scores: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return scores, labels and allowed classes of those that the mixture is fitted to.

        These are equally many of a class, if there are too many. A node may have the classes with
        nodes, of its task; None if all may have any.

        scores: [n, classes, views]; counts: nodes of each class that were counted, int64 [classes]
        -> [k, classes, views], int64 [k], bool [k or 1, classes] | None
        """
        labels, allowed, met = self.labels, self.allowed, (counts > 0)[None].cpu()
        if self.held_back:
            met = met.index_fill(1, labels, True)
        nodes, classes, views = scores.shape
        most = max(MOST_SCORES // max(classes * views, 1), 1)
        if nodes > most:
            per_class = max(most // int(labels.unique().numel()), 1)
            few = first_of_each_row(labels, draw_order(torch.arange(nodes)), per_class)
            scores, labels = scores[few], labels[few]
            allowed = None if allowed is None else allowed[few]
        if allowed is None:
            return scores, labels, None if bool(met.all()) else met
        return scores, labels, allowed & met


class Fused(NamedTuple):
    """Weights of heads and an intercept for every class: s = Σ_v a_v s_v + b."""

    weights: Tensor  # a.  float64 [heads]
    offsets: Tensor  # b.  float64 [classes]


def fused_weights(
    scores: Tensor,
    labels: Tensor,
    *,
    allowed: Tensor | None = None,
    near: Tensor | None = None,
    balanced: bool = True,
    intercept: bool = False,
) -> Fused:
    """Return the weights a ≥ 0 of the heads whose mixture has the least loss on held-back nodes.

    a, b = argmin Σ_c 1/n_c Σ_{i∈c} -log softmax(Σ_v a_v s_v(i) + b)_c / C
                  + (PRIOR/2n) ‖a - a_0‖² + (FLAT C/2n) ‖b‖²

    with s_v the scores of head v, n_c the number of held-back nodes of class c, n of all, and C the
    number of classes. All classes have equal weight. Σ_v a_v is the sharpness of the mixture and
    a / Σ a are its shares. The function is convex, so the solution does not depend on the order of
    nodes, heads and classes; it is found by Newton's method with projection.
    a_0 = ``SHARPNESS`` / heads.

    Heads whose scores favour one class everywhere would get weight 0, and all nodes the same
    answer, without the intercept b: with it, a head that is better than chance has some weight.
    Classes without held-back nodes have none, nor have any beyond ``MOST_OFFSETS`` classes.

    scores: [n, classes, heads]; labels: int64 [n]; allowed: the classes allowed for a node, bool
    [n, classes], or [1, classes] if the same for all; all by default; near: starting weights, such
    as those of the last fit, which save steps; balanced: whether all classes have equal weight,
    or all nodes; intercept: whether to fit b, which is 0 otherwise

    >>> right = torch.tensor([[[1.], [0.]], [[0.], [1.]]])
    >>> both = torch.cat([right, 1 - right], dim=2)  # a head that is right, one that is wrong
    >>> fused_weights(both.repeat(50, 1, 1), torch.tensor([0, 1]).repeat(50)).weights.round()
    tensor([9., 1.], dtype=torch.float64)
    """
    _, classes, heads = scores.shape
    start = torch.full(
        (heads,), SHARPNESS / max(heads, 1), dtype=torch.float64, device=scores.device
    )
    offsets = start.new_zeros(classes)
    if not len(labels) or not heads:
        return Fused(start, offsets)
    problem = _Problem(scores.double(), labels.to(scores.device), allowed, start, balanced)
    if intercept and classes <= MOST_OFFSETS:
        problem.open = problem.labels.unique()
    found = Fused(start if near is None else near.to(start), offsets)
    for _ in range(STEPS):
        step = problem.step(found)
        found = Fused(found.weights + step.weights, found.offsets + step.offsets)
        if max(float(part.abs().amax()) for part in step) < TOLERANCE * SHARPNESS:
            break
    return found


def mixture_loss(
    scores: Tensor,
    labels: Tensor,
    fused: Fused,
    *,
    allowed: Tensor | None = None,
    balanced: bool = True,
) -> float:
    """Return the loss that ``fused_weights`` minimises, for some weights.

    >>> right = torch.tensor([[[1.], [0.]], [[0.], [1.]]])
    >>> fused = Fused(torch.tensor([10.]), torch.zeros(2))
    >>> round(mixture_loss(right, torch.tensor([0, 1]), fused), 4)  # log(1 + e^-10)
    0.0
    """
    known = Fused(*(part.to(scores.device, torch.float64) for part in fused))
    nothing = torch.zeros_like(known.weights)
    problem = _Problem(scores.double(), labels.to(scores.device), allowed, nothing, balanced)
    problem.prior = problem.flat = 0.0
    return float(problem.loss(known))


class _Problem:
    def __init__(
        self,
        scores: Tensor,
        labels: Tensor,
        allowed: Tensor | None,
        start: Tensor,
        balanced: bool = True,
    ) -> None:
        counts = torch.bincount(labels).double()
        self.shares = counts[labels].reciprocal() / (counts > 0).sum()  # [n], sum 1
        if not balanced:
            self.shares = torch.full_like(self.shares, 1 / len(labels))
        self.scores, self.labels = scores, labels
        self.right = scores[torch.arange(len(labels), device=labels.device), labels]  # [n, heads]
        self.barred = None if allowed is None else ~allowed.to(scores.device)
        step = max(BLOCK_VALUES // max(scores[0].numel(), 1), 1)
        self.blocks = [slice(first, first + step) for first in range(0, len(labels), step)]
        self.start = start
        self.prior = PRIOR / len(labels)
        self.flat = FLAT * int((counts > 0).sum()) / len(labels)
        self.open = labels[:0]  # classes with an intercept

    def loss(self, at: Fused) -> Tensor:
        parts = [self._mixed(at, rows).logsumexp(1) for rows in self.blocks]
        total = torch.cat(parts) - self.right @ at.weights - at.offsets[self.labels]
        pull = self.prior * (at.weights - self.start).square().sum()
        pull += self.flat * at.offsets.square().sum()
        return (self.shares * total).sum() + pull / 2

    def _mixed(self, at: Fused, rows: slice) -> Tensor:
        mixed = self.scores[rows] @ at.weights + at.offsets
        if self.barred is None:
            return mixed
        barred = self.barred if len(self.barred) == 1 else self.barred[rows]
        return mixed.masked_fill_(barred, -torch.inf)

    def step(self, at: Fused) -> Fused:
        """Return Newton's step over the weights not fixed at 0, halved until the loss falls."""
        gradient, hessian = self._slope(at)
        heads = len(at.weights)
        free = torch.ones_like(gradient, dtype=torch.bool)
        free[:heads] = (at.weights > 0) | (gradient[:heads] < 0)
        whole = torch.zeros_like(gradient)
        if bool(free.any()):
            whole[free] = -torch.linalg.solve(hessian[free][:, free], gradient[free])
        before, size, down = self.loss(at), 1.0, torch.zeros_like(at.offsets)
        down[self.open] = whole[heads:]
        while size > TOLERANCE:
            weights = (at.weights + size * whole[:heads]).clamp_min(0.0)
            moved = Fused(weights, at.offsets + size * down)
            change = torch.cat([weights - at.weights, size * whole[heads:]])
            if self.loss(moved) <= before + 1e-4 * gradient @ change:
                return Fused(weights - at.weights, size * down)
            size /= 2
        return Fused(torch.zeros_like(at.weights), torch.zeros_like(at.offsets))

    def _slope(self, at: Fused) -> tuple[Tensor, Tensor]:
        """Return gradient and Hessian over weights, then open intercepts.  -> [k], [k, k]"""
        heads, known, kept = len(at.weights), len(at.weights) + len(self.open), self.open
        expected = torch.empty_like(self.right)
        hessian = at.weights.new_zeros(known, known)
        spread, cross, corner = (
            hessian[:heads, :heads],
            hessian[heads:, :heads],
            hessian[heads:, heads:],
        )
        sums = at.offsets.new_zeros(known - heads)  # Σ_i w_i (p_ic - y_ic)
        for rows in self.blocks:
            scores, chances = self.scores[rows], self._mixed(at, rows).softmax(1)
            expected[rows] = torch.einsum("nc,nch->nh", chances, scores)
            weighed = self.shares[rows, None] * chances
            each = (weighed[:, :, None] * scores).flatten(0, 1)
            spread += each.t() @ scores.flatten(0, 1)  # a tenth of einsum's time
            if len(kept):
                mine = weighed[:, kept]
                cross += torch.einsum("nc,nch->ch", mine, scores[:, kept])
                cross -= mine.t() @ expected[rows]
                corner -= mine.t() @ chances[:, kept]
                sums += mine.sum(0)
        corner.diagonal().add_(sums)
        spread -= (self.shares[:, None] * expected).t() @ expected
        hessian[:heads, heads:] = cross.t()
        # A little more than the prior, so that two equal heads do not make it singular.
        ridge = self.prior + 1e-12 * spread.diagonal().mean()
        spread.diagonal().add_(ridge)
        corner.diagonal().add_(self.flat)
        gradient = self.shares @ (expected - self.right) + self.prior * (at.weights - self.start)
        there = torch.zeros_like(at.offsets).index_add_(0, self.labels, self.shares)
        return torch.cat([gradient, sums - there[kept] + self.flat * at.offsets[kept]]), hessian


def lead_over_chance(given: Tensor, right: Tensor) -> float:
    """Return how far the best column correlates with what is right: r √n, less for more columns.

    Of K columns that know nothing the best reaches about √(2 ln K). Columns are numbers, or the
    probability of a class and whether a node has it: a rare class, which no node is given, may well
    be known better than by chance.  float [n, K] each; NaN for few answers

    >>> right = torch.arange(100.0)[:, None]
    >>> round(lead_over_chance(right, right), 6), lead_over_chance(-right, right) < 0
    (10.0, True)
    >>> round(lead_over_chance(right.expand(-1, 2), right.expand(-1, 2)), 6)  # 10 - √(2 ln 2)
    8.82259
    """
    rows, columns = right.shape
    if rows < FEWEST_ANSWERS or not columns:
        return math.nan
    one, other = (values.double() - values.double().mean(0) for values in (given, right))
    lengths = (one.norm(dim=0) * other.norm(dim=0)).clamp_min(torch.finfo(torch.float64).tiny)
    shared = (one * other).sum(0) / lengths
    return float(shared.max()) * math.sqrt(rows) - math.sqrt(2 * math.log(columns))
