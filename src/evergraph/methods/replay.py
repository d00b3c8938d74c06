"""The base of methods that replay stored nodes beside the current ones, in one graph."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from evergraph.core.label_space import LabelSpace
from evergraph.graphs import Graph
from evergraph.graphs.disjoint import disjoint_union
from evergraph.memory import Candidates, EgoNetworks, MemoryUsage, SubgraphMemory
from evergraph.methods.backbone_learner import BackboneLearner
from evergraph.methods.examples import Examples, make_examples
from evergraph.nn import Backbone
from evergraph.streams import Task
from evergraph.training import Trainer
from evergraph.training.learner import part_of


class RememberingLearner(BackboneLearner):
    """Stores nodes of every task with part of the graph around them.

    Args:
        memory: the sampler and the budget.
        backbone, trainer, generator: see ``BackboneLearner``.
    """

    def __init__(
        self,
        *,
        memory: SubgraphMemory | None = None,
        backbone: Backbone | None = None,
        trainer: Trainer | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(backbone=backbone, trainer=trainer, generator=generator)
        self.memory = memory if memory is not None else self.make_memory()

    @classmethod
    def make_memory(cls, **options: Any) -> SubgraphMemory:
        """Return a memory of 100 nodes per class, drawn uniformly, by default."""
        return SubgraphMemory(**options)

    @abstractmethod
    def keep(self, graph: Graph, centres: Tensor) -> EgoNetworks:
        """Return the part of the graph to store around the chosen nodes."""

    def end_task(self, task: Task) -> None:
        """Store some of the task's training nodes."""
        super().end_task(task)
        self.memory.store(
            self._candidates(task), task.met_sizes, keep=self.keep, generator=self.generator
        )

    @torch.no_grad()
    def _candidates(self, task: Task) -> Candidates:
        """Return the training nodes with the trained model's hidden states and residuals."""
        inputs, rows = self.backbone.prepare(task.graph), task.train.to(self.device)
        self.backbone.eval()
        hidden = self.backbone.hidden_states(inputs, rows)
        self.backbone.train()
        residuals = self.residuals(inputs, task.train_labels.to(self.device), rows)
        hops = self.backbone.hops
        return Candidates(task.graph, task.train, task.train_labels, hidden, hops, residuals)

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
