"""Head ``auto``: ridge regression on several views of a node, mixed by leave-one-out scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Generator, Tensor

from evergraph.closed_form import ClassStatistics
from evergraph.closed_form.fusing import fused_weights
from evergraph.closed_form.kernel_map import KernelMap
from evergraph.closed_form.relations import WIDTH
from evergraph.closed_form.ridge import BalancedSolution
from evergraph.closed_form.view_map import BLOCK_VALUES, RandomMap
from evergraph.closed_form.views import (
    CODE_HOPS,
    CODES,
    RELATION_CODES,
    RELATIONS,
    View,
    parse_views,
)
from evergraph.core.checks import check_choice, check_integer, check_number
from evergraph.core.errors import ConfigurationError
from evergraph.online.graph.live_relations import PARTS
from evergraph.online.heads.base import OnlineHead, heads, of_classes, row_blocks
from evergraph.online.heads.fused_scorer import FusedScorer
from evergraph.online.learned_nodes import LEAST
from evergraph.online.state_arrays import Packing
from evergraph.topology import MixHop, TopologyEncoder
from evergraph.topology.rowwise import block_product
from evergraph.training.learner import part_of
from evergraph.training.trainer import Objective

# Nodes to which the weights of views are fitted: a thousand suffice for three weights. And the most
# scores of these, one per node, class and view: very many classes would need too much memory.
NODES = 1 << 10
WEIGHED = 1 << 23
VIEWS = 3  # by default
# Up to FEW labelled nodes are all landmarks, chosen anew with every change. Landmarks are also
# chosen anew when less than LEFT of the chosen ones are left.
FEW, LEFT = 1 << 8, 0.75
# Landmarks chosen among more labelled nodes than this have one view less, see ``default_views``.
MANY = 1 << 11
# On landmarks, λ is (1 + SPARSE / n) times as large for n labelled nodes: few of them fit closely
# what does not hold for others. See docs/decisions/0093.
SPARSE = 1 << 12
Basis = Literal["random", "landmarks"]


@heads.register
class FusedHead(OnlineHead):
    """Ridge regression on every view of a node, with scores mixed by weights fitted leave-one-out.

    The live form of method ``auto``: s = Σ_v a_v V_vᵀφ_v with V_v = (A_v + λI)⁻¹ M_v from sums over
    all labelled nodes (see ``AnalyticHead``). The weights a minimise the class-balanced log-loss
    (see ``fused_weights``) of a thousand of these nodes, each predicted as if it had been left out
    (see ``BalancedSolution``). A view may have class codes: the labels of nodes nearby, never a
    node's own (see ``LiveCodes``).

    Sums do not depend on order, and V and a are functions of the sums and of the left-out nodes. So
    after any deltas the head equals that of a learner given what is left at once, if it stands on
    the same landmarks, and in any case with random features.

    Args:
        views: inputs of the regressions, such as ``2``, ``0|2`` and ``0|2+y``, see ``View``; hops
            must be those of the f_topo. See ``default_views`` for the default.
        width: m, the number of features per view; memory is 4 m² bytes per view, and as much again
            for landmarks.
        regularisation: λ as a share of A's mean diagonal. On landmarks, see ``BalancedSolution``,
            it is larger while few nodes are labelled.
        codes: width of the code of a class.
        basis: of the features: ``landmarks``, kernel values to ``width`` labelled nodes, see
            ``KernelMap``, or ``random`` directions. Up to 256 labelled nodes are all landmarks.
            Beyond that, landmarks are copies of nodes, chosen anew (and everything learned again)
            when the number of labels or classes has doubled, so scores depend on when that was.
            Forgetting erases the landmarks near forgotten nodes, and near edges removed before.
        objective: ``balanced`` accuracy, in which every class counts alike, or ``plain`` accuracy
            over nodes. V and a are fitted to it, so probabilities are those for classes that are
            equally frequent, or as frequent as in the graph.

    >>> head = FusedHead(width=64)
    >>> topology = head.default_topology()
    >>> head.begin(4, topology=topology, generator=torch.Generator())
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
    takes_relations = True
    drops_classes = True

    def __init__(
        self,
        *,
        views: Sequence[str] | None = None,
        width: int = 768,
        regularisation: float = 0.001,
        codes: int = 64,
        basis: Basis = "landmarks",
        objective: Objective = "balanced",
    ) -> None:
        check_integer("width", width, least=1)
        check_number("regularisation", regularisation, least=0.0)
        check_integer("codes", codes, least=1)
        check_choice("basis", basis, ("random", "landmarks"))
        check_choice("objective", objective, ("balanced", "plain"))
        self.views, self.width, self.codes = views, width, codes
        self.regularisation = regularisation
        self.basis: Basis = basis
        self.objective: Objective = objective
        self.balanced = objective == "balanced"
        self.parsed: tuple[View, ...] = () if views is None else parse_views(views)
        self.statistics_: list[ClassStatistics] = []
        self.mixture_ = torch.zeros(0, dtype=torch.float64)  # a
        self._weights: list[Tensor] = []  # a_v V_v
        self._held = torch.zeros(0, 0), torch.zeros(0, dtype=torch.int64)
        self._seen: tuple[Tensor, list[Tensor]] = torch.zeros(0, 0), []  # vectors weighed, φ
        self._settled = True
        self._landmarks = torch.zeros(0, dtype=torch.int64)  # positions; -1 for erased ones
        self._chosen = 0, 0, 0  # labels and classes when landmarks were chosen, and their number
        self._penalties: dict[View, Tensor] = {}

    def default_topology(self) -> TopologyEncoder:
        """Return a node's own features and those two hops away, each of unit length."""
        return MixHop(hops=2, kept_hops=(0, 2), unit=True)

    @property
    def code_width(self) -> int:
        """Width of class codes; 0 if no view has them."""
        return self.codes if any(view.codes for view in self.parsed) else 0

    def parts(self, dims: int) -> tuple[int, ...]:
        """Return the widths of hops, relations and class codes."""
        return tuple(self._map.sizes.values())

    def begin(
        self, dims: int, *, topology: TopologyEncoder, generator: Generator, related: bool = False
    ) -> None:
        """Draw φ."""
        # The hops that are kept side by side in an embedding; one if they are mixed.
        kept = topology.kept if isinstance(topology, MixHop) else (topology.hops,)
        self._hops, self._dims, self._related = tuple(kept), dims, related
        if self.views is None:
            self.parsed = default_views(self._hops, self.basis, related=related)
        for view in self.parsed:
            if not set(view.hops) <= set(self._hops):
                raise ConfigurationError(
                    f"views must be of the hops that the topology keeps, {list(self._hops)}, not "
                    f"{str(view)!r}: use topology mixhop with kept_hops"
                )
        self.seed = torch.randint(2**62, (1,), generator=generator)
        self._draw()
        self.statistics_ = [ClassStatistics(self.width, precise=True) for _ in self.parsed]
        self._weights = [torch.zeros(self.width, 0) for _ in self.parsed]

    def _draw(self) -> None:
        sizes = dict.fromkeys(self._hops, self._dims // len(self._hops))
        if self._related:
            sizes[RELATIONS] = PARTS * WIDTH
        if self.code_width:
            sizes[CODES] = CODE_HOPS * self.code_width
            if self._related:
                sizes[RELATION_CODES] = self.code_width
        self._map: RandomMap | KernelMap = RandomMap.drawn(
            self.parsed, sizes, width=self.width, seed=int(self.seed)
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
        self._count(vectors, labels, 1)

    def forget(self, ids: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Subtract nodes from the sums of every view."""
        self._count(vectors, labels, -1)
        for statistics in self.statistics_:
            statistics.clear_rounding()

    def landmarks_wanted(self, labelled: int, classes: int, *, changed: bool) -> int:
        """Return ``width`` if labels or classes have doubled, or a quarter of landmarks is gone."""
        if self.basis == "random" or not labelled:
            return 0
        known, met, most = self._chosen
        doubled = labelled >= 2 * known or classes >= 2 * met
        left = int((self._landmarks >= 0).sum())
        few = changed and labelled <= FEW
        return self.width if doubled or few or left < LEFT * min(most, labelled) else 0

    def stand_on(self, nodes: Tensor, vectors: Tensor, *, labelled: int, classes: int) -> None:
        """Use nodes as landmarks, with the vectors they are counted as; empties the sums."""
        known = self.num_classes
        self._landmarks, self._chosen = nodes, (labelled, classes, len(nodes))
        if self.views is None:
            few = labelled <= MANY
            views = default_views(self._hops, self.basis, related=self._related, few=few)
            if views != self.parsed:
                self.parsed, self.mixture_ = views, self.mixture_[:0]
                self._weights = [torch.zeros(self.width, 0) for _ in views]
        parts = {part: vectors[:, slice(*ends)] for part, ends in self._map.places.items()}
        self._map = KernelMap.of(self.parsed, parts)
        self.statistics_ = [ClassStatistics(len(nodes), precise=True) for _ in self.parsed]
        self.grow(known)
        self._changed_map()

    def stand_as(self, other: FusedHead) -> None:
        """Use the landmarks of another head, with empty sums."""
        if isinstance(other._map, KernelMap):
            labelled, classes, _ = other._chosen
            rows = other._landmark_vectors()
            self.stand_on(other._landmarks, rows, labelled=labelled, classes=classes)

    def let_go(self, nodes: Tensor) -> bool:
        """Erase landmarks from the map, and their rows and columns from all sums."""
        places = torch.isin(self._landmarks, nodes).nonzero().flatten()
        if not len(places) or not isinstance(self._map, KernelMap):
            return False
        self._landmarks = self._landmarks.index_fill(0, places, -1)
        self._map = self._map.without(places)
        for statistics in self.statistics_:
            statistics.gram_[places] = 0.0
            statistics.gram_[:, places] = 0.0
            statistics.sums_[:, places] = 0.0
        self._changed_map()
        return True

    def _changed_map(self) -> None:
        self._penalties, self._seen, self._settled = {}, (torch.zeros(0, 0), []), False

    def _landmark_vectors(self) -> Tensor:
        """Return landmarks, all parts side by side.  -> float32 [landmarks, dims]"""
        assert isinstance(self._map, KernelMap)
        return torch.cat(list(self._map.landmarks.values()), dim=1)

    def _count(self, vectors: Tensor, labels: Tensor, sign: int) -> None:
        for rows in self._map.slices(len(labels)):
            pairs = zip(self.statistics_, self._features(vectors[rows]), strict=True)
            for statistics, features in pairs:
                statistics.count(features, labels[rows], torch.ones(len(features)), sign)
        self._settled &= not len(labels)

    def _features(self, vectors: Tensor) -> Iterator[Tensor]:
        """Yield φ_v of every view; the bits of a row do not depend on the other rows."""
        projected = self._map.projected(self._map.cut(vectors), block_product)
        return (self._map.features(view, projected) for view in self.parsed)

    def move(self, ids: Tensor, before: Tensor, after: Tensor, labels: Tensor) -> None:
        """Replace nodes in the sums of the views in which their vectors differ."""
        for block in self._map.slices(len(labels)):
            old, new = self._map.cut(before[block]), self._map.cut(after[block])
            other = {
                part: torch.from_numpy((old[part].numpy() != new[part].numpy()).any(1))
                for part in old
            }  # by numpy: in a fifth of torch's time
            earlier = self._map.projected(old, block_product)
            later = dict(earlier)
            for part, rows in other.items():
                if bool(rows.any()):  # only changed rows are projected again
                    again = self._map.projected({part: new[part][rows]}, block_product)
                    later[part] = earlier[part].clone()
                    later[part][rows] = again[part]
            for view, statistics in zip(self.parsed, self.statistics_, strict=True):
                needed = self._map.needed(view)
                felt = torch.stack([other[part] for part in needed]).any(0)
                if bool(felt.any()):
                    some = slice(None) if bool(felt.all()) else felt
                    was, now = (
                        self._map.features(view, {part: projected[part][some] for part in needed})
                        for projected in (earlier, later)
                    )
                    statistics.exchange(was, now, labels[block][some])
        self._settled &= not len(labels)

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
        """``NODES``, or fewer so that their scores in all views have at most ``WEIGHED`` values."""
        return max(min(NODES, WEIGHED // (max(self.num_classes, 1) * len(self.parsed))), 1)

    def weigh(self, vectors: Tensor, labels: Tensor) -> None:
        """Set the learned nodes to be left out in turn."""
        self._held = vectors, labels

    def settle(self) -> None:
        """Solve for every V, then for a."""
        if self._settled:
            return
        vectors, labels = self._held
        found = torch.empty(len(labels), self.num_classes, len(self.parsed), dtype=torch.float64)
        heads = []
        # φ of the nodes to leave out; unchanged rows are not computed again.
        known, kept = self._seen
        if kept and known.shape == vectors.shape:
            other = (known != vectors).any(1).nonzero().flatten()
        else:
            kept = [torch.empty(len(vectors), self._map.width) for _ in self.parsed]
            other = torch.arange(len(vectors))
        for rows in other.split(self._map.at_a_time):
            for features, some in zip(kept, self._features(vectors[rows]), strict=True):
                features[rows] = some
        self._seen = vectors, kept
        pairs = zip(self.statistics_, kept, strict=True)
        for view, (statistics, features) in enumerate(pairs):
            solution = self.solution(self.parsed[view], statistics)
            heads.append(solution.weights)
            for part in row_blocks(len(labels), self.num_classes):
                left_out = features[part].double(), labels[part]
                found[part, :, view] = solution.left_out(*left_out, statistics.counts_)
        self.mixture_ = fused_weights(
            found,
            labels,
            allowed=(self.statistics_[0].counts_ > 0)[None],
            near=self.mixture_ if len(self.mixture_) else None,
            balanced=self.balanced,
        )
        mixed = zip(heads, self.mixture_, strict=True)
        self._weights = [(head * share).float().contiguous() for head, share in mixed]
        self._settled = True

    def solution(self, view: View, statistics: ClassStatistics) -> BalancedSolution:
        """Return V of a view, with what leave-one-out needs."""
        penalty, regularisation = None, self.regularisation
        if isinstance(self._map, KernelMap):
            regularisation *= 1 + SPARSE / max(int(statistics.counts_.sum()), 1)
            if view not in self._penalties:
                self._penalties[view] = self._map.penalty(view)
            penalty = self._penalties[view]
        return BalancedSolution.of(
            statistics, regularisation, balanced=self.balanced, penalty=penalty
        )

    def scorer(self) -> FusedScorer:
        """Return φ and a_v V_v, which are only ever replaced, not written to."""
        return FusedScorer(self._map, tuple(self._weights))

    def bytes_for(self, *, nodes: int, counted: int, classes: int, new: int) -> int:
        """Return the bytes of sums, V and a_v V_v, of copies, and of a block of nodes."""
        views = max(len(self.parsed), VIEWS)
        kept = views * (8 + 4 + 4)
        # per view a_v V_v of readers, a_v V_v and V; for one view sums, means and their products
        held = views * (4 + 4 + 8) + 4 * 8
        rows = self.width * (kept * new + held * classes + 3 * 8 * self.width)
        if self.basis == "landmarks":  # a new set, and its kernel matrix
            dims = sum(self._map.sizes.values()) if self.statistics_ else 0
            rows += self.width * (views * 2 * 4 * self.width + 3 * 4 * dims)
        block = min(counted * self.width, BLOCK_VALUES)
        alone = max(classes - nodes // LEAST, 0)  # at least so many classes are too small for it
        weighed = min(min(max(nodes - alone, 0), NODES) * classes * views, WEIGHED)
        return rows + 5 * 8 * block + 3 * 8 * weighed + 8 * self.codes * new

    @property
    def nbytes(self) -> int:
        """How many bytes it keeps; of every symmetric G only half, as in ``state``."""
        sums = sum(s.gram_.nbytes // 2 + s.sums_.nbytes for s in self.statistics_)
        landmarks = 0
        if len(self._landmarks) and isinstance(self._map, KernelMap):
            # with their kernel matrix, computed when it is needed
            landmarks = sum(rows.nbytes for rows in self._map.landmarks.values())
            landmarks += 4 * len(self.parsed) * self._map.width**2
        return sums + landmarks + sum(weights.nbytes for weights in self._weights)

    def state(self) -> dict[str, Tensor]:
        """Return the seed of φ, the sums, a, a_v V_v, and whether V is up to date."""
        kept = {"seed": self.seed, "mixture": self.mixture_, "solved": torch.tensor(self._settled)}
        for place, statistics in enumerate(self.statistics_):
            for name, value in statistics.state().items():
                kept[f"view_{place}.{name}"] = value
            kept[f"view_{place}.weights"] = self._weights[place]
        if isinstance(self._map, KernelMap):
            kept |= {"landmarks": self._landmark_vectors(), "chosen": torch.tensor(self._chosen)}
            kept["landmark_nodes"] = self._landmarks
        return kept

    def packed(
        self, state: dict[str, Tensor], nodes: Packing, classes: Packing
    ) -> dict[str, Tensor]:
        """Return the same for other numbers: landmarks are known by their positions."""
        found = of_classes(state, classes.living)
        if "landmark_nodes" in state:
            found["landmark_nodes"] = nodes.places[state["landmark_nodes"]]
        return found

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self.seed = state["seed"]
        self._draw()
        if "landmarks" in state:
            labelled, classes, _ = state["chosen"].tolist()
            kept = state["landmark_nodes"], state["landmarks"]
            self.stand_on(*kept, labelled=labelled, classes=classes)
        self.mixture_ = state["mixture"]
        for place, statistics in enumerate(self.statistics_):
            part = part_of(state, f"view_{place}.")
            self._weights[place] = part.pop("weights")
            statistics.restore(part)
        self._seen = torch.zeros(0, 0), []  # computed when needed
        self._settled = bool(state.get("solved", True))


def default_views(
    hops: Sequence[int], basis: Basis, *, related: bool = False, few: bool = True
) -> tuple[View, ...]:
    """Return single hops, and all hops side by side with class codes.

    On landmarks the nearest hop is a view of its own, and so is the furthest while few nodes are
    labelled: class codes then say little. Random features, which represent a wide hop poorly, have
    the furthest, and all of them without codes too.

    related: whether views of all hops include features along relations; few: whether few nodes are
    labelled.

    >>> [str(view) for view in default_views((0, 2), "landmarks")]
    ['0', '2', '0|2+y']
    >>> [str(view) for view in default_views((0, 2), "landmarks", few=False)]
    ['0', '0|2+y']
    >>> [str(view) for view in default_views((0, 2), "random")]
    ['2', '0|2', '0|2+y']
    """
    near, far = View((min(hops),)), View((max(hops),))
    whole = View(tuple(hops), related=related)
    alone = {"landmarks": (near, far) if few else (near,), "random": (far, whole)}[basis]
    return tuple(dict.fromkeys((*alone, replace(whole, codes=True))))
