"""Nodes arrive class by class: every task brings whole classes that were never met before."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from evergraph.streams.arrival import NOWHERE, Arrival


def by_class(labels: Tensor, tasks: Sequence[tuple[int, ...]]) -> Arrival:
    """Return the arrival of all nodes of a class at once.

    labels: int64 [nodes]; tasks: the classes of each, as ``order_classes`` returns them.

    >>> by_class(torch.tensor([0, 1, 2, -1, 1]), [(2,), (1,)]).owner
    tensor([-1,  1,  0, -1,  1])
    """
    width = int(labels.max()) + 2  # the last place is for unlabelled nodes, numbered -1
    owner = torch.full((width,), NOWHERE)
    for index, classes in enumerate(tasks):
        owner[list(classes)] = index
    return Arrival(owner[labels], list(tasks))
