"""One task of a stream, as given to a learner while it lasts."""

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
        """Release the graph."""
        self._graph = None

    def graph(self, index: int) -> Graph:
        """Return the graph; raise once the task is over."""
        if self._graph is None:
            raise TaskClosedError(
                f"task {index} is over: a learner may read only the graph of the current task"
            )
        return self._graph


@dataclass(frozen=True, eq=False, repr=False)
class Task(Shown):
    """New nodes and the graph they arrive in.

    The graph shows the dataset's labels of its training nodes, of this task and of earlier ones,
    and no others; the attributes below hold the renumbered classes.

    Attributes:
        index: 0-based position in the stream.
        label_space: classes seen so far, this task's included.
        ids: id in the dataset of each node of ``graph``, ascending; these stay the same when the
            graph grows.  int64 [nodes of graph]
        train, validation: positions in ``graph``.  int64 [nodes]
        train_labels, validation_labels: classes, numbered in order of arrival.  int64 [nodes]
        own: positions in ``graph`` of the nodes that are new with this task.  int64 [nodes]
        class_sizes: number of nodes of each class in ``own``, labelled for training or not.
        met_sizes: the same over this task and all before it.
        lease: the graph's keeper.
        train_targets, validation_targets: multi-label or regression targets, NaN if not known;
            None if nodes have classes.  float32 [nodes, targets]
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
        """The graph to learn from; raises once the stream has moved on."""
        return self.lease.graph(self.index)
