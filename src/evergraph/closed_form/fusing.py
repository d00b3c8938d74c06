"""Heads of all views, solved from their sums, and fused with weights fitted on probes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evergraph.closed_form.counting import count_views
from evergraph.closed_form.ridge import balanced_ridge, choose_regularisation
from evergraph.closed_form.statistics import ClassStatistics
from evergraph.closed_form.view_map import ViewMap
from evergraph.closed_form.views import STORED, ViewRows
from evergraph.core.label_space import LabelSpace
from evergraph.core.resources import Resources

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
    start = torch.full((heads,), SHARPNESS / heads, dtype=torch.float64, device=scores.device)
    offsets = start.new_zeros(classes)
    if not len(labels):
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
            hessian[:heads, :heads], hessian[heads:, :heads], hessian[heads:, heads:],
        )  # fmt: skip
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


MIX = (-7046029254386353131, -4658895280553007687, -7723592293110705685)  # constants of splitmix64


def draw_order(ids: Tensor) -> Tensor:
    """Return a pseudo-random number for each id that depends on the id alone.  int64 [n]"""
    mixed = ids * MIX[0]
    for factor, shift in zip(MIX[1:], (30, 27), strict=True):
        mixed = (mixed ^ ((mixed >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return mixed ^ ((mixed >> 31) & ((1 << 33) - 1))


class Probes:
    """Some validation nodes of every class, stored as rows of the views.

    The choice depends on their ids alone, neither on their order of arrival nor on earlier
    choices: in every class, the first by ``draw_order``. Values are kept in float16.

    Args:
        per_class: maximum number per class.

    Attributes:
        hops_, codes_, relations_, shape_, far_: see ``ViewRows``; codes are zeros if none were
            shown, the others then have no columns.  float16 [kept, dims]
        labels_: their classes.  int64 [kept]
        nodes_: their ids in the dataset.  int64 [kept]
    """

    def __init__(self, per_class: int) -> None:
        self.per_class = per_class
        self.hops_, self.codes_, self.relations_, self.shape_, self.far_ = (
            torch.empty(0, 0, dtype=torch.float16) for _ in STORED
        )
        self.labels_ = torch.empty(0, dtype=torch.int64)
        self.nodes_ = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.labels_)

    def keep(self, rows: ViewRows, *, labels: Tensor, nodes: Tensor) -> None:
        """Consider nodes; the first of each class stay, among these and those kept before."""
        first = self._first(nodes.cpu(), labels.cpu())
        seen = rows.nodes if rows.nodes is not None else torch.arange(len(rows))
        taken = rows.of(seen[first.to(seen.device)]).taken(CPU)
        self._extend(taken, labels.cpu()[first], nodes.cpu()[first])
        self._take(self._first(self.nodes_, self.labels_))

    def _extend(self, rows: ViewRows, labels: Tensor, nodes: Tensor) -> None:
        for name in STORED:
            old, values = getattr(self, f"{name}_"), getattr(rows, name)
            if values is None:
                values = rows.hops.new_zeros(len(rows), old.shape[1])
            both = torch.cat([old.reshape(len(self), values.shape[1]), values.half()])
            setattr(self, f"{name}_", both)
        self.labels_ = torch.cat([self.labels_, labels])
        self.nodes_ = torch.cat([self.nodes_, nodes])

    def _take(self, rows: Tensor) -> None:
        for name in KEPT:
            setattr(self, f"{name}_", getattr(self, f"{name}_")[rows])

    def _first(self, nodes: Tensor, labels: Tensor) -> Tensor:
        """Return the positions of the first nodes of each class, by class.  int64 [kept]"""
        order = draw_order(nodes).argsort()
        order = order[labels[order].argsort(stable=True)]
        counts = torch.bincount(labels)
        starts = counts.cumsum(0) - counts
        rank = torch.arange(len(order)) - starts[labels[order]]
        return order[rank < self.per_class]

    def first(self, per_class: int) -> Tensor:
        """Return the positions of this many nodes of each class.  int64"""
        return Probes(per_class)._first(self.nodes_, self.labels_)

    def rows(self) -> ViewRows:
        """Return their view rows."""
        kept = {name: getattr(self, f"{name}_") for name in STORED}
        there: dict[str, Any] = {name: rows for name, rows in kept.items() if rows.shape[1]}
        return ViewRows(**{"hops": self.hops_, "codes": None} | there)

    def drop(self, nodes: Tensor) -> None:
        """Remove some of them."""
        self._take(~torch.isin(self.nodes_, nodes.cpu()))

    def clear(self) -> None:
        """Remove all of them."""
        self.restore(Probes(self.per_class).state())

    def copy_from(self, other: Probes, classes: Tensor | None = None) -> None:
        """Consider those of another; ``classes`` maps its classes to the classes here."""
        labels = other.labels_ if classes is None else classes.cpu()[other.labels_]
        new = ~torch.isin(other.nodes_, self.nodes_)
        rows = other.rows().of(new.nonzero().flatten())
        self.keep(rows, labels=labels[new], nodes=other.nodes_[new])

    @property
    def values(self) -> int:
        """Number of values kept."""
        return sum(getattr(self, f"{name}_").numel() for name in STORED)

    @property
    def nbytes(self) -> int:
        """Number of bytes kept."""
        return sum(tensor.nbytes for tensor in self.state().values())

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name."""
        return {name: getattr(self, f"{name}_") for name in KEPT}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        for name in KEPT:
            if name in state:  # earlier versions had no relations, shape and far hops
                setattr(self, f"{name}_", state[name])


