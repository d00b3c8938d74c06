"""The step at which each node arrives, and with which step a node without a class does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from evergraph.core.errors import say
from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.csr import RowSweep, row_entries

NOWHERE = -1
Unlabelled = Literal["leave-out", "along"]
UNLABELLED_WAYS: tuple[str, ...] = get_args(Unlabelled)
ROUNDS = 2  # longest path of unlabelled nodes from a task to one that arrives with it
_NEVER = 2**31 - 1
# Share of unlabelled nodes above which leaving them out would change the graph too much.
MAX_UNLABELLED = 0.5


@dataclass(frozen=True, eq=False)
class Arrival:
    """The step in which each node arrives, and the classes that are new with each task.

    A step is a task, unless tasks arrive in batches: then each batch is a step of its task.

    Attributes:
        owner: the step of each node, -1 for nodes in no step.  int64 [nodes]
        new_classes: for every task, the dataset's labels that first occur in it; may be empty.
        tasks: the task of each step, ascending, if tasks arrive in several steps.  int64 [steps]
    """

    owner: Tensor
    new_classes: list[tuple[int, ...]]
    tasks: Tensor | None = None

    def __len__(self) -> int:
        return len(self.new_classes) if self.tasks is None else len(self.tasks)

    @property
    def task_of(self) -> Tensor:
        """The task of each step.  int64 [steps]"""
        return torch.arange(len(self)) if self.tasks is None else self.tasks

    @property
    def classes(self) -> list[int]:
        """The dataset's label of every class, in order of first arrival."""
        return [label for classes in self.new_classes for label in classes]

    def shared_out(self, nodes: Tensor) -> tuple[Tensor, ...]:
        """Return, for every step, those of ``nodes`` that arrive with it, in the given order.

        nodes: int64 [n], each with a step; -> one int64 [n of the step] per step
        """
        owners = self.owner[nodes]
        counts = torch.bincount(owners, minlength=len(self)).tolist()
        shares: tuple[Tensor, ...] = nodes[owners.argsort(stable=True)].split(counts)
        return shares


def arrival_of(
    owner: Tensor, labels: Tensor, *, classes: Sequence[int], tasks: int | None = None
) -> Arrival:
    """Return the arrival of nodes whose tasks are known: a class is new with its first node.

    owner, labels: int64 [nodes]; classes: those that arrive, in the order used within a task;
    tasks: number of tasks; by default those that have nodes.
    """
    tasks = int(owner.max()) + 1 if tasks is None else tasks
    here = owner != NOWHERE
    first = torch.full((int(labels.max()) + 1,), tasks)  # [labels], the task of the first node
    first.scatter_reduce_(0, labels[here], owner[here], "amin")
    met = first[list(classes)].tolist()
    new: list[list[int]] = [[] for _ in range(tasks)]
    for label, task in zip(classes, met, strict=True):
        new[task].append(label)
    return Arrival(owner, [tuple(labels) for labels in new])


def fitting_way(graph: Graph, classified: Tensor) -> Unlabelled:
    """Return the default for nodes without a class, and warn if they are many.

    They come along if nodes have several types or if most nodes have no class.

    classified: whether a node has a class or targets.  bool [nodes]
    """
    if graph.types is not None:
        return "along"
    without = 1 - int(classified.sum()) / max(len(classified), 1)
    if without <= MAX_UNLABELLED or not len(classified):
        return "leave-out"
    say(
        "stream.unlabelled",
        f"{100 * without:.1f} % of the nodes have no class and come along with the first task that "
        "has a neighbour of them: 'leave-out' leaves them out",
    )
    return "along"


def with_companions(graph: Graph, owner: Tensor) -> Tensor:
    """Return the task of each node; unlabelled nodes arrive with the first task that needs them.

    A node without a class, such as the author of classified papers, arrives with the earliest task
    that has a neighbour of it, or a neighbour's neighbour through another node without a class.
    Edges are processed in blocks, so that this takes about 12 bytes per node at any size.

    owner: the task of each node, -1 for nodes in no task.  int64 [nodes] -> int64 [nodes]

    >>> star = Graph.from_edges(torch.tensor([[0, 0, 3], [1, 2, 4]]), features=torch.zeros(5, 1),
    ...                         labels=torch.tensor([-1, 0, 1, -1, -1]), undirected=True)
    >>> with_companions(star, torch.tensor([-1, 1, 0, -1, -1]))
    tensor([ 0,  1,  0, -1, -1])
    """
    free = graph.labels.cpu() == UNLABELLED
    sweep = graph.to("cpu").sweep
    when = owner.int().masked_fill_(owner < 0, _NEVER)
    for _ in range(ROUNDS):
        when = torch.where(free, _earliest_around(sweep, when, both=not graph.undirected), when)
    return when.masked_fill_(when == _NEVER, -1).long()


def _earliest_around(sweep: RowSweep, when: Tensor, *, both: bool) -> Tensor:
    """Return the least value of each node and its neighbours.  [nodes] -> [nodes]

    both: whether to include the nodes in whose rows it occurs.
    """
    indptr, indices = sweep.plain
    near = when.clone()

    def look(rows: Tensor) -> Tensor:
        owners, entries = row_entries(indptr, rows)
        columns = indices.index_select(0, entries).long()
        around = when[rows].scatter_reduce_(0, owners, when[columns], "amin")
        if both:
            near.scatter_reduce_(0, columns, when[rows][owners], "amin")
        return around

    for part, around in sweep.blocks(None, look):
        torch.minimum(near[part], around, out=near[part])
    return near
