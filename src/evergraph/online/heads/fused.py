"""Closed-form heads on several views of a node, mixed as nodes tell that are left out in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from evergraph.closed_form import ClassStatistics
from evergraph.closed_form.fusing import fused_weights
from evergraph.closed_form.relations import WIDTH
from evergraph.closed_form.ridge import BalancedSolution
from evergraph.closed_form.views import View, parse_views
from evergraph.core.checks import check_integer, check_number
from evergraph.core.errors import ConfigurationError
from evergraph.online.graph.live_relations import PARTS
from evergraph.online.heads.base import OnlineHead, Scorer, heads, row_blocks
from evergraph.online.heads.few_rows import FewRows, Matrix
from evergraph.online.heads.view_parts import (
    BLOCK_VALUES,
    CODE_HOPS,
    ViewParts,
    default_views,
    hops_in,
)
from evergraph.online.held_back import LEAST
from evergraph.topology import MixHop, TopologyEncoder
from evergraph.training.learner import part_of

RELATION_DIMS = PARTS * WIDTH
# Nodes that the weights of views are fitted to, and their scores, one a class and view: a thousand
# nodes tell three weights, and with very many classes these would need more than there is.
NODES = 1 << 10
WEIGHED = 1 << 23
VIEWS = 3  # unless others are given


@heads.register
class FusedHead(OnlineHead):
    """Ridge regression on every view of a node, scores mixed with weights fitted on nodes left out.

    The live form of method ``auto``: s = Σ_v a_v V_vᵀφ_v with V_v = (A_v + λI)⁻¹ M_v from sums over
    all labelled nodes (see ``AnalyticHead``), and a fitted by class-balanced log-loss (see
    ``fused_weights``) to what V_v would say of a thousand of these, each left out by itself (see
    ``BalancedSolution``). A view may have class codes: the labels of nodes nearby, never a node's
    own (see ``LiveCodes``).

    Sums know no order, and V and a are functions of these and of the nodes asked about: after any
    deltas the head is that of a learner which was given what is left at once.

    Args:
        views: what heads see, such as ``2``, ``0|2`` and ``0|2+y``, see ``View``; hops must be
            those of the f_topo. Unless given the furthest hop, all hops side by side, and all with
            class codes; with relations in the last two, where there are any.
        width: m, how many random features a view has; memory is 4 m² bytes a view.
        regularisation: λ as a share of A's mean diagonal.
        codes: how wide the code of a class is.

    >>> head = FusedHead(width=64)
    >>> topology = head.default_topology()
    >>> head.begin(4, topology=topology, scaling="unit", generator=torch.Generator())
    >>> ids, vectors = torch.tensor([0, 1]), torch.eye(2).repeat(1, 2)
    >>> head.learn(ids, vectors, torch.tensor([1, 0]))
    >>> head.settle()
    >>> head.scores(ids, vectors).argmax(1)
    tensor([1, 0])
    """

    name = "auto"
    exact_forgetting = True
    holds_back = True
    lazy = True

    def __init__(
        self,
        *,
        views: Sequence[str] | None = None,
        width: int = 512,
        regularisation: float = 0.01,
        codes: int = 64,
    ) -> None:
        check_integer("width", width, least=1)
        check_number("regularisation", regularisation, least=0.0)
        check_integer("codes", codes, least=1)
        self.views = views
        self.width = width
        self.regularisation = regularisation
        self.codes = codes
        self.parsed: tuple[View, ...] = () if views is None else parse_views(views)
        self.statistics_: list[ClassStatistics] = []
        self.mixture_ = torch.zeros(0, dtype=torch.float64)  # a
        self._weights: list[Tensor] = []  # a_v V_v
        self._held = torch.zeros(0, 0), torch.zeros(0, dtype=torch.int64)
        self._seen: tuple[Tensor, list[Tensor]] = torch.zeros(0, 0), []  # vectors weighed, φ
        self._settled = True

    def default_topology(self) -> TopologyEncoder:
        """Return a node's own features beside those two hops away, each of unit length."""
        return MixHop(hops=2, keep=(0, 2), unit=True)

    @property
    def code_width(self) -> int:
        """How wide class codes are; 0 where no view has them."""
        return self.codes if any(view.codes for view in self.parsed) else 0

    def parts(self, dims: int) -> tuple[int, ...]:
        """Return how wide hops, relations and class codes are."""
        return tuple(stop - start for start, stop in self._parts.places.values())

    @property
    def takes_relations(self) -> bool:
        """Views may have them."""
        return True

    def begin(
        self,
        dims: int,
        *,
        topology: TopologyEncoder,
        scaling: str,
        generator: torch.Generator,
        related: bool = False,
    ) -> None:
        """Draw φ."""
        self._hops, self._dims, self._related = hops_in(topology), dims, related
        if self.views is None:
            self.parsed = default_views(self._hops, related=related)
        self._check_hops()
        self.seed = torch.randint(2**62, (1,), generator=generator)
        self._draw()
        self.statistics_ = [ClassStatistics(self.width, precise=True) for _ in self.parsed]
        self._weights = [torch.zeros(self.width, 0) for _ in self.parsed]

    def _check_hops(self) -> None:
        for view in self.parsed:
            if not set(view.hops) <= set(self._hops):
                raise ConfigurationError(
                    f"views must be of the hops that the topology keeps, {list(self._hops)}, not "
                    f"{str(view)!r}: use topology mixhop with keep"
                )

    def _draw(self) -> None:
        self._parts = ViewParts.drawn(
            self._hops,
            self._dims,
            codes=CODE_HOPS * self.code_width,
            relations=(RELATION_DIMS, self.code_width) if self._related else (0, 0),
            width=self.width,
            seed=int(self.seed),
        )

    @property
    def num_classes(self) -> int:
        """How many classes there is room for."""
        return self.statistics_[0].num_classes

    def grow(self, classes: int) -> None:
        """Make room for classes."""
        self._settled &= classes <= self.num_classes
        for statistics in self.statistics_:
            statistics.grow(classes)

    def learn(self, ids: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Add nodes to the sums of every view."""
        self._count(vectors, labels, sign=1)

    def forget(self, ids: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Take nodes out of the sums of every view."""
        self._count(vectors, labels, sign=-1)
        self._tidy()

    def _count(self, vectors: Tensor, labels: Tensor, *, sign: int) -> None:
        vectors = self._whole(vectors)
        for rows in self._parts.blocks(len(labels)):
            projected = self._parts.projected(vectors[rows])
            for view, statistics in zip(self.parsed, self.statistics_, strict=True):
                _count(statistics, self._parts.features(view, projected), labels[rows], sign)
        self._settled &= not len(labels)

    def move(self, ids: Tensor, before: Tensor, after: Tensor, labels: Tensor) -> None:
        """Take nodes out of the sums as they were, and add them as they are, where views differ."""
        before, after = self._whole(before), self._whole(after)
        for rows in self._parts.blocks(len(labels)):
            self._move(before[rows], after[rows], labels[rows])
        self._settled &= not len(labels)

    def _move(self, before: Tensor, after: Tensor, labels: Tensor) -> None:
        parts = self._parts
        other = {p: (parts.part(before, p) != parts.part(after, p)).any(1) for p in parts.places}
        earlier = parts.projected(before)
        later = parts.reprojected(earlier, after, other)
        for view, statistics in zip(self.parsed, self.statistics_, strict=True):
            needed = parts.needed(view)
            felt = torch.stack([other[part] for part in needed]).any(0)
            if bool(felt.any()):
                some = slice(None) if bool(felt.all()) else felt
                was, now = (
                    parts.features(view, {part: projected[part][some] for part in needed})
                    for projected in (earlier, later)
                )
                statistics.exchange(was, now, labels[some])

    def _whole(self, vectors: Tensor) -> Tensor:
        """Return vectors with class codes; where they are left out, no label is nearby."""
        missing = self._parts.dims - vectors.shape[1]
        return torch.nn.functional.pad(vectors, (0, missing)) if missing else vectors

    def _tidy(self) -> None:
        """Where nothing is left, what rounding has left is no knowledge."""
        for statistics in self.statistics_:
            statistics.sums_[statistics.counts_ == 0] = 0.0
            if not bool(statistics.counts_.any()):
                statistics.gram_.zero_()

    def sizes(self) -> Tensor | None:
        """Return Σ ‖φ_v‖² of every view."""
        return torch.stack([each.gram_.diagonal().sum() for each in self.statistics_])

    def restart(self) -> None:
        """Empty the sums."""
        for statistics in self.statistics_:
            statistics.clear()
        self._settled = False

    @property
    def most_weighed(self) -> int:
        """``NODES``, or so many that what all views say of them has at most ``WEIGHED`` values."""
        return max(min(NODES, WEIGHED // (max(self.num_classes, 1) * len(self.parsed))), 1)

    def weigh(self, vectors: Tensor, labels: Tensor) -> None:
        """Look at learned nodes, as they were counted, that are to be left out in turn."""
        self._held = vectors, labels

    def settle(self) -> None:
        """Solve for every V, then for a."""
        if self._settled:
            return
        vectors, labels = self._held
        found = torch.empty(len(labels), self.num_classes, len(self.parsed), dtype=torch.float64)
        heads = []
        pairs = zip(self.statistics_, self._held_features(vectors), strict=True)
        for view, (statistics, features) in enumerate(pairs):
            solution = BalancedSolution.of(statistics, self.regularisation)
            heads.append(solution.weights)
            for rows in row_blocks(len(labels), self.num_classes):
                found[rows, :, view] = solution.left_out(
                    features[rows].double(), labels[rows], statistics.counts_
                )
        self.mixture_ = fused_weights(
            found,
            labels,
            allowed=(self.statistics_[0].counts_ > 0)[None],
            near=self.mixture_ if len(self.mixture_) else None,
        )
        self._weights = [
            (head * share).float().contiguous()
            for head, share in zip(heads, self.mixture_, strict=True)
        ]
        self._settled = True

    def _held_features(self, vectors: Tensor) -> list[Tensor]:
        """Return φ of those weighed; rows that are as they were are not computed again."""
        vectors = self._whole(vectors)
        known, features = self._seen
        if known.shape != vectors.shape:
            features = [torch.empty(len(vectors), self.width) for _ in self.parsed]
            other = torch.arange(len(vectors))
        else:
            other = (known != vectors).any(1).nonzero().flatten()
        for rows in other.split(self._parts.rows):
            projected = self._parts.projected(vectors[rows])
            for view, found in zip(self.parsed, features, strict=True):
                found[rows] = self._parts.features(view, projected)
        self._seen = vectors, features
        return features

    def scorer(self) -> FusedScorer:
        """Return φ and a_v V_v; these are never written to, only replaced."""
        return FusedScorer(self._parts, self.parsed, tuple(self._weights), self._parts.dims)

    def bytes_for(self, *, nodes: int, counted: int, classes: int, new: int) -> int:
        """Return what sums, V and a_v V_v take, copies, and what is made of a block of nodes."""
        views = max(len(self.parsed), VIEWS)
        kept = views * (8 + 4 + 4)
        # a_v V_v of readers and V; of a view sums, means, and what they say of each other
        held = views * (4 + 4 + 8) + 4 * 8
        rows = self.width * (kept * new + held * classes + 3 * 8 * self.width)
        block = min(counted * self.width, BLOCK_VALUES)
        alone = max(classes - nodes // LEAST, 0)  # at least so many are of classes without a say
        weighed = min(min(max(nodes - alone, 0), NODES) * classes * views, WEIGHED)
        return rows + 5 * 8 * block + 3 * 8 * weighed + 8 * self.codes * new

    @property
    def nbytes(self) -> int:
        """How many bytes it keeps: half of every G counts, as ``state`` has it."""
        sums = sum(s.gram_.nbytes // 2 + s.sums_.nbytes for s in self.statistics_)
        return sums + sum(weights.nbytes for weights in self._weights)

    def state(self) -> dict[str, Tensor]:
        """Return the seed of φ, the sums, a, a_v V_v and whether V is that of the sums."""
        kept = {"seed": self.seed, "mixture": self.mixture_, "solved": torch.tensor(self._settled)}
        for place, statistics in enumerate(self.statistics_):
            for name, value in statistics.state().items():
                kept[f"view_{place}.{name}"] = value
            kept[f"view_{place}.weights"] = self._weights[place]
        return kept

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self.seed, self.mixture_ = state["seed"], state["mixture"]
        self._draw()
        for place, statistics in enumerate(self.statistics_):
            part = part_of(state, f"view_{place}.")
            self._weights[place] = part.pop("weights")
            statistics.restore(part)
        self._seen = torch.zeros(0, 0), []  # made when they are needed
        self._settled = bool(state.get("solved", True))


def _count(statistics: ClassStatistics, features: Tensor, labels: Tensor, sign: int) -> None:
    count = statistics.add if sign > 0 else statistics.remove
    count(features, labels, torch.ones(len(labels)))


@dataclass(frozen=True, eq=False)
class FusedScorer(Scorer):
    """s(x) = Σ_v a_v V_vᵀφ_v(x).

    Attributes:
        parts: φ.
        views: v.
        weights: a_v V_v.  float32 [m, classes] each
        dims: of a vector with class codes.
    """

    quick = True

    parts: ViewParts
    views: tuple[View, ...]
    weights: tuple[Tensor, ...]
    dims: int

    def __call__(self, ids: Tensor, vectors: Tensor) -> Tensor:
        """Return the scores.  [n, dims] -> [n, classes]"""
        vectors = torch.nn.functional.pad(vectors, (0, self.dims - vectors.shape[1]))
        scores = torch.empty(len(vectors), self.weights[0].shape[1])
        for rows in self.parts.blocks(len(vectors)):
            projected = self.parts.projected(vectors[rows], together=True)
            said = [
                self.parts.features(view, projected) @ weights
                for view, weights in zip(self.views, self.weights, strict=True)
            ]
            scores[rows] = torch.stack(said).sum(0)
        return scores

    def few(self, ids: Sequence[int], vectors: Matrix) -> Matrix:
        """Return the scores in a few calls of numpy.  [n, dims] -> [n, classes]"""
        return self._few(vectors)

    @cached_property
    def _few(self) -> FewRows:
        return FewRows.of(self.parts, self.views, self.weights)

    def slopes(self, vector: Tensor) -> Tensor | None:
        """Return ∂s/∂x: s(x) is this times x, as φ is piecewise linear.  -> [classes, dims]"""
        projected = self.parts.projected(vector[None], together=True)
        slopes = torch.zeros(self.weights[0].shape[1], self.dims)
        for view, weights in zip(self.views, self.weights, strict=True):
            needed = self.parts.needed(view)
            passed = sum((projected[part] for part in needed), torch.zeros(())) > 0  # [1, m]
            through = (weights.t() * passed).mul_(self.parts.scale(view))  # [classes, m]
            for part in needed:
                start, stop = self.parts.places[part]
                slopes[:, start:stop] += through @ self.parts.matrices[part].t()
        return slopes
