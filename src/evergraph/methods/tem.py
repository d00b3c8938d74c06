"""PDGNN with Topology-aware Embedding Memory, the paper's method; FGN is its form for samples."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from evergraph.core.component import Made, choice, integer, number
from evergraph.core.errors import ConfigurationError
from evergraph.graphs.csr import stacked
from evergraph.memory import Candidates, EmbeddingMemory
from evergraph.memory.samplers import UniformSampler
from evergraph.memory.samplers.condensing import CondensingSampler
from evergraph.methods.base import MemoryLearner, methods
from evergraph.methods.examples import WEIGHTINGS, Examples, Weighting, make_examples
from evergraph.methods.refresh import REFRESHES, GrowingEmbeddings, Refresh, drifted, seen_drift
from evergraph.nn import PDGNN, Backbone
from evergraph.nn.feature_graph import FeatureGraph
from evergraph.streams import Task
from evergraph.topology.rowwise import unit_rows

logger = logging.getLogger(__name__)

_NO_NODES = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class TEM(MemoryLearner):
    """Replays stored topology-aware embeddings with each task (Zhang et al., KDD 2024).

    L = Σ_{v∈V_τ} l(f_out(e_v), y_v) + Σ_{e_w∈TEM} l(f_out(e_w), y_w), each term weighted by
    1/n_c of its class. f_topo has no trained parameters, so a stored vector always represents its
    whole ego-subnetwork: it gives the same gradient.

    Args:
        memory: the sampler and the budget of stored embeddings.
        weighting: ``class-balanced``, ``plain`` with λ = ``replay_weight``,
            ``current-balanced`` (the released code's in task-IL), or ``logit-adjusted`` (no
            weights; the log of each class's share is added to its score in the loss).
        replay_weight: λ of the plain weighting.
        store: ``after`` a task (the paper), ``before`` it (the released code: current nodes
            that are stored then count twice), or ``only``: before it, training on the memory
            alone, so that every class has as many examples (CaT's training in memory).
        pseudo_labels: least predicted probability for an unlabelled node of the task to be stored,
            or condensed, with its predicted class; None stores no such node. The learner is trained
            on the task first; with ``only`` it is then trained again on a memory that includes
            these nodes (PUMA). Features of test nodes are used, as in any embedding of their
            neighbours; labels of test or validation nodes never are.
        restart: whether the model is drawn again and trained from scratch with every task (PUMA),
            so that all tasks are trained equally long.
        arrivals: number of batches in which a task's nodes reach the memory.
        refresh: ``none``: stored embeddings stay unchanged. ``embeddings``: the graph is still
            available (``edges="all"``); stored embeddings whose ego-subnetwork has changed are
            recomputed. ``corrected``: no old node is read; stored embeddings are moved by the
            drift observed in the new nodes' ego-subnetworks (see ``drifted``), an estimate.
    """

    name = "tem"
    default_backbone = "pdgnn"
    follows_objective = False  # it has ``weighting``
    needs: ClassVar[tuple[type[Backbone], str]] = (
        PDGNN,
        "stores embeddings, which stay valid only if the aggregation has no trained "
        "parameters: use 'pdgnn' or 'sgc'",
    )

    backbone: Made[PDGNN] = Made()
    memory: Made[EmbeddingMemory] = Made()
    weighting: Weighting = choice("class-balanced", WEIGHTINGS)
    replay_weight: float = number(1.0, least=0.0)
    store: Literal["after", "before", "only"] = choice("after", ("after", "before", "only"))
    pseudo_labels: float | None = number(None, least=0.0, most=1.0)
    restart: bool = False
    arrivals: int = integer(1, least=1)
    refresh: Refresh = choice("none", REFRESHES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pseudo_labels is not None and self.store == "before":
            raise ConfigurationError(
                "pseudo_labels needs a learner trained on the task: store must be 'after' or "
                "'only', not 'before'"
            )
        if self.store == "only" and self.memory.budget == 0:
            raise ConfigurationError(
                "budget must be above 0 with store 'only', which trains on the memory alone, not 0"
            )
        if self.refresh == "embeddings" and isinstance(self.memory.sampler, CondensingSampler):
            raise ConfigurationError(
                "refresh='embeddings' recomputes the embeddings of stored nodes, but sampler "
                f"{self.memory.sampler.name!r} stores synthetic vectors: use another sampler"
            )
        self.growing_ = GrowingEmbeddings()
        self._pseudo_labelled = _NO_NODES

    @classmethod
    def make_memory(cls, **options: Any) -> EmbeddingMemory:
        return EmbeddingMemory(**options)

    def fit_task(self, task: Task) -> None:
        """Learn one task; with pseudo-labels and store ``only``, a second time with these."""
        before = self.memory.state()
        super().fit_task(task)
        if self.pseudo_labels is not None and self.store == "only":
            self._pseudo_labelled = self._pseudo_label(task)
            self.memory.restore(before)
            super().fit_task(task)
            self._pseudo_labelled = _NO_NODES

    @torch.no_grad()
    def _pseudo_label(self, task: Task) -> tuple[Tensor, Tensor]:
        """Return positions and predicted classes of confidently classified new nodes."""
        assert self.pseudo_labels is not None
        unlabelled = task.own[~torch.isin(task.own, task.train)]
        classes = task.train_labels.unique()
        tasks = task.label_space.task_of(classes[:1]).expand(len(unlabelled))
        scores = self._allowed(self.logits(task.graph, unlabelled), tasks)
        rows, predicted = confident(scores, classes, least=self.pseudo_labels)
        logger.info(
            "task %d: %d of %d nodes pseudo-labelled", task.index, len(rows), len(unlabelled)
        )
        return unlabelled[rows.cpu()], predicted.cpu()

    def begin_task(self, task: Task) -> int:
        """Update the stored embeddings to the current graph, then prepare as usual."""
        if self.restart:
            self.backbone.head = None
            self.trainer.restore({})  # Adam's moments belong to other weights
        if self.refresh == "embeddings":
            update = self.growing_.update(task, self.backbone)
            if update is not None and len(self.memory):
                growth, _ = update
                rows = torch.searchsorted(task.ids, self.memory.nodes_)
                self.memory.embeddings_ = self.backbone.taken(growth.embeddings, rows)
        elif self.refresh == "corrected":  # by the drift of the old nodes in sight
            drift = seen_drift(task, self.backbone)
            if drift is not None and len(self.memory):
                moved = drifted(self.memory.embeddings_.to(self.device), drift)
                unit = self.backbone.scaling == "unit"
                self.memory.embeddings_ = unit_rows(moved, together=True) if unit else moved
        return super().begin_task(task)

    def examples(self, task: Task) -> Examples:
        if self.store != "after":
            self._remember(task)
        # The memory alone may be what is trained on.
        nodes, labels = task.train, task.train_labels
        if self.store == "only":
            nodes, labels = nodes[:0], labels[:0]
        current, targets = self._embedded(task, nodes), labels.to(self.device)
        stored = self.memory.embeddings_.reshape(-1, current.shape[1]).to(self.device)
        return make_examples(
            stacked(current, stored, resources=self.resources),
            None,
            torch.cat([targets, self.memory.labels_.to(self.device)]),
            label_space=task.label_space,
            stored=len(stored),
            weighting=self.weighting,
            replay_weight=self.replay_weight,
        )

    def end_task(self, task: Task) -> None:
        super().end_task(task)
        if self.store == "after":
            if self.pseudo_labels is not None:
                self._pseudo_labelled = self._pseudo_label(task)
            self._remember(task)
            self._pseudo_labelled = _NO_NODES

    def _embedded(self, task: Task, nodes: Tensor) -> Tensor:
        return self.backbone.taken(self.backbone.prepare(task.graph), nodes)

    def _remember(self, task: Task) -> None:
        pseudo_labelled, classes = self._pseudo_labelled
        nodes = torch.cat([task.train, pseudo_labelled])
        targets = torch.cat([task.train_labels, classes]).to(self.device)
        current, hops = self._embedded(task, nodes), self.backbone.hops
        residuals = self.residuals(current, targets)
        candidates = Candidates(
            task.graph,
            nodes,
            targets.cpu(),
            current,
            hops,
            residuals,
            task.ids[nodes],
            self.resources,
        )
        order = torch.arange(len(candidates))
        if self.arrivals > 1:
            order = torch.randperm(len(candidates), generator=self.generator)
        for rows in order.tensor_split(self.arrivals):
            self.memory.store(candidates.take(rows), task.met_sizes, generator=self.generator)
        self.memory.measure(task.graph, task.ids, task.own, hops=hops)

    @property
    def recomputed(self) -> tuple[int, int] | None:
        return self.growing_.cost if self.refresh == "embeddings" else None

    @property
    def coverage_ratio(self) -> float | None:
        return self.memory.coverage_ratio

    @property
    def parts(self) -> dict[str, Any]:
        return super().parts | {"refreshed": self.growing_}


def confident(scores: Tensor, classes: Tensor, *, least: float) -> tuple[Tensor, Tensor]:
    """Return the rows confidently predicted as one of some classes, and these classes.

    Row i with p = softmax(s_i) is taken if max p >= ``least`` and argmax p is among ``classes``:
    a node that looks like a class of another task is no example of this one's.

    scores: [rows, all classes], -inf for a class that is not allowed; classes: int64 [some]
    -> int64 [taken], int64 [taken]

    Odds of 9 to 1 are 0.9, of 4 to 1 are 0.8; the last row belongs to a class outside ``classes``.

    >>> odds = torch.tensor([[9.0, 1.0, 0.0], [1.0, 4.0, 0.0], [0.0, 0.0, 1.0]])
    >>> confident(odds.log(), torch.tensor([0, 1]), least=0.85)
    (tensor([0]), tensor([0]))
    """
    confidence, predicted = scores.softmax(1).max(1)
    is_confident = (confidence >= least) & torch.isin(predicted, classes.to(predicted.device))
    rows = is_confident.nonzero().flatten()
    return rows, predicted[rows]


@methods.register
class FGN(TEM):
    """Turns nodes into feature graphs, and replays some of them (Wang et al., CVPR 2022).

    L = Σ_{v∈V_τ} l(f(A(v), x_v), y_v) + Σ_{w∈M} l(f(A(w), x_w), y_w), A(v) the feature adjacency,
    see ``FeatureGraph``. A feature graph needs no other node, so lifelong learning of nodes becomes
    lifelong learning of samples, and it is enough to replay samples drawn uniformly from all that
    have arrived. The inputs of a node's feature graph are stored.

    The paper has one reservoir for all classes; here each class has its own, as in all methods.
    Features are reduced to the backbone's ``width``, since a node takes width² numbers while it is
    computed.

    Args:
        memory: the sampler and the budget; 100 nodes per class drawn uniformly by default.

    >>> import torch
    >>> from evergraph import load
    >>> from evergraph.streams import GraphStream
    >>> learner = FGN(generator=torch.Generator().manual_seed(0))
    >>> for task in GraphStream(load("synthetic", nodes=120, classes=4, features=8)):
    ...     learner.fit_task(task)
    >>> learner.usage.samples // len(learner.memory)  # a node's 8 features and its neighbours'
    16
    """

    name = "fgn"
    default_backbone = "feature-graph"
    needs = FeatureGraph, "learns from feature graphs: use 'feature-graph'"
    backbone: FeatureGraph

    def begin_task(self, task: Task) -> int:
        """Log once if features are projected to fewer dimensions."""
        if not self.backbone.begun and task.graph.num_features > self.backbone.width:
            logger.info(
                "fgn: %d features are projected at random to %d: a node costs their square",
                task.graph.num_features,
                self.backbone.width,
            )
        return super().begin_task(task)

    @classmethod
    def make_memory(cls, **options: Any) -> EmbeddingMemory:
        return EmbeddingMemory(**{"budget": 100, "sampler": UniformSampler(), **options})
