"""Validation nodes kept to tell learners apart."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.core.label_space import LabelSpace
from evergraph.evaluation import balanced_accuracy
from evergraph.streams import Task


class Probes:
    """Embeddings of some validation nodes of every class, evenly spread over each.

    Which ones does not depend on the order in which classes arrive, nor on chance.

    Args:
        per_class: how many of a class and task.

    Attributes:
        embeddings_: float32 [kept, dims].
        labels_: their classes.  int64 [kept]
        tasks_: the task each came with.  int64 [kept]
        nodes_: which nodes of the dataset they are.  int64 [kept]
    """

    def __init__(self, per_class: int) -> None:
        self.per_class = per_class
        self.embeddings_ = torch.empty(0, 0)
        for name in ("labels_", "tasks_", "nodes_"):
            setattr(self, name, torch.empty(0, dtype=torch.int64))
        self.labels_: Tensor
        self.tasks_: Tensor
        self.nodes_: Tensor

    def keep(self, task: Task, embeddings: Tensor, *, refresh: bool) -> None:
        """Keep some of a task's validation nodes; refresh: look older ones up in its graph, too.

        embeddings: of all nodes of the task's graph.  [nodes, dims]
        """
        rows = torch.cat([self._spread(task, label) for label in task.class_sizes])
        new = embeddings[task.validation[rows].to(embeddings.device)]
        old = self.embeddings_.reshape(-1, new.shape[1]).to(new.device)
        if refresh:
            old = embeddings[torch.searchsorted(task.ids, self.nodes_).to(embeddings.device)]
        self.embeddings_ = torch.cat([old, new])
        self.labels_ = torch.cat([self.labels_, task.validation_labels[rows]])
        self.tasks_ = torch.cat([self.tasks_, torch.full_like(rows, task.index)])
        self.nodes_ = torch.cat([self.nodes_, task.ids[task.validation[rows]]])

    def _spread(self, task: Task, label: int) -> Tensor:
        rows = (task.validation_labels == label).nonzero().flatten()
        step = max(len(rows) / self.per_class, 1.0)
        return rows[torch.arange(0, len(rows), step).long()[: self.per_class]]

    def accuracy(self, scores: Tensor, label_space: LabelSpace) -> float:
        """Return the class-balanced accuracy of scores.  [kept, classes] -> 0..1"""
        scores = scores.cpu()
        allowed = label_space.allowed(self.tasks_)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        return balanced_accuracy(scores.argmax(1), self.labels_)

    @property
    def nbytes(self) -> int:
        """How many bytes are kept."""
        return sum(tensor.nbytes for tensor in self.state().values())

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name."""
        return {name: getattr(self, f"{name}_") for name in _KEPT}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        for name in _KEPT:
            setattr(self, f"{name}_", state[name])


_KEPT = ("embeddings", "labels", "tasks", "nodes")
