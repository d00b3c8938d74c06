"""Closed-form heads on several views of a node, with fusion weights fitted on validation nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from evergraph.closed_form import LandmarkFeatures, ViewFeatures
from evergraph.closed_form.byte_budget import KeptNodes, fit_into
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
from evergraph.methods.analytic import WEIGHTS, Weights, class_weights
from evergraph.methods.backbone_learner import WholeTaskLearner
from evergraph.methods.base import methods
from evergraph.methods.refresh import NEEDS_ALL_EDGES
from evergraph.streams import Task
from evergraph.training.learner import part_of

LANDMARK_SHARE = 0.4  # of ``memory``
Seen = tuple[ViewRows, dict[str, tuple[LedgerEntries, Tensor]]]


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
            views and their width, and reduces nodes and probes if there are many classes. The
            backbone's own size by default. A ledger comes on top.
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
            self.backbone = fit_into(parse_size(self.memory), backbone)
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
        self.sharpness_ = torch.zeros(2)  # without and with class codes
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
        """Add the task's training nodes to the statistics, and keep some validation nodes."""
        self.label_space_ = task.label_space
        graph = task.graph
        if graph.bare is None and self.backbone.coded:  # training labels are shown to class codes
            graph = self._shown(graph, task.ids, task.ids[task.train], task.train_labels)
        seen = self.backbone.prepare(graph)
        self._make_room(self.backbone.width_of(seen), task.label_space.num_classes)
        if self.refresh == "embeddings":
            learned = self._learned_ids()
            if not bool(torch.isin(learned, task.ids).all()):  # they could not be counted again
                raise ConfigurationError(NEEDS_ALL_EDGES)
            if len(learned) and not self.backbone.on_landmarks:
                self._recount(seen, task.ids)
        if not self.engine_.sums_ and not self.backbone.on_landmarks:
            self.engine_.begin(self.backbone.expansion())
        sized = self.weights == "class-sizes" and self.objective == "balanced"
        weights = class_weights(task, sized=sized)
        for part in PARTS:
            nodes, labels = getattr(task, part), getattr(task, f"{part}_labels")
            entries = LedgerEntries(task.ids[nodes], labels, weights[labels])
            if self.ledger:
                self.ledger_.enter(entries.ids, entries.labels, entries.weights, part)
            if not self.backbone.on_landmarks:
                self._take_in(part, entries, seen.of(nodes))
        self.engine_.solved = False
        if self.backbone.on_landmarks:  # chosen among all nodes before any is counted
            self._learn_anew(seen, task.ids)

    def _shown(self, graph: Graph, ids: Tensor, known: Tensor, classes: Tensor) -> Graph:
        """Return a graph that shows the classes of those known nodes that it holds."""
        labels, there = torch.full((graph.num_nodes,), UNLABELLED), torch.isin(known, ids)
        names = torch.tensor(self.classes)[classes[there]]
        labels[torch.searchsorted(ids, known[there])] = names
        return graph.structure.showing(labels)

    def _learned_ids(self) -> Tensor:
        return torch.cat([self.ledger_.part(part).ids for part in PARTS])

    def _take_in(self, part: str, entries: LedgerEntries, rows: ViewRows) -> None:
        """Add training nodes to the statistics; consider validation nodes as probes."""
        if part == "train":
            self._count(entries, rows)
        rows = self._with_codes(rows)
        self._limit(rows.dims)
        sample = self.embeddings_ if part == "train" else self.probes_
        sample.keep(rows, labels=entries.labels, nodes=entries.ids)

    def _learn_anew(self, seen: ViewRows, ids: Tensor) -> None:
        """Choose landmarks, count and solve; the sums are not needed afterwards."""
        self._recount(seen, ids)
        train = self.ledger_.part("train")
        others = (~torch.isin(ids, self._learned_ids())).nonzero().flatten()
        if self.self_training and len(self.probes_) and len(others) >= PLENTY * len(train):
            self.solve()
            before = self.error_
            scores = self.backbone.eval()(seen, others.to(seen.hops.device))
            self._recount(seen, ids, guessed(scores, ids[others], train))
            self.solve()
            if self.error_ >= before:  # confident predictions do not help
                self._recount(seen, ids)
        self.solve()
        self.engine_ = self._new_engine()
        self.probes_.clear()

    def _choose_landmarks(self, seen: ViewRows, ids: Tensor, guesses: LedgerEntries) -> None:
        """Choose landmarks among all learned nodes, before any of them is counted."""
        assert isinstance(self.backbone, LandmarkFeatures)
        seen, entries = self._with_codes(seen), self.ledger_.part("train")
        if self.memory is not None:
            dims = 2 * (seen.dims + self.backbone.code_dims * self.backbone.coded)
            most = max(int(LANDMARK_SHARE * parse_size(self.memory)) // dims, 1)
            self.landmarks_.most = min(self.backbone.width, most)
        rows = seen.of(torch.searchsorted(ids, entries.ids))
        self.landmarks_.clear()
        self.landmarks_.keep(rows, labels=entries.labels, nodes=entries.ids)
        others = seen.of(torch.searchsorted(ids, guesses.ids))
        self.landmarks_.fill(others, labels=guesses.labels, nodes=guesses.ids)
        columns = column_weights(rows, entries.labels, dims=self._dims)
        self.backbone.stand_on(self.landmarks_.rows_, columns)

    def _limit(self, hop_dims: int) -> None:
        """Set how many nodes of a class may be kept."""
        kept = KeptNodes.within(
            None if self.memory is None else parse_size(self.memory),
            self.backbone,
            classes=self._check_learned().num_classes,
            dims=hop_dims + self.backbone.code_dims * self.backbone.coded,
            landmarks=len(self.landmarks_),
        )
        self.embeddings_.per_class = min(self.budget, kept.embeddings)
        self.probes_.per_class = min(self.probes, kept.probes)

    def _count(self, entries: LedgerEntries, rows: ViewRows, *, sign: int = 1) -> None:
        labels, weights = entries.labels.to(self.device), entries.weights.to(self.device)
        self.engine_.count(self._with_codes(rows), labels, sign, weights=weights)

    def _with_codes(self, rows: ViewRows) -> ViewRows:
        """Return rows that every view can use: without labels nearby, the code is zeros."""
        if rows.codes is not None or not self.backbone.coded:
            return rows
        codes = rows.hops.new_zeros(1, self.backbone.code_dims)
        return replace(rows, codes=codes.expand(len(rows.hops), -1))

    def _recount(self, seen: ViewRows, ids: Tensor, guesses: LedgerEntries | None = None) -> None:
        """Count all learned nodes and the guesses as they are in a graph that holds them."""
        train, held_back = (self.ledger_.part(part) for part in PARTS)
        guesses = train.take(torch.arange(0)) if guesses is None else guesses
        if self.backbone.on_landmarks:
            self._choose_landmarks(seen, ids, guesses)
        self.engine_.begin(self.backbone.expansion())
        self.probes_.clear()
        self.embeddings_.clear()
        for part, entries in (("train", train), ("train", guesses), ("validation", held_back)):
            self._take_in(part, entries, seen.of(torch.searchsorted(ids, entries.ids)))

    def solve(self) -> None:
        """Set heads and mixture from statistics and probes, if these have changed."""
        engine, backbone = self.engine_, self.backbone
        if engine.solved:
            return
        space, labels = self._check_learned(), self.probes_.labels_
        engine.grow(space.num_classes)
        allowed = space.allowed(space.task_of(labels))
        answers = Answers(self._with_codes(self.probes_.rows_), labels, allowed=allowed)
        solved = engine.solve(answers)
        assert solved is not None
        plain = [place for place, view in enumerate(backbone.parsed) if not view.codes]
        mixtures = [engine.mixture(solved[1], answers, plain).weights, engine.fused_.weights]
        bare, weights = self.embeddings_.solve(
            backbone.kernels, engine, answers, solved[1], mixtures
        )
        backbone.memory_heads = self.embeddings_.heads
        backbone.set_heads(solved[0], weights, bare=bare)
        self.sharpness_ = self.embeddings_.sharpness + torch.stack([bare, weights]).sum(1).cpu()
        self.error_ = engine.loss(solved[1], answers)

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
        before = self._seen(graph, known_as)
        learned = self._learned_ids()
        self.ledger_.strike(ids)
        after = self._seen(graph, known_as)
        if bool(torch.isin(learned, known_as).all()):
            again = self._learn_anew if self.backbone.on_landmarks else self._recount
            again(after[0], known_as)
        elif self.backbone.on_landmarks:
            raise ConfigurationError(
                "graph must hold all learned nodes, so that they can be counted on new landmarks"
            )
        else:
            entries, places = before[1]["train"]  # with the rows that they had
            self._count(entries, before[0].of(places), sign=-1)
            self.embeddings_.drop(entries.ids)
            self.probes_.drop(before[1]["validation"][0].ids)
            for part, (entries, places) in after[1].items():
                self._take_in(part, entries, after[0].of(places))
            self.engine_.solved = False

    def _seen(self, graph: Graph, ids: Tensor) -> Seen:
        """Return the views of a graph, and the learned nodes in it with their positions."""
        train = self.ledger_.part("train")
        seen = self.backbone.prepare(self._shown(graph, ids, train.ids, train.labels))
        held = {}
        for part in PARTS:
            entries = self.ledger_.part(part)
            entries = entries.take(torch.isin(entries.ids, ids))
            held[part] = entries, torch.searchsorted(ids, entries.ids)
        return seen, held

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
        self._limit(max(self.embeddings_.rows_.dims, self.probes_.rows_.dims))
        self.embeddings_.copy_from(other.embeddings_, classes)
        self.probes_.copy_from(other.probes_, classes)

    def logits(self, graph: Graph, nodes: Tensor) -> Tensor:
        self.solve()
        return super().logits(graph, nodes)

    def novelty(self, graph: Graph, nodes: Tensor, *, logits: Tensor | None = None) -> Tensor:
        """Return 1 minus the best score, since scores here estimate probabilities."""
        self._check_learned()
        scores = self.logits(graph, nodes) if logits is None else logits
        sharpness = self.sharpness_[int(self.backbone.shows_codes(graph))] or self.sharpness_[1]
        return 1 - scores.amax(dim=1) / float(sharpness)

    @property
    def recomputed(self) -> tuple[int, int] | None:
        """With refresh, all learned nodes; None without."""
        if self.refresh == "none":
            return None
        known = len(self._learned_ids())
        return known, known

    @property
    def usage(self) -> MemoryUsage:
        """Size of statistics, landmarks, embeddings, probes and ledger."""
        samples = self.probes_, self.landmarks_, self.embeddings_
        size = sum(kept.nbytes for kept in (*samples, self.ledger_))
        kept = MemoryUsage(samples=sum(each.values for each in samples), bytes=size)
        return sum((statistics.usage for statistics in self.engine_.sums_), kept)

    def state(self) -> dict[str, Tensor]:
        self.solve()
        kept = {"ledger": self.ledger_.state(), "probes": self.probes_.state()}
        if isinstance(self.backbone, LandmarkFeatures):
            kept["landmarks"] = self.landmarks_.state() | {"columns": self.backbone.columns}
        else:
            kept["embeddings"] = self.embeddings_.state()
        # There are no sums on landmarks.
        for view, statistics in zip(self.backbone.views, self.engine_.sums_, strict=False):
            kept[f"statistics:{view}"] = statistics.state()
        named = {f"{part}/{n}": v.cpu() for part, values in kept.items() for n, v in values.items()}
        return super().state() | named | {"sharpness": self.sharpness_}

    def restore(self, state: dict[str, Tensor], label_space: LabelSpace) -> None:
        super().restore(state, label_space)
        if isinstance(self.backbone, LandmarkFeatures):
            known = part_of(state, "landmarks/")
            self.landmarks_.restore(known)
            self.backbone.stand_on(self.landmarks_.rows_, known["columns"])
        elif self.backbone.begun:
            self.engine_.begin(self.backbone.expansion())
            known = part_of(state, "embeddings/")
            self.backbone.memory_heads = self.embeddings_.restored(known, self.backbone.kernels)
        for view, statistics in zip(self.backbone.views, self.engine_.sums_, strict=False):
            statistics.restore(part_of(state, f"statistics:{view}/"))
        self.probes_.restore(part_of(state, "probes/"))
        self.ledger_.restore(part_of(state, "ledger/"))
        self.sharpness_ = state["sharpness"]
        self.engine_.solved = True