KEPT = (*STORED, "labels", "nodes")
CPU = torch.device("cpu")


# With few labels the largest are chosen, see docs/decisions/0082.
LADDER = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)
# The regularisation is chosen on the first features alone: cheap at any width.
CHOICE_WIDTH = 512
# Scores of probes processed together: nodes x classes x views.
MOST_SCORES = 1 << 26
FUSINGS = ("fitted", "shares", "equal")


@dataclass(frozen=True, eq=False)
class Mixture:
    """Heads of all views and their weights: s = Σ_v a_v V_vᵀφ_v."""

    heads: list[Tensor]  # V of every view.  float32 [m, classes] each
    weights: Tensor  # a of every view.  float64 [views]
    bare: Tensor  # a of the views without class codes, used if no label is shown.  float64
    error: float  # loss of the whole mixture on the probes; infinite without probes


def side_by_side(heads: Sequence[Tensor], weights: Tensor, width: int) -> Tensor:
    """Return a_v V_v of some views, concatenated, each of this width.  -> [classes, all widths]"""
    pairs = zip(heads, weights.float(), strict=True)
    parts = [torch.nn.functional.pad((h * w).t(), (0, width - len(h))) for h, w in pairs]
    return torch.cat(parts, dim=1).contiguous()


@dataclass(frozen=True, eq=False)
class Mixing:
    """Solves and mixes heads; a function of sums and probes alone."""

    expand: ViewMap  # φ of every view
    space: LabelSpace  # the classes allowed for a node
    balanced: bool  # whether all classes have equal weight, or all nodes
    fusing: str  # one of ``FUSINGS``, see ``Auto``
    resources: Resources  # the workers that count

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
        most = max(MOST_SCORES // max(scores.shape[1] * scores.shape[2], 1), 1)
        few = torch.arange(len(probes))
        if len(probes) > most:  # equally many per class, that fit into one step
            few = probes.first(max(most // int(probes.labels_.unique().numel()), 1))
        chosen, labels = scores[few], probes.labels_[few]
        allowed = self.space.allowed(self.space.task_of(labels))
        if not bool(met.all()):
            allowed = met.expand(len(labels), -1) if allowed is None else allowed & met
        used = slice(0) if self.fusing == "equal" else slice(None)
        barred = None if allowed is None else allowed[used]
        weights, offsets = fused_weights(
            chosen[used], labels[used], balanced=self.balanced, allowed=barred
        )
        if self.fusing == "shares":
            weights = SHARPNESS * weights / weights.sum().clamp_min(1e-12)
        if not len(labels):
            return weights, math.inf
        return weights, mixture_loss(
            chosen, labels, Fused(weights, offsets), allowed=allowed, balanced=self.balanced
        )
