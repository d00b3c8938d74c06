"""Which differences of messages reach which rows of a growing graph."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.graph.neighbour_lists import Entries, distinct

Array = npt.NDArray[Any]
SCANNED_PER_SORTED = 64  # positions that can be scanned in the time that sorting one more takes


class Pushed(NamedTuple):
    """For every affected row the differences that reach it, as CSR."""

    rows: Array  # positions, ascending, each once.  int64 [rows]
    indptr: Array  # start of each row's differences.  int64 [rows + 1]
    places: Array  # indices of differences.  integer [pairs]
    weights: Array  # of the differences.  float32 [pairs]


def push(
    graph: GrowingGraph, nodes: Array, *, direct: Entries, others: Array, loops: bool
) -> Pushed:
    """Push the differences of nodes, numbered from 0, along their edges.

    nodes: whose messages changed, ascending, each once, int64 [n]; direct: further differences that
    reach a single row each, with their numbers as columns; others: rows to include, int64 [m];
    loops: whether nodes have self-loops

    >>> import torch
    >>> path = GrowingGraph(num_features=1)
    >>> _ = path.add(torch.zeros(3, 1), torch.tensor([[0, 1], [1, 2]]))
    >>> nobody = Entries(*(np.empty(0, np.int64) for _ in range(3)))
    >>> pushed = push(path, np.array([0]), direct=nobody, others=np.array([2]), loops=True)
    >>> pushed.rows, pushed.indptr, pushed.places
    (array([0, 1, 2]), array([0, 1, 2, 2]), array([0, 0]))
    """
    if not graph.compiled:
        indptr, near = graph.out_of.rows(nodes)
        numbers = np.arange(len(nodes))
        own = nodes if loops else nodes[:0]
        owners = np.concatenate([near, own, direct.rows])
        places = np.concatenate(
            [np.repeat(numbers, np.diff(indptr)), numbers[: len(own)], direct.columns]
        )
        loop = np.ones(len(own), np.float32)
        given = np.concatenate([graph.out_of.weights(nodes), loop, direct.differences])
        rows = distinct(np.concatenate([nodes, others, owners]))
        where = np.searchsorted(rows, owners)
        order = np.argsort(where, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(where, minlength=len(rows)))])
        return Pushed(rows, indptr, places[order], given[order].astype(np.float32))
    from evergraph.online.graph.live_kernels import count_pushed, fill_pushed, list_met

    starts, counts, pool, weights = graph.out_of.lying()
    pairs = int(counts[nodes].sum()) + loops * len(nodes) + len(direct.rows)
    rows = np.empty(pairs + len(nodes) + len(others) + 1, np.int64)  # one is written in vain
    tally = graph.tally
    found = count_pushed(nodes, starts, counts, pool, direct.rows, others, loops, tally, rows)
    if found * SCANNED_PER_SORTED < len(tally):
        rows[:found].sort()
    else:
        list_met(tally, rows)
    rows = rows[:found]
    indptr, places = np.empty(found + 1, np.int64), np.empty(pairs, np.int32)
    given = np.empty(pairs, np.float32)
    weighed = np.empty(0, np.float32) if weights is None else weights
    fill_pushed(
        nodes, starts, counts, pool, weighed, *direct, loops, rows, tally, indptr, places, given
    )
    return Pushed(rows, indptr, places, given)
