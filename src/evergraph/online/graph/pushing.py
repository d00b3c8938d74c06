"""Who feels that some nodes give something else, and from whom."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evergraph.online.graph import live_kernel
from evergraph.online.graph.growing_graph import GrowingGraph

Array = npt.NDArray[Any]

SORTED = 64  # how many positions are looked through in the time that it takes to sort one more


class Pushed(NamedTuple):
    """For every row that feels a change, the differences that reach it, as CSR.

    Attributes:
        rows: positions, ascending, each once.  int64 [rows]
        indptr: where each row's differences begin.  int64 [rows + 1]
        places: which differences.  int64 [pairs]
        weights: how much each counts.  float32 [pairs]
    """

    rows: Array
    indptr: Array
    places: Array
    weights: Array


class Direct(NamedTuple):
    """Differences that reach a single row each.

    Attributes:
        rows: which.  int64 [pairs]
        places: which differences.  int64 [pairs]
        weights: how much each counts.  float32 [pairs]
    """

    rows: Array
    places: Array
    weights: Array


def push(
    graph: GrowingGraph, nodes: Array, *, direct: Direct, others: Array, loops: bool
) -> Pushed:
    """Push the differences of some nodes, the first of which is number 0, along their edges.

    A row's differences stand in a fixed order, whichever code puts them there.

    nodes: who gives something else, ascending, each once, int64 [n]; direct: differences beside
    these; others: rows that are to be among those found, int64 [m]; loops: whether nodes gather
    from themselves

    >>> import torch
    >>> path = GrowingGraph(num_features=1)
    >>> _ = path.add(torch.zeros(3, 1), torch.tensor([[0, 1], [1, 2]]))
    >>> nobody = Direct(*(np.empty(0, np.int64) for _ in range(3)))
    >>> pushed = push(path, np.array([0]), direct=nobody, others=np.array([2]), loops=True)
    >>> pushed.rows, pushed.indptr, pushed.places
    (array([0, 1, 2]), array([0, 1, 2, 2]), array([0, 0]))
    """
    compiled = live_kernel.choose(entries=graph.num_edges) == "numba"
    return (_push_compiled if compiled else _push)(graph, nodes, direct, others, loops)


def _push(graph: GrowingGraph, nodes: Array, direct: Direct, others: Array, loops: bool) -> Pushed:
    indptr, near, weights = graph.giving(nodes)
    numbers = np.arange(len(nodes))
    own = nodes if loops else nodes[:0]
    owners = np.concatenate([near, own, direct.rows])
    places = np.concatenate(
        [np.repeat(numbers, np.diff(indptr)), numbers[: len(own)], direct.places]
    )
    counted = np.concatenate([weights, np.ones(len(own), np.float32), direct.weights])
    rows = graph.distinct(np.concatenate([nodes, others, owners]))
    where = np.searchsorted(rows, owners)
    order = np.argsort(where, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(where, minlength=len(rows)))])
    return Pushed(rows, starts, places[order], counted[order].astype(np.float32))


def _push_compiled(
    graph: GrowingGraph, nodes: Array, direct: Direct, others: Array, loops: bool
) -> Pushed:
    from evergraph.online.graph.push_kernels import count_pushed, fill_pushed

    starts, counts, pool, weights = graph.gathered
    pairs = int(counts[nodes].sum()) + loops * len(nodes) + len(direct.rows)
    rows = np.empty(pairs + len(nodes) + len(others), np.int64)
    tally = graph.tally
    found = count_pushed(nodes, starts, counts, pool, direct.rows, others, loops, tally, rows)
    rows = np.sort(rows[:found]) if found * SORTED < len(tally) else np.flatnonzero(tally)
    indptr, places = np.empty(found + 1, np.int64), np.empty(pairs, np.int64)
    given = np.empty(pairs, np.float32)
    weighed = np.empty(0, np.float32) if weights is None else weights
    fill_pushed(
        nodes, starts, counts, pool, weighed, *direct, loops, rows, tally, indptr, places, given
    )
    return Pushed(rows, indptr, places, given)
