"""The least cost of moving mass over distances of one, two and three steps, as a maximum flow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse
import scipy.sparse.csgraph

# What an arc without a limit can carry: more than any supply, within scipy's 32 bits.
UNLIMITED = 2**31 - 1

Mass = npt.NDArray[np.int64]


def transport_cost(
    supply: Mass,
    demand: Mass,
    one: scipy.sparse.csr_matrix,
    two: scipy.sparse.csr_matrix | None = None,
) -> int:
    """Return the least Σ mass · distance that turns a supply into a demand of the same total.

    supply: int64 [m], all positive, as is demand: int64 [n]; one, two: boolean [m, n], which pairs
    lie within one step and within two. All others lie three apart, or two where ``two`` is None.

    By duality the cost is the greatest Σ f · (supply - demand) over all f that differ by no more
    than the distance, and whole numbers do: 1 .. 3 at the sources, 0 .. 2 at the sinks. Whether f
    is at least 2 (or 3) at a source and 1 (or 2) at a sink are yes-no choices; a source's yes
    forces a sink's, which makes the best choice a minimum cut. So the cost is 3 · total - flow,
    where every source and sink stands once for each of its choices:

        source at least 2 -> sink at least 1     where the distance is 1
        source at least 3 -> sink at least 2     where the distance is 1
        source at least 3 -> sink at least 1     where the distance is 1 or 2

    Distances of one and two need only the first line, and the cost is 2 · total - flow.

    >>> apart = scipy.sparse.csr_matrix((1, 1), dtype=bool)
    >>> transport_cost(np.array([5]), np.array([5]), apart, apart), \\
    ...     transport_cost(np.array([5]), np.array([5]), apart)
    (15, 10)
    """
    arcs, choices = one, 1
    if two is not None:
        arcs, choices = scipy.sparse.bmat([[one, None], [two, one]], format="csr"), 2
    flow = _maximum_flow(np.tile(supply, choices), np.tile(demand, choices), arcs)
    return (choices + 1) * int(supply.sum()) - flow


def _maximum_flow(supply: Mass, demand: Mass, arcs: scipy.sparse.csr_matrix) -> int:
    """Return how much of a supply the arcs can carry to a demand.  [m], [n], [m, n] -> int

    Node 0 feeds the sources 1 .. m, which feed the sinks m + 1 .. m + n; the last node drains.
    """
    sources, sinks = arcs.shape
    drain, inner = sources + sinks + 1, sources + arcs.nnz
    indptr = np.concatenate(
        [[0], sources + arcs.indptr, np.arange(inner + 1, inner + sinks + 1), [inner + sinks]]
    )
    indices = np.concatenate(
        [np.arange(1, sources + 1), sources + 1 + arcs.indices, np.full(sinks, drain)]
    )
    capacity = np.concatenate([supply, np.full(arcs.nnz, UNLIMITED), demand]).astype(np.int32)
    network = scipy.sparse.csr_matrix((capacity, indices, indptr), shape=(drain + 1, drain + 1))
    return int(scipy.sparse.csgraph.maximum_flow(network, 0, drain).flow_value)
