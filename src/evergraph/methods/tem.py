"""PDGNN with Topology-aware Embedding Memory, the paper's method."""

from __future__ import annotations

import logging
from typing import Any, Literal

import torch
from torch import Tensor

from evergraph.core.checks import check_choice, check_integer, check_number
from evergraph.core.errors import ConfigurationError
from evergraph.core.label_space import LabelSpace
from evergraph.graphs.csr import stacked
from evergraph.memory import Candidates, EmbeddingMemory, MemoryUsage
from evergraph.memory.samplers.condensing import CondensingSampler
from evergraph.methods.backbone_learner import BackboneLearner
from evergraph.methods.base import methods
from evergraph.methods.drift import drifted, seen_drift
from evergraph.methods.examples import WEIGHTINGS, Examples, Weighting, make_examples
from evergraph.methods.refresh import REFRESHES, GrowingEmbeddings, Refresh
from evergraph.nn import PDGNN, Backbone
from evergraph.streams import Task
from evergraph.topology.rowwise import unit_rows
from evergraph.training import Trainer
from evergraph.training.learner import part_of

logger = logging.getLogger(__name__)

_NOBODY = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)


@methods.register
class TEM(BackboneLearner):
    """Replays stored topology-aware embeddings with each task (Zhang et al., KDD 2024).

    L = Σ_{v∈V_τ} l(f_out(e_v), y_v) + Σ_{e_w∈TEM} l(f_out(e_w), y_w), each term weighted by
    1/n_c of its class. Since f_topo has nothing to train, a stored vector stands for its whole
    ego-subnetwork for ever: the gradient is the one the ego-subnetwork would give.

    Args:
        memory: which embeddings are kept, and how many.
        weighting: ``class-balanced``, ``plain`` with λ = ``replay_weight``,
            ``current-balanced`` (the released code's in task-IL), or ``logit-adjusted`` (no
            weights; the log of each class's share is added to its score in the loss).
        replay_weight: λ of the plain weighting.
        store: ``after`` a task (the paper), ``before`` it (the released code: current nodes
            that are stored then count twice), or ``only``: before it, and the memory alone is
            trained on, so that every class has as many examples (CaT's training in memory).
        pseudo_labels: how sure the learner must be of a node of the task whose class it is not told
            for the node to be stored, or condensed, with the class it gives it; None, none are. The
            learner is trained on the task first; with ``only`` it is then trained once more, on a
            memory with these nodes in it (PUMA). Features of test nodes are looked at, as they are
            whenever a neighbour is embedded; labels of test or validation nodes never are.
        restart: whether the model is drawn anew and trained from scratch with every task (PUMA), so
            that no task has been trained on longer than another.
        arrivals: in how many batches a task's nodes reach the memory.
        refresh: ``none``: what is stored stays as it was. ``embeddings``: the graph is still there
            (``edges="all"``); stored embeddings whose ego-subnetwork has changed are computed anew.
            ``corrected``: no old node is looked up; what is stored moves by the drift that the new
            nodes' ego-subnetworks show (see ``drifted``), an estimate.
    """

    name = "tem"
    default_backbone = "pdgnn"

    def __init__(
        self,
        *,
        memory: EmbeddingMemory | None = None,
        weighting: Weighting = "class-balanced",
        replay_weight: float = 1.0,
        store: Literal["after", "before", "only"] = "after",
        pseudo_labels: float | None = None,
        restart: bool = False,
        arrivals: int = 1,
        refresh: Refresh = "none",
        backbone: Backbone | None = None,
        trainer: Trainer | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(backbone=backbone, trainer=trainer, generator=generator)
        check_choice("weighting", weighting, WEIGHTINGS)
        check_number("replay_weight", replay_weight, least=0.0)
        check_choice("store", store, ("after", "before", "only"))
        check_integer("arrivals", arrivals, least=1)
        if pseudo_labels is not None:
            check_number("pseudo_labels", pseudo_labels, least=0.0, most=1.0)
            if store == "before":
                raise ConfigurationError(
                    "pseudo_labels needs a learner that knows the task: use store 'after' or "
                    "'only', not 'before'"
                )
        self.memory = memory if memory is not None else self.make_memory()
        if store == "only" and self.memory.budget == 0:
            raise ConfigurationError(
                "budget must be above 0 with store 'only', which trains on the memory alone, not 0"
            )
        self.weighting: Weighting = weighting
        self.replay_weight = replay_weight
        self.store = store
        self.pseudo_labels = pseudo_labels
        self.restart = restart
        self.arrivals = arrivals
        check_choice("refresh", refresh, REFRESHES)
        if refresh == "embeddings" and isinstance(self.memory.sampler, CondensingSampler):
            raise ConfigurationError(
                "refresh='embeddings' computes embeddings of stored nodes anew, but sampler "
                f"{self.memory.sampler.name!r} stores vectors of no node: use another"
            )
        self.refresh: Refresh = refresh
        self.growing_ = GrowingEmbeddings()
        self._guessed = _NOBODY

    @classmethod
    def check_backbone(cls, backbone: Backbone) -> None:
        """Raise unless embeddings stay valid while the model trains."""
        if not isinstance(backbone, PDGNN):
            raise ConfigurationError(
                "tem stores embeddings, which only a backbone without parameters in its "
                f"aggregation keeps valid: use 'pdgnn' or 'sgc', not {backbone.name!r}"
            )

    @classmethod
    def make_memory(cls, **options: Any) -> EmbeddingMemory:
        """Return a memory of embeddings, 400 per class by coverage by default."""
        return EmbeddingMemory(**options)

    @property
    def sight(self) -> int | None:
        """As many hops as the backbone; all of the graph where what is stored is refreshed."""
        return super().sight if self.refresh == "none" else None

    def fit_task(self, task: Task) -> None:
        """Learn one task; with pseudo-labels and the memory alone, a second time with these."""
        before = self.memory.state()
        super().fit_task(task)
        if self.pseudo_labels is not None and self.store == "only":
            self._guessed = self._guess(task)
            self.memory.restore(before)
            super().fit_task(task)
            self._guessed = _NOBODY

    @torch.no_grad()
    def _guess(self, task: Task) -> tuple[Tensor, Tensor]:
        """Return positions and classes of new nodes of which the learner is sure."""
        assert self.pseudo_labels is not None
        asked = task.own[~torch.isin(task.own, task.train)]
        classes = task.train_labels.unique()
        tasks = task.label_space.task_of(classes[:1]).expand(len(asked))
        scores = self._allowed(self.logits(task.graph, asked), tasks)
        rows, given = confident(scores, classes, least=self.pseudo_labels)
        logger.info("task %d: %d of %d nodes given a class", task.index, len(rows), len(asked))
        return asked[rows.cpu()], given.cpu()

    def begin_task(self, task: Task) -> int:
        """Bring what is stored up to date with the graph, then prepare as ever."""
        if self.restart:
            assert isinstance(self.backbone, PDGNN)
            self.backbone.head = None
            self.trainer.restore({})  # Adam's moments are those of other weights
        if self.refresh == "embeddings":
            self._refresh(task)
        elif self.refresh == "corrected":
            self._correct(task)
        return super().begin_task(task)

    def _refresh(self, task: Task) -> None:
        assert isinstance(self.backbone, PDGNN)
        grown = self.growing_.update(task, self.backbone)
        if grown is not None and len(self.memory):
            places = torch.searchsorted(task.ids, self.memory.nodes_)
            self.memory.embeddings_ = self.backbone.taken(grown[0].embeddings, places)

    def _correct(self, task: Task) -> None:
        """Move what is stored as the old nodes in sight have moved."""
        assert isinstance(self.backbone, PDGNN)
        drift = seen_drift(task, self.backbone)
        if drift is None or not len(self.memory):
            return
        moved = drifted(self.memory.embeddings_.to(self.device), drift)
        unit = self.backbone.scaling == "unit"
        self.memory.embeddings_ = unit_rows(moved, together=True) if unit else moved

    def examples(self, task: Task) -> Examples:
        """Return the task's training nodes and everything stored."""
        if self.store != "after":
            self._remember(task)
        current, targets = self._current(task)
        if self.store == "only":
            current, targets = current[:0], targets[:0]
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
        """Store embeddings of the task's training nodes, and of such as it is sure of."""
        super().end_task(task)
        if self.store == "after":
            if self.pseudo_labels is not None:
                self._guessed = self._guess(task)
            self._remember(task)
            self._guessed = _NOBODY

    def _current(self, task: Task) -> tuple[Tensor, Tensor]:
        """Return the embeddings and classes of the task's training nodes."""
        return self._embedded(task, task.train), task.train_labels.to(self.device)

    def _embedded(self, task: Task, nodes: Tensor) -> Tensor:
        assert isinstance(self.backbone, PDGNN)
        return self.backbone.taken(self.backbone.prepare(task.graph), nodes)

    def _remember(self, task: Task) -> None:
        guessed, classes = self._guessed
        nodes = torch.cat([task.train, guessed])
        targets = torch.cat([task.train_labels, classes]).to(self.device)
        current = self._embedded(task, nodes)
        hops = self.backbone.hops
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
        """How many embeddings of old nodes were computed anew, of how many."""
        return self.growing_.cost if self.refresh == "embeddings" else None

    @property
    def usage(self) -> MemoryUsage:
        """What the memory holds."""
        return self.memory.usage

    @property
    def coverage_ratio(self) -> float | None:
        """R_c of the memory."""
        return self.memory.coverage_ratio

    def state(self) -> dict[str, Tensor]:
        """Return all that later tasks depend on, as named CPU tensors."""
        kept = {f"memory.{name}": value.cpu() for name, value in self.memory.state().items()}
        return super().state() | kept | self.growing_.state()

    def restore(self, state: dict[str, Tensor], label_space: LabelSpace) -> None:
        """Take back what ``state`` returned, at the point where it was taken."""
        super().restore(state, label_space)
        self.growing_.restore(state)
        self.memory.restore(part_of(state, "memory."))


def confident(scores: Tensor, classes: Tensor, *, least: float) -> tuple[Tensor, Tensor]:
    """Return which rows are surely of one of some classes, and of which.

    Row i with p = softmax(s_i) is taken where max p >= ``least`` and argmax p is among ``classes``:
    a node that looks like a class of another task says nothing about this one's.

    scores: [rows, all classes], -inf where a class may not be given; classes: int64 [some]
    -> int64 [taken], int64 [taken]

    Odds of 9 to 1 are 0.9, of 4 to 1 are 0.8; the last row is surely of a class not asked for.

    >>> odds = torch.tensor([[9.0, 1.0, 0.0], [1.0, 4.0, 0.0], [0.0, 0.0, 1.0]])
    >>> confident(odds.log(), torch.tensor([0, 1]), least=0.85)
    (tensor([0]), tensor([0]))
    """
    surest, given = scores.softmax(1).max(1)
    taken = (surest >= least) & torch.isin(given, classes.to(given.device))
    rows = taken.nonzero().flatten()
    return rows, given[rows]
