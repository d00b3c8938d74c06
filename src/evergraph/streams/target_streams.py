"""What a stream makes of nodes that have several labels or numbers in place of a class."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.label_space import LabelSpace
from evergraph.graphs import UNLABELLED, Graph, Targets
from evergraph.streams.arrival import Arrival
from evergraph.streams.splits import LEAST_NODES, SHARES, Shares, Split, split_tasks


def stand_in_labels(graph: Graph) -> Tensor:
    """Return the labels to cut and split by: one class of all nodes of which something is known.

    With a class of their own, nodes are labelled as they are; -> int64 [nodes], on the CPU.

    >>> values = torch.tensor([[1.0, float("nan")], [float("nan")] * 2, [0.5, 2.0], [0.0, 1.0]])
    >>> edges = torch.empty(2, 0, dtype=torch.long)
    >>> targets = Targets(values, "numbers")
    >>> stand_in_labels(Graph.from_edges(edges, features=torch.eye(4), targets=targets))
    tensor([ 0, -1,  0,  0])
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


def target_space(targets: Targets) -> LabelSpace:
    """Return the space of targets before any task: what they are and what they are called."""
    return LabelSpace("class-il", kind=targets.kind, names=targets.names)


def new_targets(targets: Targets, tasks: int) -> list[tuple[int, ...]]:
    """Return which targets are new with each task: all with the first, whatever is known of them.

    >>> new_targets(Targets(torch.ones(3, 2), "numbers"), 3)
    [(0, 1), (), ()]
    """
    return [tuple(range(len(targets.names))), *([()] * (tasks - 1))]


def split_each(
    arrival: Arrival, *, shares: Shares = SHARES, labelled: float | None = None, seed: int = 0
) -> list[Split]:
    """Split the nodes of every task at random in the same shares, as a class is split elsewhere.

    >>> arrival = Arrival(torch.arange(20) // 10, [(0,), ()])
    >>> [len(split.train) for split in split_each(arrival)]
    [6, 6]
    """
    counts = torch.bincount(arrival.owner[arrival.owner >= 0], minlength=len(arrival)).tolist()
    if min(counts) < LEAST_NODES:
        raise DataError(
            f"task {counts.index(min(counts))} has {min(counts)} nodes, too few to split into "
            f"training, validation and test: make fewer tasks than {len(arrival)} (parameter tasks)"
        )
    tasks = Arrival(arrival.owner, [(index,) for index in range(len(arrival))])
    return split_tasks(arrival.owner, tasks, shares=shares, labelled=labelled, seed=seed)
