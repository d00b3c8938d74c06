"""Nodes that nobody classifies, and with which task they come."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from evergraph.graphs import UNLABELLED, Graph

Unlabelled = Literal["leave-out", "along"]
UNLABELLED_WAYS: tuple[str, ...] = get_args(Unlabelled)
ROUNDS = 2  # how many unlabelled nodes in a row lead from a task to one that comes with it


def with_companions(graph: Graph, owner: Tensor) -> Tensor:
    """Return the task of each node, where unlabelled nodes come with the first that needs them.

    A node without a class, such as the author of classified papers, comes with the earliest task
    that has a neighbour of it, or a neighbour's neighbour by way of another node without a class.

    owner: the task of each node, -1 for nodes of none.  int64 [nodes] -> int64 [nodes]

    >>> star = Graph.from_edges(torch.tensor([[0, 0, 3], [1, 2, 4]]), features=torch.zeros(5, 1),
    ...                         labels=torch.tensor([-1, 0, 1, -1, -1]), undirected=True)
    >>> with_companions(star, torch.tensor([-1, 1, 0, -1, -1]))
    tensor([ 0,  1,  0, -1, -1])
    """
    never = len(owner) + 1
    free = graph.labels.cpu() == UNLABELLED
    rows, columns = graph.edge_rows().cpu(), graph.indices.cpu().long()
    when = owner.where(owner >= 0, never)
    for _ in range(ROUNDS):
        near = when.clone()
        for one, other in ((rows, columns), (columns, rows)):
            near.scatter_reduce_(0, one, when[other], "amin")
        when = torch.where(free, near, when)
    return when.where(when < never, -1)
