"""Labelled nodes as a task, for methods that learn by tasks."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.core.label_space import LabelSpace
from evergraph.graphs import Graph
from evergraph.streams import Task
from evergraph.streams.task import Lease


def task_of(
    graph: Graph,
    ids: Tensor,
    *,
    nodes: Tensor,
    labels: Tensor,
    classes: int,
    held_out: int | None = None,
) -> Task:
    """Return one task that teaches these nodes.

    ids: which node each node of ``graph`` is, ascending; nodes: positions in ``graph``, with their
    labels; classes: how many are known; held_out: every n-th node is for validation, this is n.

    >>> lone = Graph.from_edges(torch.empty(2, 0, dtype=torch.long), features=torch.eye(3),
    ...                         labels=torch.full((3,), -1))
    >>> task = task_of(lone, torch.tensor([4, 7, 9]), nodes=torch.tensor([0, 2]),
    ...                labels=torch.tensor([1, 1]), classes=2, held_out=2)
    >>> task.train, task.validation, task.met_sizes
    (tensor([0]), tensor([2]), {1: 2})
    """
    aside = torch.zeros(len(nodes), dtype=torch.bool)
    if held_out is not None:
        aside[held_out - 1 :: held_out] = True
    sizes = {label: count for label, count in enumerate(labels.bincount().tolist()) if count}
    return Task(
        index=0,
        label_space=LabelSpace("class-il", (classes,)),
        ids=ids,
        train=nodes[~aside],
        train_labels=labels[~aside],
        validation=nodes[aside],
        validation_labels=labels[aside],
        own=nodes,
        class_sizes=sizes,
        met_sizes=sizes,
        lease=Lease(graph),
    )
