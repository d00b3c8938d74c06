"""Hierarchical prototype networks: knowledge stored as a growing set of prototypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from evergraph.core.component import Made, choice, integer, number
from evergraph.memory import MemoryUsage
from evergraph.methods.base import BackboneLearner, methods
from evergraph.nn.prototype_network import PrototypeHead, PrototypeNetwork
from evergraph.streams import Task
from evergraph.training import Batch

PROTOTYPES_PER_STEP = 512  # that are rehearsed


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class HPN(BackboneLearner):
    """Represents nodes by prototypes that are established once (Zhang et al., TPAMI 2022).

    Linear extractors compute atomic embeddings of a node's own attributes and of its neighbours',
    see ``PrototypeNetwork``. On each of three levels the prototype of largest cosine replaces an
    embedding; if that cosine is below the level's threshold, the embedding becomes a new prototype.
    Two prototypes established together are always further apart than the threshold, so their
    number is bounded for any number of tasks. The loss is

        L = CE(V [a, n, c] + b, y) + β Σ_levels mean(1 - cos(embedding, prototype))
            + γ mean_{i≠j} cos²(extractor i, extractor j):

    embeddings are drawn to their prototypes, and extractors are pushed apart.

    Atomic prototypes are fixed vectors. A node-level prototype is stored as the atomic ones that it
    consists of, a class-level prototype as its node-level one, so they move with the maps between
    the levels. Prototypes are established from a task's training nodes before the task is learned,
    and again after it.

    In task-IL this is the paper's method with two differences: prototypes are not trained, and
    neighbours are summed, not sampled. The paper has no class-IL. **The class-IL variant is
    evergraph's**: node-level prototypes record how many training nodes of each class they
    represent. Those of earlier tasks are rehearsed with the current nodes, with equal weight for
    old and new classes; those of a task are rebuilt when it has been learned. No node is stored.

    Args:
        atomic_threshold, node_threshold, class_threshold: t_A, t_N, t_C, cosines from -1 to 1.
        capacity: maximum number of prototypes per level; beyond it, the nearest one is used.
        distance_strength: β.
        divergence_strength: γ.
        refine: ``always``: extractors are trained with every task. ``first``: with the first task
            only, so that rehearsed prototypes keep their meaning. By default, ``always`` in task-IL
            (the paper's) and ``first`` in class-IL.
        rehearse: whether prototypes are rehearsed in class-IL.

    >>> from evergraph import load
    >>> from evergraph.streams import GraphStream
    >>> from evergraph.training import Trainer
    >>> learner = HPN(trainer=Trainer(epochs=2), generator=torch.Generator().manual_seed(0))
    >>> for task in GraphStream(load("synthetic", nodes=120, classes=4), setting="task-il"):
    ...     learner.fit_task(task)
    >>> int(learner.head.counts.sum())  # every training node has a node-level prototype
    72
    """

    name = "hpn"
    default_backbone = "prototypes"
    needs = PrototypeNetwork, "learns prototypes on three levels: use 'prototypes'"
    backbone: Made[PrototypeNetwork] = Made()
    atomic_threshold: float = number(0.8, least=-1.0, most=1.0)
    node_threshold: float = number(0.99, least=-1.0, most=1.0)
    class_threshold: float = number(0.8, least=-1.0, most=1.0)
    capacity: int = integer(4096, least=1)
    distance_strength: float = number(0.1, least=0.0)
    divergence_strength: float = number(0.1, least=0.0)
    refine: Literal["first", "always"] | None = choice(None, ("first", "always"))
    rehearse: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._counts_before = torch.empty(0, 0)  # at the start of the task
        self._classes_before = 0

    @property
    def head(self) -> PrototypeHead:
        """The levels and their prototypes."""
        assert self.backbone.head is not None, "begin comes first"
        return self.backbone.head

    def begin_task(self, task: Task) -> int:
        count = super().begin_task(task)
        self._counts_before, self._classes_before = self.head.counts, len(self.head.classes)
        self._establish()
        return count

    def loss(self, batch: Batch) -> Tensor:
        assert self._examples is not None
        levels = self.head.levels(self.head.extracted(self._examples.inputs[batch]))
        scores = self.head.scores(levels, generator=self._noise)
        loss = self.classification_loss(scores, batch)
        if self._in_class_il and self.rehearse and self._counts_before.numel():
            share = self._counts_before.any(1).count_nonzero() / len(self._counts_before)
            loss = (1 - share) * loss + share * self._rehearsal()
        atomic, node, cls = (level.distance for level in levels)
        loss = loss + self.distance_strength * (atomic + node + cls)
        return loss + self.divergence_strength * self.head.divergence()

    def adjust_gradients(self) -> None:
        """Freeze the extractors after the first task, unless they are always refined."""
        default = "first" if self._in_class_il else "always"
        if self._counts_before.numel() and (self.refine or default) == "first":
            for extractor in self.head.extractors:
                extractor.weight.grad = None

    def end_task(self, task: Task) -> None:
        assert self._examples is not None
        if self._in_class_il:
            # Prototypes from before training consist of atoms that no node uses any more, so
            # rehearsing them would be useless.
            self.head.forget(nodes=self._counts_before.shape[1], classes=self._classes_before)
        self.head.count(self._examples.targets, self._establish())
        super().end_task(task)

    def _establish(self) -> Tensor:
        assert self._examples is not None
        thresholds = (self.atomic_threshold, self.node_threshold, self.class_threshold)
        return self.head.establish(self._examples.inputs, thresholds, capacity=self.capacity)

    @property
    def _in_class_il(self) -> bool:
        return self.label_space_ is not None and self.label_space_.setting == "class-il"

    def _rehearsal(self) -> Tensor:
        """Return the cross-entropy of old prototypes, with equal class weights.  []"""
        counts = self._counts_before
        weights = (counts / counts.sum(1, keepdim=True).clamp_min(1.0)).t()  # [p, classes]
        rows = weights.any(1).nonzero().flatten()
        if len(rows) > PROTOTYPES_PER_STEP:
            drawn = torch.randperm(len(rows), generator=self.generator)[:PROTOTYPES_PER_STEP]
            rows = rows[drawn.to(rows.device)]
        levels = self.head.levels(self.head.composed(self.head.nodes[rows]))
        scores = self.head.scores(levels, generator=self._noise)
        chosen = weights[rows]
        return -(chosen * scores.log_softmax(1)).sum() / chosen.sum()

    @property
    def usage(self) -> MemoryUsage:
        if self.backbone.head is None:
            return MemoryUsage()
        buffers = [*self.backbone.head.buffers()]
        return MemoryUsage(samples=self.head.atoms.numel(), bytes=sum(t.nbytes for t in buffers))
