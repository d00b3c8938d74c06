"""Ollivier's curvature: how much closer two neighbours' neighbourhoods lie than they do."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor

from evergraph.core.checks import check_integer, check_number
from evergraph.core.errors import ConfigurationError
from evergraph.graphs.curvature.forman import Nodes, undirected_edges
from evergraph.graphs.graph import Graph
from evergraph.graphs.propagation import pattern, step_out

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


def ollivier_curvature(
    graph: Graph,
    *,
    alpha: float = 0.5,
    entries: Tensor | None = None,
    most_walks: int | None = 50_000,
) -> Tensor:
    """Return the Ollivier curvature of adjacency entries.  float32 [edges], or [m] for ``entries``

    κ(u,v) = 1 - W₁(m_u, m_v), where m_x leaves a share ``alpha`` of its mass on x and spreads the
    rest evenly over x's neighbours, and W₁ is the cost of the best transport over shortest paths
    (Ollivier 2009; ``alpha`` = 0.5 is GraphRicciCurvature's default on an unweighted graph). The
    graph counts as undirected: where it is not, neighbourhoods and distances are those of
    ``graph.to_undirected()``, and an entry has the value of its edge there.

    entries: optional int64 [m], which entries of ``graph.indices`` to look at.
    most_walks: how many two-step walks may join the mass to be moved to where it is missing; None
        is no limit. The value is exact up to there. Beyond, distances of three count as two, so
        the value is an upper bound on κ: with so many walks, few pairs are three apart. On Amazon
        Computers half of the edges are beyond, by 0.009 too high on average, and the order of all
        edges hardly changes (rank correlation 0.999 with the exact values).

    On a path the curvature is 0 in the middle and positive at an end, which has nowhere to go:

    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), features=torch.eye(4),
    ...                         labels=torch.zeros(4, dtype=torch.long), undirected=True)
    >>> ollivier_curvature(path)
    tensor([0.5000, 0.5000, 0.0000, 0.0000, 0.5000, 0.5000])
    """
    check_number("alpha", alpha, least=0, most=1)
    if most_walks is not None:
        check_integer("most_walks", most_walks, least=0)
    if entries is not None:
        _check_entries(entries, graph.num_edges)
    both = graph.to_undirected()
    adjacency = pattern(both.indptr, both.indices)
    first, second, edge = undirected_edges(graph, entries)
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    values = np.array([_edge_curvature(adjacency, u, v, alpha, most_walks) for u, v in pairs])
    return torch.from_numpy(values[edge]).float().to(graph.device)


def _check_entries(entries: Tensor, edges: int) -> None:
    """Raise unless every entry is the number of an adjacency entry."""
    if entries.dim() != 1 or entries.dtype not in (torch.int64, torch.int32):
        raise ConfigurationError(
            f"entries must be integers [m], not {entries.dtype} {list(entries.shape)}"
        )
    if entries.numel() and not (0 <= int(entries.min()) <= int(entries.max()) < edges):
        raise ConfigurationError(
            f"entries must lie from 0 to {edges - 1}, "
            f"not from {int(entries.min())} to {int(entries.max())}"
        )


def _edge_curvature(
    adjacency: scipy.sparse.csr_matrix, u: int, v: int, alpha: float, most_walks: int | None
) -> float:
    """Return κ(u,v) of two neighbours, given the adjacency with every node its own neighbour.

    With r = α / (1 - α) and W the cost where a node keeps r and gives each neighbour 1 / degree,
    κ = (1 - α) (1 + r - W). An r above 1 / D, D the larger degree, makes u hold more than v sends
    it. The surplus leaves for v or beyond, so through v: W grows as r does, and r = 1 / D will do.
    """
    degrees = len(_row(adjacency, u)) - 1, len(_row(adjacency, v)) - 1
    fine = MOST_MASS // max(degrees)  # mass is counted in units of 1 / (deg(u) · deg(v) · fine)
    unit = degrees[0] * degrees[1] * fine
    kept = min(degrees) * fine
    if alpha * (max(degrees) + 1) < 1:
        kept = round(alpha / (1 - alpha) * unit)
    nodes, excess = _excess(adjacency, u, v, kept, fine)
    return (1 - alpha) * (1 + (kept - _cost(adjacency, nodes, excess, most_walks)) / unit)


def _excess(
    adjacency: scipy.sparse.csr_matrix, u: int, v: int, kept: int, fine: int
) -> tuple[Nodes, Mass]:
    """Return the nodes in reach of u or v, and by how much m_u exceeds m_v on them.

    What both put on a node cancels: distances are a metric, so it need not move.
    """
    near_u, near_v = _row(adjacency, u), _row(adjacency, v)
    nodes = np.union1d(near_u, near_v)
    excess = np.zeros(len(nodes), dtype=np.int64)
    excess[np.searchsorted(nodes, near_u)] += (len(near_v) - 1) * fine
    excess[np.searchsorted(nodes, near_v)] -= (len(near_u) - 1) * fine
    excess[np.searchsorted(nodes, u)] = kept - (len(near_u) - 1) * fine
    excess[np.searchsorted(nodes, v)] = (len(near_v) - 1) * fine - kept
    return nodes, excess


def _cost(
    adjacency: scipy.sparse.csr_matrix, nodes: Nodes, excess: Mass, most_walks: int | None
) -> int:
    """Return the least cost of moving what some nodes have too much to those that lack it."""
    sources, sinks = nodes[excess > 0], nodes[excess < 0]
    out_of, into = adjacency[sources], adjacency[sinks]  # [sources, all nodes], [sinks, all nodes]
    exact = most_walks is None or _walks(out_of, into) <= most_walks
    one = out_of[:, sinks]
    two = step_out(out_of, into.T) if exact else None
    return transport_cost(excess[excess > 0], -excess[excess < 0], one, two)


def _walks(out_of: scipy.sparse.csr_matrix, into: scipy.sparse.csr_matrix) -> int:
    """Return how many walks of two steps lead from the first's rows to the second's."""
    nodes = out_of.shape[1]
    leaving = np.bincount(out_of.indices, minlength=nodes)
    return int(leaving @ np.bincount(into.indices, minlength=nodes))


def _row(adjacency: scipy.sparse.csr_matrix, node: int) -> Nodes:
    start, stop = adjacency.indptr[[node, node + 1]]
    return np.asarray(adjacency.indices[start:stop], dtype=np.int64)
