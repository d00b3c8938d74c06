"""Nodes without a class: unlabelled nodes that arrive with others, and nodes with targets."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from evergraph.core.errors import DataError, say
from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.csr import RowSweep, row_entries
from evergraph.streams.arrival import Arrival
from evergraph.streams.splits import LEAST_NODES, SHARES, Shares, Split, split_tasks

Unlabelled = Literal["leave-out", "along"]
UNLABELLED_WAYS: tuple[str, ...] = get_args(Unlabelled)
ROUNDS = 2  # longest path of unlabelled nodes from a task to one that arrives with it
_NEVER = 2**31 - 1
MAX_UNLABELLED = (
    0.5  # share of unlabelled nodes above which leaving them out would change the graph too much
)


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


def stand_in_labels(graph: Graph) -> Tensor:
    """Return the labels for cutting and splitting: one class for all nodes with known targets.

    If the graph has classes, these are returned; -> int64 [nodes], on the CPU.
    """
    if graph.targets is None:
        return graph.labels.cpu()
    here = graph.targets.known.any(dim=1).cpu()
    if int(here.sum()) < LEAST_NODES:
        raise DataError(
            f"targets are known of {int(here.sum())} nodes, too few to split into training, "
            f"validation and test: at least {LEAST_NODES} are needed"
        )
    return torch.where(here, 0, UNLABELLED)


def split_each(
    arrival: Arrival, *, shares: Shares = SHARES, labelled: float | None = None, seed: int = 0
) -> list[Split]:
    """Split the nodes of every task at random in the same shares, without regard to classes."""
    counts = torch.bincount(arrival.owner[arrival.owner >= 0], minlength=len(arrival)).tolist()
    if min(counts) < LEAST_NODES:
        raise DataError(
            f"task {counts.index(min(counts))} has {min(counts)} nodes, too few to split into "
            f"training, validation and test: make fewer tasks than {len(arrival)} (parameter tasks)"
        )
    tasks = Arrival(arrival.owner, [(index,) for index in range(len(arrival))])
    return split_tasks(arrival.owner, tasks, shares=shares, labelled=labelled, seed=seed)
