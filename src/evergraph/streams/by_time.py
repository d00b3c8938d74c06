"""Nodes arrive when they appeared: classes come back, and some tasks bring no new one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.streams.arrival import NOWHERE, Arrival, arrival_of


def by_time(
    labels: Tensor, time: Tensor | None, *, classes: Sequence[int], tasks: int | None = None
) -> Arrival:
    """Return the arrival of nodes in the order of their times.

    Nodes of one time arrive together. Domains are times: ``join`` numbers its graphs so.

    labels, time: int64 [nodes]; classes: those that arrive at all; tasks: at most how many, of
    consecutive times and nearly equal size; None makes a task of every time.

    >>> by_time(torch.tensor([0, 1, 0, 1]), torch.tensor([1999, 1998, 2003, 1998]),
    ...         classes=[0, 1]).owner
    tensor([1, 0, 2, 0])
    """
    if time is None:
        raise DataError("by = 'time' needs the time of every node, and the graph has none")
    here = torch.isin(labels, torch.tensor(classes))
    _, place, counts = time[here].unique(return_inverse=True, return_counts=True)
    task_of_time = group_times(counts.tolist(), len(counts) if tasks is None else tasks)
    owner = torch.full_like(labels, NOWHERE)
    owner[here] = task_of_time[place]
    return arrival_of(owner, labels, classes=classes)


def group_times(counts: Sequence[int], tasks: int) -> Tensor:
    """Return the task of each time, of which no task has none.  -> int64 [times]

    Each task in its turn takes the times that bring it nearest to an equal share of what is left.

    counts: nodes of each time, in order.

    >>> group_times([1, 1, 2, 9, 3, 4], 3)
    tensor([0, 0, 0, 1, 2, 2])
    """
    before = [0, *accumulate(counts)]  # nodes before each time, and all of them
    cuts = [0]
    for left in range(min(tasks, len(counts)), 1, -1):
        done = before[cuts[-1]]
        cut = _nearest(before, done + (before[-1] - done) / left)
        # At least one time for this task and for each that follows.
        cuts.append(min(max(cut, cuts[-1] + 1), len(counts) - left + 1))
    return torch.bucketize(torch.arange(len(counts)), torch.tensor(cuts[1:]), right=True)


def _nearest(ascending: Sequence[int], wanted: float) -> int:
    """Return where the number nearest to ``wanted`` stands; the first of two equally near."""
    place = bisect_left(ascending, wanted)
    return place if ascending[place] - wanted < wanted - ascending[place - 1] else place - 1
