"""Methods that replay stored nodes, with part of the graph around them, beside the current ones."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from evergraph.core.component import Made, choice, integer
from evergraph.core.label_space import LabelSpace
from evergraph.core.seeding import exponential
from evergraph.graphs import Graph, forman_curvature
from evergraph.graphs.disjoint import disjoint_union
from evergraph.memory import (
    Candidates,
    EgoNetworks,
    MemoryUsage,
    SubgraphMemory,
    ego_networks,
    isolated,
)
from evergraph.memory.samplers import EmbeddingCoverageSampler
from evergraph.methods.backbone_learner import BackboneLearner
from evergraph.methods.base import methods
from evergraph.methods.examples import Examples, make_examples
from evergraph.streams import Task
from evergraph.training.learner import part_of


@dataclass(kw_only=True, eq=False, repr=False)
class RememberingLearner(BackboneLearner):
    """Stores nodes of every task with part of the graph around them.

    Args:
        memory: the sampler and the budget.
    """

    memory: Made[SubgraphMemory] = Made()

    @classmethod
    def make_memory(cls, **options: Any) -> SubgraphMemory:
        """Return a memory of 100 nodes per class, drawn uniformly, by default."""
        return SubgraphMemory(**options)

    @abstractmethod
    def keep(self, graph: Graph, centres: Tensor) -> EgoNetworks:
        """Return the part of the graph to store around the chosen nodes."""

    @torch.no_grad()
    def end_task(self, task: Task) -> None:
        """Store some training nodes, chosen by the trained model's hidden states and residuals."""
        super().end_task(task)
        inputs, rows = self.backbone.prepare(task.graph), task.train.to(self.device)
        self.backbone.eval()
        hidden = self.backbone.hidden_states(inputs, rows)
        self.backbone.train()
        residuals = self.residuals(inputs, task.train_labels.to(self.device), rows)
        nodes = task.graph, task.train, task.train_labels
        candidates = Candidates(*nodes, hidden, self.backbone.hops, residuals)
        self.memory.store(candidates, task.met_sizes, keep=self.keep, generator=self.generator)

    @property
    def usage(self) -> MemoryUsage:
        """Size of the memory."""
        return self.memory.usage

    def state(self) -> dict[str, Tensor]:
        """Return everything that later tasks depend on, as named CPU tensors."""
        kept = {f"memory.{name}": value.cpu() for name, value in self.memory.state().items()}
        return super().state() | kept

    def restore(self, state: dict[str, Tensor], label_space: LabelSpace) -> None:
        """Restore what ``state`` returned."""
        super().restore(state, label_space)
        self.memory.restore(part_of(state, "memory."))


class ReplayingLearner(RememberingLearner):
    """Trains on the current task's nodes and on stored ones, each in its own graph.

    The two graphs form one disjoint graph, so a step is one pass through the backbone, and classes
    are weighted by 1/n_c over current and stored nodes together, as in ``tem``.
    """

    def examples(self, task: Task) -> Examples:
        """Return the task's training nodes and all stored nodes."""
        if self.memory.graph_ is None:
            return super().examples(task)
        graph = disjoint_union([task.graph, self.memory.graph_.to(task.graph.device)])
        inputs = self.backbone.prepare(graph)
        rows = torch.cat([task.train, self.memory.centres_ + task.graph.num_nodes])
        inputs, places = self.backbone.narrowed(inputs, rows.to(self.device))
        targets = torch.cat([task.train_labels, self.memory.labels_]).to(self.device)
        stored = len(self.memory)
        return make_examples(inputs, places, targets, label_space=task.label_space, stored=stored)


@methods.register
class ERGNN(ReplayingLearner):
    """Replays stored nodes without their neighbourhoods (Zhou and Cao 2021).

    Nodes are chosen by coverage in the hidden layer (``embedding-coverage``), by distance to the
    mean of their class (``mean-feature``) or by their influence on the model (``influence``). Only
    edges between stored nodes are kept, as in the published runs; mostly there are none.

    Args:
        memory: the sampler and the budget; 100 nodes per class by default.
    """

    name = "er-gnn"

    @classmethod
    def make_memory(cls, **options: Any) -> SubgraphMemory:
        """Return a memory of 100 nodes per class, chosen by coverage in the hidden layer."""
        return SubgraphMemory(**{"sampler": EmbeddingCoverageSampler(), **options})

    def keep(self, graph: Graph, centres: Tensor) -> EgoNetworks:
        """Return the nodes without neighbours."""
        return isolated(graph, centres)


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class SSM(ReplayingLearner):
    """Replays stored nodes with a few neighbours per hop (Zhang et al., ICDM 2022).

    A stored node keeps at most k(1 + k + ... ) nodes of its ego-subnetwork, whatever its degree.

    Args:
        neighbours: k, at least 1; 0 would be ``er-gnn``.
        choice: ``random``, or ``degree`` for neighbours drawn in proportion to their degree.
        memory: the sampler and the budget; 100 nodes per class drawn uniformly by default.
    """

    name = "ssm"

    neighbours: int = integer(5, least=1)
    choice: Literal["random", "degree"] = choice("degree", ("random", "degree"))

    def keep(self, graph: Graph, centres: Tensor) -> EgoNetworks:
        """Return ego-subnetworks in which every node keeps a few random neighbours."""

        def rank(entries: Tensor) -> Tensor:
            times = exponential(len(entries), generator=self.generator).to(entries.device)
            if self.choice == "random":
                return times
            return times / graph.degrees[graph.indices[entries].long()].clamp_min(1)

        hops = self.backbone.hops
        return ego_networks(graph, centres, hops=hops, neighbours=self.neighbours, rank=rank)


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class SEM(ReplayingLearner):
    """Replays stored nodes with the neighbours of largest Ricci curvature (Zhang et al. 2023).

    Curvature is large where two nodes share neighbours and small on bridges, so strongly curved
    edges carry most information about a node. It is the augmented Forman curvature, computed from
    degrees and triangles.

    Args:
        neighbours: number of neighbours kept per node and hop, at least 1.
        memory: the sampler and the budget; 100 nodes per class drawn uniformly by default.
    """

    name = "sem"

    neighbours: int = integer(5, least=1)

    def keep(self, graph: Graph, centres: Tensor) -> EgoNetworks:
        """Return ego-subnetworks in which every node keeps its most curved edges."""
        curvature = forman_curvature(graph)

        def rank(entries: Tensor) -> Tensor:
            return -curvature[entries]

        hops = self.backbone.hops
        return ego_networks(graph, centres, hops=hops, neighbours=self.neighbours, rank=rank)


@methods.register
class FullSubgraph(ReplayingLearner):
    """Replays stored nodes with their complete ego-subnetworks: O(n d^L), for comparison.

    With ``gat``, ``gin``, ``sage`` and the sum of ``gcn``, the replayed input of a node equals its
    training input; the normalised ``gcn`` weighs the outermost nodes by their degrees in the
    stored subgraph.

    Args:
        memory: the sampler and the budget; 100 nodes per class drawn uniformly by default.
    """

    name = "full-subgraph"

    def keep(self, graph: Graph, centres: Tensor) -> EgoNetworks:
        """Return all nodes within reach."""
        return ego_networks(graph, centres, hops=self.backbone.hops, rank=torch.zeros_like)
