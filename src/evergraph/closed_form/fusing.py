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
        weights: of those that were counted, in the sums; 1 by default.  float32 [n]
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
        """Return scores, labels and allowed classes of the answers that the mixture is fitted to.

        If there are too many, these are equally many of each class. The allowed classes of a node
        are those of its task that have nodes; None if every node may have any class.

        scores: [n, classes, views]; counts: nodes of each class that were counted, int64 [classes]
        -> [k, classes, views], int64 [k], bool [k or 1, classes] | None
        """
        labels, allowed = self.labels, self.allowed
        has_nodes = (counts > 0)[None].cpu()
        if self.held_back:
            has_nodes = has_nodes.index_fill(1, labels, True)
        nodes, classes, views = scores.shape
        most = max(MOST_SCORES // max(classes * views, 1), 1)
        if nodes > most:
            per_class = max(most // int(labels.unique().numel()), 1)
            few = first_of_each_row(labels, draw_order(torch.arange(nodes)), per_class)
            scores, labels = scores[few], labels[few]
            allowed = None if allowed is None else allowed[few]
        if allowed is None:
            return scores, labels, None if bool(has_nodes.all()) else has_nodes
        return scores, labels, allowed & has_nodes


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
    fused = Fused(start if near is None else near.to(start), offsets)
    for _ in range(STEPS):
        step = problem.step(fused)
        fused = Fused(fused.weights + step.weights, fused.offsets + step.offsets)
        if max(float(part.abs().amax()) for part in step) < TOLERANCE * SHARPNESS:
            break
    return fused


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
    fused = Fused(*(part.to(scores.device, torch.float64) for part in fused))
    start = torch.zeros_like(fused.weights)  # has no influence without a prior
    problem = _Problem(scores.double(), labels.to(scores.device), allowed, start, balanced)
    problem.prior = problem.flat = 0.0
    return float(problem.loss(fused))


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
        losses = torch.cat(parts) - self.right @ at.weights - at.offsets[self.labels]
        penalty = self.prior * (at.weights - self.start).square().sum()
        penalty += self.flat * at.offsets.square().sum()
        return (self.shares * losses).sum() + penalty / 2

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
        full_step = torch.zeros_like(gradient)
        if bool(free.any()):
            full_step[free] = -torch.linalg.solve(hessian[free][:, free], gradient[free])
        offset_step = torch.zeros_like(at.offsets)
        offset_step[self.open] = full_step[heads:]
        before, size = self.loss(at), 1.0
        while size > TOLERANCE:
            weights = (at.weights + size * full_step[:heads]).clamp_min(0.0)
            moved = Fused(weights, at.offsets + size * offset_step)
            change = torch.cat([weights - at.weights, size * full_step[heads:]])
            if self.loss(moved) <= before + 1e-4 * gradient @ change:
                return Fused(weights - at.weights, size * offset_step)
            size /= 2
        return Fused(torch.zeros_like(at.weights), torch.zeros_like(at.offsets))

    def _slope(self, at: Fused) -> tuple[Tensor, Tensor]:
        """Return gradient and Hessian over weights, then open intercepts.  -> [k], [k, k]"""
        heads, classes = len(at.weights), self.open
        unknowns = heads + len(classes)
        expected = torch.empty_like(self.right)  # Σ_c p_ic s_v(i)_c
        hessian = at.weights.new_zeros(unknowns, unknowns)
        of_weights = hessian[:heads, :heads]
        of_both = hessian[heads:, :heads]
        of_offsets = hessian[heads:, heads:]
        predicted = at.offsets.new_zeros(len(classes))  # Σ_i w_i p_ic
        for rows in self.blocks:
            scores, chances = self.scores[rows], self._mixed(at, rows).softmax(1)
            expected[rows] = torch.einsum("nc,nch->nh", chances, scores)
            weighted = self.shares[rows, None] * chances
            weighted_scores = (weighted[:, :, None] * scores).flatten(0, 1)
            # A tenth of einsum's time.
            of_weights += weighted_scores.t() @ scores.flatten(0, 1)
            if len(classes):
                open_weighted = weighted[:, classes]
                of_both += torch.einsum("nc,nch->ch", open_weighted, scores[:, classes])
                of_both -= open_weighted.t() @ expected[rows]
                of_offsets -= open_weighted.t() @ chances[:, classes]
                predicted += open_weighted.sum(0)
        of_offsets.diagonal().add_(predicted)
        of_weights -= (self.shares[:, None] * expected).t() @ expected
        hessian[:heads, heads:] = of_both.t()
        # A little more than the prior, so that two equal heads do not make it singular.
        ridge = self.prior + 1e-12 * of_weights.diagonal().mean()
        of_weights.diagonal().add_(ridge)
        of_offsets.diagonal().add_(self.flat)
        gradient = self.shares @ (expected - self.right) + self.prior * (at.weights - self.start)
        actual = torch.zeros_like(at.offsets).index_add_(0, self.labels, self.shares)
        offset_gradient = predicted - actual[classes] + self.flat * at.offsets[classes]
        return torch.cat([gradient, offset_gradient]), hessian


def lead_over_chance(predicted: Tensor, right: Tensor) -> float:
    """Return how far the best column correlates with what is right: r √n, less for more columns.

    The best of K columns that are pure chance reaches about √(2 ln K). A column holds numbers, or
    probabilities of a class and whether nodes have it. (A rare class may be predicted better than
    by chance even if it is no node's most probable one.)  float [n, K] each; NaN for few answers

    >>> right = torch.arange(100.0)[:, None]
    >>> round(lead_over_chance(right, right), 6), lead_over_chance(-right, right) < 0
    (10.0, True)
    >>> round(lead_over_chance(right.expand(-1, 2), right.expand(-1, 2)), 6)  # 10 - √(2 ln 2)
    8.82259
    """
    rows, columns = right.shape
    if rows < FEWEST_ANSWERS or not columns:
        return math.nan
    predicted, right = (values.double() - values.double().mean(0) for values in (predicted, right))
    lengths = predicted.norm(dim=0) * right.norm(dim=0)
    tiny = torch.finfo(torch.float64).tiny
    correlations = (predicted * right).sum(0) / lengths.clamp_min(tiny)
    return float(correlations.max()) * math.sqrt(rows) - math.sqrt(2 * math.log(columns))
