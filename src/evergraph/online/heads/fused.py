"""Head ``auto``: ridge regression on several views of a node, mixed by leave-one-out scores."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import deepcopy
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor

from evergraph.closed_form.codes import WIDTH
from evergraph.closed_form.engine import ViewEngine
from evergraph.closed_form.fusing import Answers
from evergraph.closed_form.kernel_map import KernelMap, level_of, with_constant
from evergraph.closed_form.landmarks import FEW_COLUMNS
from evergraph.closed_form.own_features import NO_WORDS, SHAPE_WIDTH, WordColumns
from evergraph.closed_form.view_map import Parts, RandomMap
from evergraph.closed_form.views import (
    CODE_HOPS,
    CODES,
    LENGTH,
    RELATION_CODES,
    RELATIONS,
    SHAPE,
    WORDS,
    View,
    live_views,
    parse_views,
)
from evergraph.core.component import Resolver
from evergraph.core.errors import ConfigurationError, check_choice, check_integer, check_number
from evergraph.core.targets import Key, Label, Target, target_of
from evergraph.online.arrays import Packing, of_classes
from evergraph.online.graph.live_relations import PARTS
from evergraph.online.heads.class_weights import ClassWeights
from evergraph.online.heads.scorer import Scorer, row_blocks
from evergraph.online.heads.staleness import LandmarkNodes
from evergraph.topology import MixHop, TopologyEncoder
from evergraph.training.trainer import Objective

# Nodes that are left out in turn: a thousand suffice for three weights. And the most scores of
# these, one per node, class and view: very many classes would need too much memory.
LEFT_OUT_NODES = 1 << 10
LEFT_OUT_SCORES = 1 << 23
# With more labelled nodes the furthest hop by itself adds nothing (see decision 96), and with
# fewer half as many landmarks again are worth their cost (see decision 114).
PLENTY = 1 << 13
FEATURES, MORE_FEATURES = 768, 1152  # of a view
Basis = Literal["random", "landmarks"]
heads = Resolver["FusedHead"]("head")


@heads.register
class FusedHead:
    """Ridge regression on every view of a node, mixed by what predicts nodes left out in turn.

    The live form of method ``auto``: a ``ViewEngine`` that is updated as labelled nodes are
    added, moved and removed. A view may have class codes: the labels of nodes nearby, never a
    node's own (see ``LiveCodes``). Beside ``auto`` it lacks hops beyond the second, which a delta
    would change nearly everywhere (on WordNet about a point of accuracy, four with 5 % of the
    labels), and weights of columns (0.2 to 0.4 points on three of six graphs).

    A delta calls ``grow`` and ``erase_landmarks``; then ``forget``, ``move`` and ``learn`` as
    needed, or, if new landmarks are wanted, ``use_landmarks`` and ``learn`` with all nodes. Now and
    then it calls ``leave_out`` and ``solve``. ``scorer`` may be called at any time. Nodes are
    forgotten and moved with the vectors that were last learned. One whose label changes is forgotten
    and learned again.

    Sums do not depend on order, and all else is a function of the sums and of the left-out nodes.
    So after any deltas the head equals that of a learner that is given at once what is left, if
    both have the same landmarks and have chosen their penalties at the same time.

    Args:
        views: inputs of the regressions, such as ``0``, ``2`` and ``0|1|2|s+y``, see ``View``;
            hops must be those of the f_topo. By default ``live_views``, without that of the
            furthest hop alone once landmarks are chosen among more than 8,192 labelled nodes.
        width: m, the number of features per view; memory is 4 m² bytes per view, and as much again
            for landmarks. 768 by default, 1,152 on landmarks of up to 8,192 labelled nodes.
        regularisation: λ as a share of its scale; chosen by the engine by default.
        codes: width of the code of a class.
        basis: of the features: ``landmarks``, kernel values to ``width`` labelled nodes, see
            ``KernelMap``, or ``random`` directions. Up to 256 labelled nodes are all landmarks.
            Beyond that, landmarks are copies of nodes, chosen anew (and everything learned again)
            when the number of labels has doubled or new classes have a twentieth of them, so scores
            depend on when that was.
            Forgetting erases the landmarks near forgotten nodes, and near edges removed before.
        objective: ``balanced`` accuracy, in which every class counts alike, or ``plain`` accuracy
            over nodes. V and a are fitted to it, so probabilities are those for classes that are
            equally frequent, or as frequent as in the graph.

    >>> head = FusedHead(width=64)
    >>> topology = head.default_topology()
    >>> head.begin(6, topology=topology, generator=torch.Generator())
    >>> vectors = torch.eye(2, sum(head.engine.map.sizes.values()))
    >>> head.learn(vectors, torch.tensor([1, 0]))
    >>> head.solve()
    >>> head.scores(vectors).argmax(1)
    tensor([1, 0])
    """

    name: ClassVar[str] = "auto"
    kind: str = "class"  # of the targets that it learns, see ``target``
    takes_relations: ClassVar[bool] = True  # whether it uses features along relations
    drops_classes: ClassVar[bool] = True  # whether ``packed`` drops classes that no node has
    least_left_out: ClassVar[int] = 2  # nodes of a class before any of them is left out

    def __init__(
        self,
        *,
        views: Sequence[str] | None = None,
        width: int | None = None,
        regularisation: float | None = None,
        codes: int = 64,
        basis: Basis = "landmarks",
        objective: Objective = "balanced",
    ) -> None:
        if width is not None:
            check_integer("width", width, least=1)
        if regularisation is not None:
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
        self.engine = ViewEngine(balanced=self.balanced, regularisation=regularisation)
        self._answers, self._words = Answers.none(), NO_WORDS
        self.landmarks = LandmarkNodes()
        self.class_weights: ClassWeights | None = None  # None if all nodes count alike

    @property
    def target(self) -> Target:
        """What it learns of a node: a class, labels or a number."""
        return target_of(self.kind)

    def default_topology(self) -> TopologyEncoder:
        """Return a node's own features and those of two hops, each of unit length."""
        return MixHop(hops=2, unit=True)

    @property
    def code_width(self) -> int:
        """Width of class codes; 0 if no view has them."""
        return self.codes if any(view.codes for view in self.parsed) else 0

    @property
    def shaped(self) -> bool:
        """Whether a view has a node's degree and feature length."""
        return any(view.shaped for view in self.parsed)

    @property
    def measured(self) -> bool:
        """Whether features are a few columns, whose magnitude matters."""
        estimated = self.word_width and self._words.alone
        few_columns = self._dims // len(self._hops) <= FEW_COLUMNS and not estimated
        return few_columns and self.shaped and self.basis == "landmarks" and 0 in self._hops

    @property
    def word_width(self) -> int:
        """Width of a node's own words, see ``packed_words``; 0 if no view reads them."""
        reads = self.basis == "landmarks" and any(0 in view.hops for view in self.parsed)
        return self._words.width if reads else 0

    def reads_own(self, topology: TopologyEncoder) -> bool:
        """Whether, with this topology, it would read a node's own words."""
        hops = topology.kept if self.views is None else [h for v in self.parsed for h in v.hops]
        return self.basis == "landmarks" and 0 in hops

    def begin(
        self,
        dims: int,
        *,
        topology: TopologyEncoder,
        generator: Generator,
        related: bool = False,
        words: WordColumns = NO_WORDS,
    ) -> None:
        """Draw φ, before the first delta.

        dims: width of embeddings, made by the topology; related: whether there are relations;
        words: of nodes
        """
        self._words = words
        self._hops, self._dims, self._related = tuple(topology.kept), dims, related
        if self.views is None:
            self.parsed = live_views(self._hops, self.basis == "landmarks", related=related)
        for view in self.parsed:
            if not set(view.hops) <= set(self._hops):
                raise ConfigurationError(
                    f"views must be of the hops that the topology keeps, {list(self._hops)}, not "
                    f"{str(view)!r}: use topology mixhop with kept_hops"
                )
        self.seed = torch.randint(2**62, (1,), generator=generator)
        self._draw()

    def _draw(self) -> None:
        sizes = dict.fromkeys(self._hops, self._dims // len(self._hops))
        if self._related:
            sizes[RELATIONS] = PARTS * WIDTH
        if self.shaped:
            sizes[SHAPE] = SHAPE_WIDTH
            if self.measured:
                sizes[LENGTH] = 1
        if self.word_width:
            sizes[WORDS] = self.word_width
        if self.code_width:
            sizes[CODES] = CODE_HOPS * self.code_width
            if self._related:
                sizes[RELATION_CODES] = self.code_width
        width, seed = self.width or FEATURES, int(self.seed)
        self.engine.begin(RandomMap.drawn(self.parsed, sizes, width=width, seed=seed))

    @property
    def num_classes(self) -> int:
        """How many classes there is room for."""
        return self.engine.num_classes

    def grow(self, classes: int) -> None:
        """Make room for classes."""
        self.engine.grow(classes)

    def register(self, answers: Sequence[Key]) -> None:
        """Register new targets, in the order of their numbers."""

    def values(self, answers: Tensor) -> Tensor:
        """Return the targets that class numbers encode, for labels and numbers.  -> [n, targets]"""
        raise NotImplementedError

    @property
    def names(self) -> Collection[Label]:
        """Names of labels, in order; empty for classes and numbers."""
        return ()

    def erase_landmarks(self, nodes: Tensor) -> bool:
        """Erase landmarks that are among some nodes; return whether there were any.

        Called before anything is subtracted, with all nodes that a forgotten node may have
        influenced, also through edges that were removed since: the copy of a landmark might hold a
        trace of it.
        """
        self.landmarks, places = self.landmarks.without(nodes)
        if len(places):
            self.engine.erase(places)
        return len(places) > 0

    def landmarks_wanted(self, counts: Tensor, *, changed: bool, refit: bool = False) -> int:
        """Return the number of landmarks if they must be chosen anew, else 0.

        counts: labelled nodes of each class now, int64 [classes]; changed: whether this delta
        changed the sums; refit: whether landmarks must be chosen anew in any case.
        After ``use_landmarks`` everything is learned again.
        """
        if self.basis == "random" or not int(counts.sum()):
            return 0
        late = self.target.is_class  # numbers and sets of labels are mostly new
        needed = refit or self.landmarks.must_change(counts, changed=changed, late=late)
        return self.width_for(int(counts.sum())) if needed else 0

    def width_for(self, labelled: int) -> int:
        """Return m for so many labelled nodes."""
        few = labelled <= PLENTY and self.basis == "landmarks"
        return self.width or (MORE_FEATURES if few else FEATURES)

    def use_landmarks(self, nodes: Tensor, vectors: Tensor, *, counts: Tensor) -> None:
        """Use nodes as landmarks, with the vectors they are counted as, and empty the sums.

        nodes: int64 [n]; vectors: float32 [n, dims]; counts: labelled nodes of each class
        """
        level = level_of(self._cut(vectors)[LENGTH]) if self.measured else None
        rows = with_constant(vectors.numpy(), self.engine.map.places, level)
        self._use_landmarks(nodes, self._cut(torch.from_numpy(rows)), counts, level)

    def _cut(self, vectors: Tensor) -> dict[int, Tensor]:
        places = self.engine.map.places
        return {part: vectors[:, slice(*ends)] for part, ends in places.items()}

    def _use_landmarks(
        self, nodes: Tensor, parts: Parts, counts: Tensor, level: float | None
    ) -> None:
        self.landmarks = LandmarkNodes(nodes, counts.clone())
        views = self._views_for(int(counts.sum()))
        alone = self._words.alone
        features = KernelMap.of(views, parts, level=level, words_alone=alone)
        self.engine.begin(features, classes=self.num_classes)
        self.class_weights = ClassWeights(counts) if self.balanced else None

    def _views_for(self, labelled: int) -> tuple[View, ...]:
        """Return the views that so many labelled nodes are worth."""
        if self.views is not None or labelled <= PLENTY:
            return self.parsed
        nearest = min(self._hops)
        return tuple(view for view in self.parsed if nearest in view.hops)

    def use_landmarks_of(self, other: FusedHead) -> None:
        """Use the landmarks, and the weights of classes, of another head, with empty sums."""
        if isinstance(other.engine.map, KernelMap):
            self.landmarks = other.landmarks
            self.engine.begin(other.engine.map, classes=other.num_classes)
            self.class_weights = deepcopy(other.class_weights)

    def forget(self, vectors: Tensor, labels: Tensor) -> None:
        """Subtract nodes from the sums."""
        self.learn(vectors, labels, -1)
        if self.class_weights is not None:
            self.class_weights.forget(self.engine.sums_[0].counts_)

    def move(self, before: Tensor, after: Tensor, labels: Tensor) -> None:
        """Replace nodes in the sums of the views in which their vectors differ."""
        for rows in row_blocks(len(labels), self.engine.targets):
            counted, weights = self._counted(labels[rows]), self._weights(labels[rows])
            self.engine.exchange(before[rows], after[rows], counted, weights=weights)

    def learn(self, vectors: Tensor, labels: Tensor, sign: int = 1) -> None:
        """Add nodes to the sums.  float32 [n, dims]; int64 [n]"""
        for rows in row_blocks(len(labels), self.engine.targets):
            counted, weights = self._counted(labels[rows]), self._weights(labels[rows])
            self.engine.count(vectors[rows], counted, sign, weights=weights)

    def _counted(self, labels: Tensor) -> Tensor:
        """Return what is counted of nodes with these class numbers."""
        return labels

    def _weights(self, labels: Tensor) -> Tensor | None:
        """Return with what weights nodes of these classes are counted; None for 1."""
        return None if self.class_weights is None else self.class_weights.of(labels)

    def sizes(self) -> Tensor:
        """Return Σ ‖φ_v‖² of every view, see ``RoundingLoss``."""
        return torch.stack([each.gram_.diagonal().sum() for each in self.engine.sums_])

    @property
    def most_left_out(self) -> int:
        """Number of nodes left out: ``LEFT_OUT_NODES``, or fewer for ``LEFT_OUT_SCORES``."""
        scores_per_node = max(self.num_classes, 1) * len(self.parsed)
        return max(min(LEFT_OUT_NODES, LEFT_OUT_SCORES // scores_per_node), 1)

    def leave_out(self, nodes: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Set the learned nodes to be left out in turn."""
        places, weights = self.landmarks.places(nodes), self._weights(labels)
        self._answers = Answers(vectors, self._counted(labels), places, weights=weights)

    def solve(self) -> None:
        """Solve for every V, then for a and b."""
        if not self.engine.solved:
            self.engine.solve(self._answers)

    def scorer(self, has_nodes: Tensor | None = None) -> Scorer:
        """Return φ, a_v V_v and b, which are only ever replaced, not written to.

        has_nodes: which of all classes have nodes, bool [classes]; None for those that were solved
        """
        engine = self.engine
        return Scorer(engine.map, tuple(engine.heads_), engine.fused_.offsets.float(), has_nodes)

    def scores(self, vectors: Tensor) -> Tensor:
        """Return the scores of some nodes, see ``Scorer``.  -> [n, classes]"""
        return torch.from_numpy(self.scorer()(vectors.numpy()))

    @property
    def nbytes(self) -> int:
        """How many bytes it keeps."""
        return self.engine.nbytes + self.engine.map.nbytes

    def state(self) -> dict[str, Tensor]:
        """Return the seed of φ or the landmarks, and what the engine keeps."""
        kept = {"seed": self.seed} | self.engine.state()
        if isinstance(self.engine.map, KernelMap):
            rows = torch.cat(list(self.engine.map.landmarks.values()), dim=1)
            kept |= {"landmarks": rows, "chosen": self.landmarks.counts}
            kept["landmark_nodes"] = self.landmarks.nodes
            if (level := self.engine.map.level) is not None:
                kept["level"] = torch.tensor(level)
        if self.class_weights is not None:
            kept["class_weights"] = self.class_weights.values_
        return kept

    def packed(self, nodes: Packing, classes: Packing) -> dict[str, Tensor]:
        """Return the same for other numbers: landmarks are known by their positions."""
        state = self.state()
        packed = of_classes(state, classes) if self.drops_classes else dict(state)
        if "landmark_nodes" in state:
            packed["landmark_nodes"] = nodes.places[state["landmark_nodes"]]
        return packed

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned, after ``begin``."""
        self.seed = state["seed"]
        self._draw()
        if "landmarks" in state:
            parts = self._cut(state["landmarks"])
            level = float(state["level"]) if "level" in state else None
            self._use_landmarks(state["landmark_nodes"], parts, state["chosen"], level)
        if self.class_weights is not None:
            self.class_weights.values_ = state["class_weights"]
        self.engine.restore(state)
