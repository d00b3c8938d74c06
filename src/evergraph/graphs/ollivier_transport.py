"""The least cost of moving mass over distances of one, two and three steps, as a maximum flow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy

# The most mass that one node may hold, and so all that an arc need carry: scipy counts in 32 bits.
MOST_MASS = 1 << 30

Mass = npt.NDArray[np.int64]


def transport_cost(
    supply: Mass,
    demand: Mass,
    one: scipy.sparse.csr_matrix,
    two: scipy.sparse.csr_matrix | None = None,
) -> int:
    """Return the least Σ mass · distance that turns a supply into a demand of the same total.

    supply: int64 [m], from 1 to ``MOST_MASS``, as is demand: int64 [n]; one, two: boolean [m, n],
    which pairs lie within one step and within two. All others lie three apart, or two apart where
    ``two`` is None.

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
    arcs, choices = np.stack(one.nonzero()), 1  # [2, arcs]
    if two is not None:
        second = np.array([[len(supply)], [len(demand)]])  # where the second choices begin
        across = np.stack(two.nonzero()) + second * [[1], [0]]
        arcs, choices = np.concatenate([arcs, arcs + second, across], axis=1), 2
    flow = _maximum_flow(np.tile(supply, choices), np.tile(demand, choices), arcs)
    return (choices + 1) * int(supply.sum()) - flow


def _maximum_flow(supply: Mass, demand: Mass, arcs: npt.NDArray[np.int64]) -> int:
    """Return how much of a supply the arcs can carry to a demand.  [m], [n], [2, arcs] -> int

    Node 0 feeds the sources 1 .. m, which feed the sinks m + 1 .. m + n; the last node drains.
    """
    sources = 1 + np.arange(len(supply))
    sinks = 1 + len(supply) + np.arange(len(demand))
    drain = 1 + len(supply) + len(demand)
    rows = np.concatenate([np.zeros_like(sources), 1 + arcs[0], sinks])
    columns = np.concatenate([sources, 1 + len(supply) + arcs[1], np.full_like(sinks, drain)])
    unlimited = np.full(arcs.shape[1], MOST_MASS)
    capacity = np.concatenate([supply, unlimited, demand]).astype(np.int32)
    from scipy.sparse.csgraph import maximum_flow

    network = scipy.sparse.csr_matrix((capacity, (rows, columns)), shape=(drain + 1, drain + 1))
    return int(maximum_flow(network, 0, drain).flow_value)
