"""Smoothed rows corrected by differences, as long as rounding leaves no trace.

Z_v = l_v P_v with P_v = Σ_u w_vu r_u m_u. What u gives has changed by d_u = r'_u m'_u - r_u m_u,
an entry by w'_vu - w_vu; so

    P'_v - P_v = Σ_u w'_vu d_u + Σ_u (w'_vu - w_vu) r_u m_u
    Z'_v = (l'_v / l_v) Z_v + l'_v (P'_v - P_v)

Sums are made in float64, or carry along what is rounded away. Beside each row stands a bound of
what rounding may have added up to since it was last summed anew: a correction adds one rounding of
the row, one more where l changed, and six of all that is pushed (in d, in the sum, and in l).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor

from evergraph.graphs.kernels.row_ranges import in_parts
from evergraph.online.graph import live_kernel
from evergraph.online.graph.embedding_update import EmbeddingUpdate
from evergraph.online.graph.graph_change import Entries
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.graph.live_smoother import LiveSmoother
from evergraph.online.graph.pushing import Direct, Pushed, push

Array = npt.NDArray[Any]

ROUNDING = 2.0**-24  # the most that rounding to float32 moves a value, relative to it
# Of a row's largest value: past it a row is summed anew. Rounding that always goes the same way
# takes 64 corrections to get there.
DRIFT = 64 * ROUNDING


class Moved(NamedTuple):
    """Rows that are others now.

    Attributes:
        nodes: positions, ascending.  int64 [n]
        before: what the rows were.  float32 [n, width]
        after: what they are.  float32 [n, width]
    """

    nodes: Tensor
    before: Tensor
    after: Tensor


Changed = Moved | EmbeddingUpdate  # rows that are others now, there or to be made


class Differences(NamedTuple):
    """What is pushed, one row each, and whom it reaches.

    Attributes:
        rows: d_u of all that give something else, then r_u m_u of the columns whose entries
            changed.  float32 [differences, width]
        sizes: the largest value of each, without sign.  float32 [differences]
        pushed: which of them reach which nodes.
    """

    rows: Array
    sizes: Array
    pushed: Pushed


def differences(
    graph: GrowingGraph,
    smoother: LiveSmoother,
    sent: Changed,
    values: Tensor,
    touched: Tensor,
    entries: Entries,
) -> Differences:
    """Return by what the sums of which rows change.

    sent: who gives something else; values: what all give now, [positions, width]; touched: who
    gathers otherwise, int64 [n]; entries: in what
    """
    nodes, others = sent.nodes.numpy(), touched.numpy()
    if smoother.scheme == "symmetric":  # their own factor is in what they give
        nodes = graph.distinct(np.concatenate([nodes, others]))
    columns, places = np.unique(entries.columns, return_inverse=True)
    direct = Direct(entries.rows, len(nodes) + places.reshape(-1), entries.differences)
    pushed = push(graph, nodes, direct=direct, others=others, loops=smoother.self_loops)
    (now, was), (_, gave) = smoother.right(nodes), smoother.right(columns)
    # 0 · now + r_u · before: what columns gave
    factors = np.concatenate([now, np.zeros(len(columns))]), np.concatenate([was, -gave])
    both = np.concatenate([nodes, columns])
    compiled = live_kernel.choose(entries=graph.num_edges) == "numba"
    make = _subtract_compiled if compiled else _subtract
    return Differences(*make(both, values.numpy(), sent, *factors), pushed)


def _places(nodes: Array, sent: Changed) -> Array:
    """Return where nodes stand among those that were sent, below 0 where they do not."""
    known = sent.nodes.numpy()
    if not len(known):
        return np.full(len(nodes), -1)
    places = np.minimum(np.searchsorted(known, nodes), len(known) - 1)
    return np.where(known[places] == nodes, places, -1)


def _subtract(
    nodes: Array, values: Array, sent: Changed, new: Array, old: Array
) -> tuple[Array, Array]:
    now = values[nodes].astype(np.float64)
    before, places = now.copy(), _places(nodes, sent)
    before[places >= 0] = sent.before.numpy()[places[places >= 0]]  # ``after`` is what they are
    rows = (new[:, None] * now - old[:, None] * before).astype(np.float32)
    return rows, np.abs(rows).max(1, initial=0)


def _subtract_compiled(
    nodes: Array, values: Array, sent: Changed, new: Array, old: Array
) -> tuple[Array, Array]:
    from evergraph.online.graph.push_kernels import subtract

    rows = np.empty((len(nodes), values.shape[1]), np.float32)
    sizes = np.empty(len(nodes), np.float32)
    moved = sent.before.numpy(), sent.after.numpy()
    given = (nodes, _places(nodes, sent), values, *moved, new, old, rows, sizes)
    in_parts(
        lambda part: subtract(*given, part.start, part.stop),
        np.ones(len(nodes), np.int64),
        each=2 * values.shape[1],
    )
    return rows, sizes


def correct(
    graph: GrowingGraph,
    smoother: LiveSmoother,
    found: Differences,
    new: Tensor,
    values: Tensor,
    drift: Array,
) -> tuple[Moved, Tensor, Tensor]:
    """Correct rows of ``values`` in place; return them, which are due, and their largest values.

    Due are rows that are left to be summed anew, because correcting them would cost as much or
    because nothing stood there.

    new: nodes that came, int64 [new]; drift: the bound of what rounding has added up to in each
    row, float32 [positions] -> rows, bool [rows], float32 [rows]
    """
    rows = found.pushed.rows
    left, were = smoother.left(rows)
    lengths = np.diff(found.pushed.indptr)
    degrees = graph.degrees(torch.from_numpy(rows)).numpy() + int(smoother.self_loops)
    first = int(new[0]) if len(new) else graph.num_nodes
    anew = (lengths >= degrees) | (were == 0) | (rows >= first)
    ratios = left / np.where(were == 0, 1, were)
    compiled = live_kernel.choose(entries=graph.num_edges) == "numba"
    make = _correct_compiled if compiled else _correct
    made = make(found, ratios, left, anew, values.numpy(), drift)
    before, after, tops = map(torch.from_numpy, made)
    return Moved(torch.from_numpy(rows), before, after), torch.from_numpy(anew), tops


def _correct(
    found: Differences, ratios: Array, left: Array, anew: Array, values: Array, drift: Array
) -> tuple[Array, Array, Array]:
    nodes, indptr, places, weights = found.pushed
    shape = (len(nodes), len(found.rows))
    matrix = scipy.sparse.csr_matrix((weights.astype(np.float64), places, indptr), shape=shape)
    before = values[nodes]
    sums = left[:, None] * (matrix @ found.rows.astype(np.float64))
    after = (ratios[:, None] * before + sums).astype(np.float32)
    reached = left * (abs(matrix) @ found.sizes.astype(np.float64))
    tops = np.abs(after).max(1, initial=0)
    rounded = np.where(ratios == 1, tops, 2 * tops) + 6 * reached
    bounds = ratios * drift[nodes] + ROUNDING * rounded
    kept = ~anew
    values[nodes[kept]], drift[nodes[kept]] = after[kept], bounds[kept]
    return before, after, tops


def _correct_compiled(
    found: Differences, ratios: Array, left: Array, anew: Array, values: Array, drift: Array
) -> tuple[Array, Array, Array]:
    from evergraph.graphs.kernels.numba_sum import Flat
    from evergraph.online.graph import push_kernels

    width = values.shape[1]
    before, after = (np.empty((len(found.pushed.rows), width), np.float32) for _ in range(2))
    tops = np.empty(len(before), np.float32)
    given = (*found.pushed, Flat(found.rows.reshape(-1), width), found.sizes, ratios, left, anew)
    flat = (values.reshape(-1), drift, before.reshape(-1), after.reshape(-1), tops)
    in_parts(
        lambda part: push_kernels.correct(*given, ROUNDING, width, *flat, part.start, part.stop),
        np.diff(found.pushed.indptr) + 3,
        each=width,
    )
    return before, after, tops


def differ(rows: Array, others: Array) -> Array:
    """Return which rows are not the same, bit for bit.  2 x float32 [n, width] -> bool [n]

    >>> differ(np.array([[1, 2], [3, 4]], np.float32), np.array([[1, 2], [3, 5]], np.float32))
    array([False,  True])
    """
    word = np.uint64 if rows.shape[1] % 2 == 0 else np.uint32  # fewer comparisons of wider words
    found: Array = (rows.view(word) != others.view(word)).any(1)
    return found
