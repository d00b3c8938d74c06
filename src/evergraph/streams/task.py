"""One task of a stream, as given to a learner while it lasts; the nodes of each step, and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from evergraph.core.component import Shown
from evergraph.core.errors import TaskClosedError
from evergraph.core.label_space import LabelSpace
from evergraph.graphs import Graph
from evergraph.streams.arrival import Split

Testing = Literal["local", "global"]
TESTINGS: tuple[str, ...] = get_args(Testing)


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
        met_sizes: the same over this task and all before it, for budgets that are a share of all
            nodes. It counts test nodes, so nothing that predicts may depend on it.
        known_sizes: number of training and validation nodes of each class so far.
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
    known_sizes: dict[int, int]
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
            **(classes if space.target.is_class else {space.target.plural: [*space.names]}),
        }

    @property
    def graph(self) -> Graph:
        """The graph to learn from; raises once the stream has moved on."""
        return self.lease.graph(self.index)


@dataclass(frozen=True, eq=False)
class Exam:
    """A set of test nodes with their true classes, which only the evaluator sees.

    Attributes:
        graph: the graph to embed them in; it shows labels of training nodes or none.
        nodes: positions in ``graph``.  int64 [nodes]
        labels: the true classes.  int64 [nodes]
        tasks: the task of each node.  int64 [nodes]
        targets: true multi-label or regression targets.  float32 [nodes, targets]
    """

    graph: Graph
    nodes: Tensor
    labels: Tensor
    tasks: Tensor
    targets: Tensor | None = None


class TaskMembers:
    """Finds the nodes of a step, or of all steps up to it, by part.

    Streams of large graphs need the same nodes after every task, so each step's nodes are found
    once, and the last result for everything so far is kept. owner: the step of each node, -1 for
    nodes in no step.  integer [all nodes]
    """

    def __init__(self, owner: Tensor, splits: Sequence[Split]) -> None:
        nodes = (owner >= 0).nonzero().flatten()
        tasks = owner[nodes]
        counts = torch.bincount(tasks, minlength=len(splits)).tolist()
        self._own: tuple[Tensor, ...] = nodes[tasks.argsort(stable=True)].split(counts)
        self._owner = owner
        self._splits = splits
        self._upto: tuple[int, Tensor] | None = None  # task, nodes

    def nodes(self, index: int, *, upto: bool = False) -> Tensor:
        """Return the nodes of a step, or of every step up to it, ascending.  int64 [nodes]"""
        if not upto:
            return self._own[index]
        if self._upto is None or self._upto[0] != index:
            seen = (self._owner >= 0) & (self._owner <= index)
            self._upto = index, seen.nonzero().flatten()
        return self._upto[1]

    def between(self, first: int, last: int) -> Tensor:
        """Return the nodes of consecutive steps, ascending.  int64 [nodes]"""
        if first == last:
            return self._own[first]
        return torch.cat(self._own[first : last + 1]).sort().values

    def part(self, part: str, first: int, last: int) -> Tensor:
        """Return the training, validation or test nodes of some steps, ascending.  int64 [nodes]"""
        parts: list[Tensor] = [getattr(split, part) for split in self._splits[first : last + 1]]
        return parts[0] if len(parts) == 1 else torch.cat(parts).sort().values


NODES_PER_BLOCK = 1 << 24  # nodes counted at a time; a graph may have 10^8


class ClassSizes:
    """Counts the nodes of each class that arrive with some steps.

    Counted once for all steps, since a stream of many small steps would otherwise count the same
    nodes again and again. owner, labels: the step and the class of each node, -1 for none.

    >>> ClassSizes(torch.tensor([0, 1, 1, -1]), torch.tensor([0, 0, 2, 1]), steps=2).between(0, 1)
    {0: 2, 2: 1}
    """

    def __init__(self, owner: Tensor, labels: Tensor, *, steps: int) -> None:
        classes = int(labels.max()) + 1
        counts = torch.zeros(steps * classes, dtype=torch.int64)
        for block_steps, block_classes in zip(
            owner.split(NODES_PER_BLOCK), labels.split(NODES_PER_BLOCK), strict=True
        ):
            counted = (block_steps >= 0) & (block_classes >= 0)
            cells = block_steps[counted].long() * classes + block_classes[counted]
            counts += torch.bincount(cells, minlength=len(counts))
        totals = counts.view(steps, classes).cumsum(0)
        # Nodes before each step, and before the end.
        self._before = torch.cat([totals.new_zeros(1, classes), totals])

    def between(self, first: int, last: int) -> dict[int, int]:
        """Return the number of nodes of every class that has any in consecutive steps."""
        counts = (self._before[last + 1] - self._before[first]).tolist()
        return {label: count for label, count in enumerate(counts) if count}
