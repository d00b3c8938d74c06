"""One guess of the task for a whole test set."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from evergraph.graphs import Graph
from evergraph.methods.tpp import TPP
from evergraph.streams import Task

log = logging.getLogger(__name__)


class PooledTestSets(TPP):
    """A method that guesses tasks, told which test nodes share one.

    One task is guessed for all nodes asked about together, by the mean of their likenesses, and
    test nodes are asked about task by task. In class-IL that gives away what other methods have to
    find out: accuracies are not comparable with theirs, nor with those of the same method node by
    node.

    A method of this kind is a class of two parents, this one first and the method second.
    """

    def begin_task(self, task: Task) -> int:
        """Say once what the results are worth."""
        if not self.heads_:
            log.warning(
                "%s pools the test nodes of each task: do not compare its class-il accuracy with "
                "that of methods that classify node by node",
                self.name,
            )
        return super().begin_task(task)

    def likeness(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return ⟨common profile of the nodes, profile of each task⟩.  -> [nodes, tasks]"""
        return super().likeness(graph, nodes).mean(0, keepdim=True).expand(len(nodes), -1)

    def logits_of_exam(self, graph: Graph, nodes: Tensor, tasks: Tensor | None) -> Tensor:
        """Return the scores, nodes of one task pooled; all of them where ``tasks`` is not given."""
        if tasks is None or not len(nodes):
            return self.logits(graph, nodes)
        rows = [(tasks == task).nonzero().flatten() for task in tasks.unique()]
        scores = torch.cat([self.logits(graph, nodes[r]) for r in rows])
        return scores[torch.cat(rows).argsort().to(scores.device)]
