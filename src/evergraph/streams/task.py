"""What a learner is given of the stream: one task, for as long as it lasts."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from evergraph.core.display import Shown
from evergraph.core.errors import TaskClosedError
from evergraph.core.label_space import LabelSpace
from evergraph.graphs import Graph


class Lease:
    """Holds a task's graph until the stream moves on."""

    def __init__(self, graph: Graph) -> None:
        self._graph: Graph | None = graph

    def close(self) -> None:
        """Let the graph go."""
        self._graph = None

    def graph(self, index: int) -> Graph:
        """Return the graph, or refuse once the task is over."""
        if self._graph is None:
            raise TaskClosedError(
                f"task {index} is over: a learner may read only the graph of the current task"
            )
        return self._graph


@dataclass(frozen=True, eq=False, repr=False)
class Task(Shown):
    """New nodes and the graph they arrive in.

    The graph shows the dataset's labels of training nodes, this task's and those of earlier ones
    that it holds, and no others; classes as they are numbered here stand beside it.

    Attributes:
        index: 0-based place in the stream.
        label_space: classes met so far, this task's included.
        ids: which node of the dataset each node of ``graph`` is, ascending: what stays the same
            when the graph has grown.  int64 [nodes of graph]
        train, validation: positions in ``graph``.  int64 [nodes]
        train_labels, validation_labels: classes, numbered in order of arrival.  int64 [nodes]
        own: positions in ``graph`` of the nodes that are new with this task.  int64 [nodes]
        class_sizes: how many nodes, known label or not, each class that ``own`` holds has there.
        met_sizes: the same over this task and all before it.
        lease: the graph's keeper.
        train_targets, validation_targets: several labels or numbers in place of a class, NaN where
            not known; None where nodes have classes.  float32 [nodes, targets]
    """

    index: int
    label_space: LabelSpace
    ids: Tensor
    train: Tensor
    train_labels: Tensor
    validation: Tensor
    validation_labels: Tensor
    own: Tensor
    class_sizes: dict[int, int]
    met_sizes: dict[int, int]
    lease: Lease
    train_targets: Tensor | None = None
    validation_targets: Tensor | None = None

    def _repr_facts(self) -> dict[str, object]:
        space = self.label_space
        classes = {"classes": [*self.class_sizes]}
        return {
            "index": self.index,
            "nodes": len(self.own),
            "train": len(self.train),
            "validation": len(self.validation),
            **(classes if space.kind == "class" else {space.kind: [*space.names]}),
        }

    @property
    def graph(self) -> Graph:
        """The graph to learn from; refused once the stream has moved on."""
        return self.lease.graph(self.index)
