"""Closed-form heads on several views of a node, with fusion weights fitted on validation nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evergraph.closed_form import LandmarkFeatures, ViewFeatures
from evergraph.closed_form.engine import ViewEngine
from evergraph.closed_form.fusing import Answers
from evergraph.closed_form.kept_nodes import (
    PARTS,
    PLENTY,
    LearnedNodes,
    LedgerEntries,
    NodeSample,
    guessed,
    ids_holding,
    nodes_per_class,
)
from evergraph.closed_form.landmarks import Landmarks, column_weights
from evergraph.closed_form.memory_heads import NodeMemory
from evergraph.closed_form.views import ViewRows
from evergraph.core.component import Made, choice, integer
from evergraph.core.errors import ConfigurationError
from evergraph.core.label_space import LabelSpace
from evergraph.core.sizes import parse_size
from evergraph.graphs import UNLABELLED, Graph
from evergraph.memory import MemoryUsage
from evergraph.methods.base import WEIGHTS, Weights, WholeTaskLearner, class_weights, methods
from evergraph.methods.refresh import NEEDS_ALL_EDGES
from evergraph.streams import Task
from evergraph.training.learner import part_of

LANDMARK_SHARE = 0.4  # of ``memory``


class GraphRows(NamedTuple):
    """The rows of a graph for all views."""

    rows: ViewRows  # of all of its nodes
    ids: Tensor  # their ids in the dataset, ascending.  int64 [nodes]

    def of(self, entries: LedgerEntries) -> ViewRows:
        """Return the rows of some of its nodes."""
        return self.rows.of(torch.searchsorted(self.ids, entries.ids))


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class Auto(WholeTaskLearner):
    """Ridge regression on several views of a node, with fusion weights fitted on validation nodes.

    Each view v has its own head V_v = (A_v + λ_v P_v)⁻¹ M_v on features φ_v of the view, from
    statistics of all training nodes so far (see ``ViewEngine``). If the graph stays available
    (``refresh``), the features are kernel values to landmarks (see ``LandmarkFeatures``), and all
    nodes are counted again on the current landmarks. If old graphs are gone, the features are
    random ones that never change (see ``ViewFeatures``), and some training nodes of every class are
    kept besides, a memory of embeddings with heads of its own (see ``NodeMemory``). The scores are
    combined as softmax(Σ_v a_v V_vᵀφ_v), with weights a fitted by log-loss on some validation nodes
    of every class, the probes. No view is dropped: one that does not help now may help later.

    Everything is a function of sets and sums of the nodes seen. So the order of tasks does not
    matter, and ``forget`` removes a node exactly, including as a landmark. With random features,
    ``merge`` gives the learner that would have seen the data of both. Only the place of a forgotten
    node among those kept, or the probes, is filled from the graph given to ``forget``: exact if
    that graph holds all nodes of its class.

    Class codes use the labels of nearby training nodes. On a graph without labels, only the other
    views predict, with weights of their own.

    Args:
        memory: bytes for statistics, kept nodes and probes, such as ``50MB``. It sets the number of
            views and their width, and of nodes and probes if there are many classes. By default
            the backbone's own size. A ledger comes on top.
        probes: maximum number of validation nodes kept per class.
        budget: maximum number of training nodes kept per class where old graphs are gone, drawn
            uniformly; at most 1,024 in all, or 2,048 if features are wide.
        weights: weights of training nodes, ``class-sizes`` or ``equal``, see ``analytic``.
        objective: the accuracy that heads, penalties and mixture are fitted to: ``balanced``, the
            mean over classes, or ``plain``, over all nodes.
        ledger: whether to record the learned nodes, see ``analytic``.
        refresh: ``none``: earlier nodes keep their old features. ``embeddings``: the graph is still
            available, and all learned nodes are counted again as they are in it now.
        self_training: whether to learn from the most certain predictions too (see ``certain``) when
            few nodes are labelled, if this lowers the loss on the probes. Landmarks only.
        backbone: the views and their width; ``LandmarkFeatures`` with refresh, else
            ``ViewFeatures``, by default.
        trainer, generator: see ``BackboneLearner``; only the device is used.
    """

    name = "auto"
    default_backbone = "view-features"
    needs = ViewFeatures, "fuses heads on several views: use backbone 'landmark-features'"

    backbone: Made[ViewFeatures] = Made()
    memory: str | int | None = None
    probes: int = integer(100, least=1)
    budget: int = integer(400, least=0)
    weights: Weights = choice("class-sizes", WEIGHTS)
    objective: str = choice("balanced", ("balanced", "plain"))
    ledger: bool = False
    refresh: str = choice("none", ("none", "embeddings"))
    self_training: bool = True

    def __post_init__(self) -> None:
        backbone = self.backbone or self._parameter_default("backbone")
        if self.memory is not None and isinstance(backbone, ViewFeatures):
            self.backbone = backbone.within(parse_size(self.memory))
        super().__post_init__()
        if self.backbone.on_landmarks and self.refresh != "embeddings":
            raise ConfigurationError(
                "landmark-features needs refresh='embeddings', to count old nodes on new "
                f"landmarks, not {self.refresh!r}: use view-features without"
            )
        self.ledger = self.ledger or self.refresh == "embeddings"
        self.landmarks_ = Landmarks(self.backbone.width)
        self.engine_ = self._new_engine()
        self.probes_ = NodeSample(self.probes)
        self.embeddings_ = NodeMemory(self.budget)
        self.ledger_ = LearnedNodes()
        self.error_ = math.inf  # on the probes, see ``mixture_loss``

    def _new_engine(self) -> ViewEngine:
        return ViewEngine(
            balanced=self.objective == "balanced",
            precise=self.backbone.on_landmarks,
            resources=self.resources,
        )

    @classmethod
    def backbone_by_default(cls, **parameters: Any) -> str:
        on_landmarks = parameters.get("refresh", "none") == "embeddings"
        return LandmarkFeatures.name if on_landmarks else cls.default_backbone

    @classmethod
    def suited_to(cls, *, edges: str) -> dict[str, Any]:
        """Refresh if each task comes with the graph of everything so far."""
        return {"refresh": "embeddings"} if edges == "all" else {}

    @torch.no_grad()
    def fit_task(self, task: Task) -> None:
        self.label_space_ = task.label_space
        graph = task.graph
        if graph.bare is None and self.backbone.coded:  # training labels are shown to class codes
            graph = self._shown(graph, task.ids, task.ids[task.train], task.train_labels)
        graph_rows = GraphRows(self.backbone.prepare(graph), task.ids)
        self._make_room(self.backbone.width_of(graph_rows.rows), task.label_space.num_classes)
        if self.refresh == "none":
            if not self.engine_.sums_:
                self.engine_.begin(self.backbone.expansion())
        elif not bool(torch.isin(self.ledger_.ids, task.ids).all()):
            raise ConfigurationError(NEEDS_ALL_EDGES)
        elif not self.backbone.on_landmarks:
            self._count_recorded(graph_rows)  # earlier nodes, as they are now
        sized = self.weights == "class-sizes" and self.objective == "balanced"
        weights = class_weights(task, sized=sized)
        for part in PARTS:
            labels = getattr(task, f"{part}_labels")
            entries = LedgerEntries(task.ids[getattr(task, part)], labels, weights[labels])
            if self.ledger:
                self.ledger_.enter(entries, part)
            if not self.backbone.on_landmarks:
                self._add_part(part, entries, graph_rows)
        if self.backbone.on_landmarks:
            self._learn_on_landmarks(graph_rows)

    def _shown(self, graph: Graph, ids: Tensor, known: Tensor, classes: Tensor) -> Graph:
        """Return a graph that shows the classes of those known nodes that it holds."""
        labels = torch.full((graph.num_nodes,), UNLABELLED)
        present = torch.isin(known, ids)
        names = torch.tensor(self.classes)[classes[present]]
        labels[torch.searchsorted(ids, known[present])] = names
        return graph.structure.showing(labels)

    def _learn_on_landmarks(self, graph_rows: GraphRows) -> None:
        """Choose landmarks, count all recorded nodes on them, and solve for the heads.

        Landmarks are chosen anew for every graph, so the sums are of no use afterwards.
        """
        self._count_recorded(graph_rows)
        train = self.ledger_.part("train")
        others = (~torch.isin(graph_rows.ids, self.ledger_.ids)).nonzero().flatten()
        if self.self_training and len(self.probes_) and len(others) >= PLENTY * len(train):
            self.solve()
            before = self.error_
            scores = self.backbone.eval()(graph_rows.rows, others.to(graph_rows.rows.device))
            self._count_recorded(graph_rows, guessed(scores, graph_rows.ids[others], train))
            self.solve()
            if self.error_ >= before:  # confident predictions do not help
                self._count_recorded(graph_rows)
        self.solve()
        self.engine_ = self._new_engine()
        self.probes_.clear()

    def _count_recorded(self, graph_rows: GraphRows, guesses: LedgerEntries | None = None) -> None:
        """Count all recorded nodes, and guesses, as they are in a graph that holds them."""
        train, held_back = (self.ledger_.part(part) for part in PARTS)
        guesses = train.take(torch.arange(0)) if guesses is None else guesses
        if self.backbone.on_landmarks:  # chosen before any node is counted
            self._choose_landmarks(graph_rows, train, guesses)
        self.engine_.begin(self.backbone.expansion())
        self.probes_.clear()
        self.embeddings_.clear()
        self._add_part("train", train, graph_rows)
        self._add_part("train", guesses, graph_rows)
        self._add_part("validation", held_back, graph_rows)

    def _choose_landmarks(
        self, graph_rows: GraphRows, train: LedgerEntries, guesses: LedgerEntries
    ) -> None:
        """Choose landmarks among training nodes, then among guesses if there is room."""
        assert isinstance(self.backbone, LandmarkFeatures)
        rows = self.backbone.with_codes(graph_rows.of(train))
        guessed_rows = self.backbone.with_codes(graph_rows.of(guesses))
        if self.memory is not None:
            most = int(LANDMARK_SHARE * parse_size(self.memory)) // (2 * self._dims_of(rows))
            self.landmarks_.most = min(self.backbone.width, max(most, 1))
        self.landmarks_.clear()
        self.landmarks_.keep(rows, labels=train.labels, nodes=train.ids)
        self.landmarks_.fill(guessed_rows, labels=guesses.labels, nodes=guesses.ids)
        columns = column_weights(rows, train.labels, dims=self._dims)
        self.backbone.use_landmarks(self.landmarks_.rows_, columns)

    def _add_part(self, part: str, entries: LedgerEntries, graph_rows: GraphRows) -> None:
        """Count training nodes and keep some; keep some validation nodes as probes."""
        rows = self.backbone.with_codes(graph_rows.of(entries))
        if part == "train":
            self._count(entries, rows)
        self._limit(self._dims_of(rows))
        sample = self.embeddings_ if part == "train" else self.probes_
        sample.keep(rows, labels=entries.labels, nodes=entries.ids)
        self.engine_.solved = False

    def _count(self, entries: LedgerEntries, rows: ViewRows, *, sign: int = 1) -> None:
        labels, weights = entries.labels.to(self.device), entries.weights.to(self.device)
        self.engine_.count(rows, labels, sign, weights=weights)

    def _limit(self, dims: int) -> None:
        """Set how many nodes of a class may be kept.  dims: of a node, see ``_dims_of``"""
        embeddings, probes = nodes_per_class(
            None if self.memory is None else parse_size(self.memory),
            classes=self._check_learned().num_classes,
            dims=dims,
            views=len(self.backbone.parsed),
            width=self.backbone.width,
            landmarks=len(self.landmarks_) if self.backbone.on_landmarks else None,
        )
        self.embeddings_.per_class = min(self.budget, embeddings)
        self.probes_.per_class = min(self.probes, probes)

    def _dims_of(self, rows: ViewRows) -> int:
        """Return how many values of two bytes a node has, with class codes if a view has them."""
        return rows.dims + self.backbone.code_dims * self.backbone.coded

    def solve(self) -> None:
        """Set heads and mixture from statistics and probes, if these have changed."""
        engine, backbone = self.engine_, self.backbone
        if engine.solved:
            return
        space, labels = self._check_learned(), self.probes_.labels_
        engine.grow(space.num_classes)
        allowed = space.allowed(space.task_of(labels))
        answers = Answers(self.backbone.with_codes(self.probes_.rows_), labels, allowed=allowed)
        heads, scores = engine.solve(answers)
        uncoded = [index for index, view in enumerate(backbone.parsed) if not view.codes]
        mixtures = [engine.mixture(scores, answers, uncoded).weights, engine.fused_.weights]
        mixture = self.embeddings_.solve(backbone.kernels, engine, answers, scores, mixtures)
        backbone.memory_heads = self.embeddings_.heads
        backbone.set_heads(heads, mixture)
        self.error_ = engine.loss(scores, answers)

    @torch.no_grad()
    def forget(self, ids: Tensor, graph: Graph, *, known_as: Tensor | None = None) -> None:
        """Remove nodes from everything learned, as if they had never been labelled.

        Nodes nearby were counted with these labels, and are counted again without them. ids: the
        nodes to forget; graph: the graph in which they and all learned nodes around them were last
        embedded; known_as: the id of each node of ``graph``, ascending, as in ``Task.ids``;
        0, 1, 2, ... by default.
        """
        if not self.ledger:
            raise ConfigurationError("forget() needs ledger=True")
        self._check_learned()
        known_as = ids_holding(ids, graph, known_as)
        if bool(torch.isin(self.ledger_.ids, known_as).all()):
            self.ledger_.strike(ids)
            learn = self._learn_on_landmarks if self.backbone.on_landmarks else self._count_recorded
            learn(self._rows_of(graph, known_as))
            return
        if self.backbone.on_landmarks:
            raise ConfigurationError(
                "graph must hold all learned nodes, so that they can be counted on new landmarks"
            )
        # All nodes of this graph are removed as they were counted, and added as they are now.
        graph_rows, learned = self._rows_of(graph, known_as), self.ledger_.among(known_as)
        train = learned["train"]
        self._count(train, self.backbone.with_codes(graph_rows.of(train)), sign=-1)
        self.embeddings_.drop(train.ids)
        self.probes_.drop(learned["validation"].ids)
        self.ledger_.strike(ids)
        graph_rows = self._rows_of(graph, known_as)
        for part, entries in self.ledger_.among(known_as).items():
            self._add_part(part, entries, graph_rows)

    def _rows_of(self, graph: Graph, ids: Tensor) -> GraphRows:
        """Return the rows of a graph that shows the classes of recorded training nodes."""
        train = self.ledger_.part("train")
        return GraphRows(
            self.backbone.prepare(self._shown(graph, ids, train.ids, train.labels)), ids
        )

    @torch.no_grad()
    def merge(self, other: Auto, *, classes: Tensor | None = None) -> None:
        """Add everything that another learner has learned, without its data.

        Both must compute the same random features, with the same views, width and seed.
        classes: this learner's class for each class of the other; the same numbers by default.
        """
        space, theirs = self._check_learned(), other._check_learned()
        if self.backbone.on_landmarks or not self.backbone.expands_like(other.backbone):
            raise ConfigurationError(
                "merge() needs learners with the same random features: give both backbone "
                "view-features, the same views, width and seed"
            )
        self.engine_.merge(other.engine_, classes)
        total = self.engine_.num_classes
        self.label_space_ = space.joined(theirs, classes, total=total)
        self._make_room(self._dims, self.label_space_.num_classes)
        self.ledger_.copy_from(other.ledger_, classes)
        self._limit(max(self._dims_of(nodes.rows_) for nodes in (self.embeddings_, self.probes_)))
        self.embeddings_.copy_from(other.embeddings_, classes)
        self.probes_.copy_from(other.probes_, classes)

    def logits(self, graph: Graph, nodes: Tensor) -> Tensor:
        self.solve()
        return super().logits(graph, nodes)

    def novelty(self, graph: Graph, nodes: Tensor, *, logits: Tensor | None = None) -> Tensor:
        """Return 1 minus the best score, since scores here estimate probabilities."""
        self._check_learned()
        scores = self.logits(graph, nodes) if logits is None else logits
        bare, coded = self.backbone.sharpness.tolist()
        sharpness: float = coded if self.backbone.shows_codes(graph) else bare or coded
        return 1 - scores.amax(dim=1) / sharpness

    @property
    def recomputed(self) -> tuple[int, int] | None:
        if self.refresh == "none":
            return None
        recorded = len(self.ledger_.ids)
        return recorded, recorded

    @property
    def usage(self) -> MemoryUsage:
        samples = self.probes_, self.landmarks_, self.embeddings_
        nbytes = sum(part.nbytes for part in (*samples, self.ledger_))
        of_nodes = MemoryUsage(samples=sum(sample.values for sample in samples), bytes=nbytes)
        return sum((statistics.usage for statistics in self.engine_.sums_), of_nodes)

    @property
    def parts(self) -> dict[str, Any]:
        parts = super().parts | {"ledger": self.ledger_, "probes": self.probes_}
        if self.backbone.on_landmarks:
            return parts | {"landmarks": self.landmarks_}
        by_view = zip(self.backbone.views, self.engine_.sums_, strict=False)
        return parts | {f"statistics:{view}": sums for view, sums in by_view}

    def state(self) -> dict[str, Tensor]:
        self.solve()
        state = super().state()
        if isinstance(self.backbone, LandmarkFeatures):
            return state | {"columns": self.backbone.columns.cpu()}
        embeddings = self.embeddings_.state().items()
        return state | {f"embeddings.{name}": value.cpu() for name, value in embeddings}

    def restore(self, state: dict[str, Tensor], label_space: LabelSpace) -> None:
        super().restore(state, label_space)
        if isinstance(self.backbone, LandmarkFeatures):
            self.backbone.use_landmarks(self.landmarks_.rows_, state["columns"])
        elif self.backbone.begun:
            self.engine_.begin(self.backbone.expansion())
            for view, statistics in zip(self.backbone.views, self.engine_.sums_, strict=True):
                statistics.restore(part_of(state, f"statistics:{view}."))
            memory = part_of(state, "embeddings.")
            self.backbone.memory_heads = self.embeddings_.restored(memory, self.backbone.kernels)
        self.engine_.solved = True
