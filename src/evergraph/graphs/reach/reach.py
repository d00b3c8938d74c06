"""Who lies within L hops: the paper's computation ego-subnetworks, exactly and in blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor

from evergraph.core.checks import check_choice
from evergraph.core.mapped import page_out
from evergraph.core.resources import Resources
from evergraph.graphs.csr import pointer_type
from evergraph.graphs.cuts import cut
from evergraph.graphs.graph import Graph
from evergraph.graphs.kernels.choice import numba_works
from evergraph.graphs.kernels.numba_ego import ego_sizes
from evergraph.graphs.propagation import pattern, step_out
from evergraph.graphs.reach.cost import METHODS, choose, reach_cost, search_costs, walk_counts
from evergraph.graphs.reach.covered import covered_nodes
from evergraph.graphs.reach.hyperloglog import REGISTERS, estimate_reach_sizes
from evergraph.graphs.rows import RowSweep

# Walks expanded at a time; about 200 MB while a block is worked on, whatever the graph.
BLOCK_WALKS = 1 << 24

# What a boolean matrix with every node its own neighbour takes an entry while it is made; from
# 2^31 entries on SciPy holds their columns in 64 bits as well.
PATTERN_BYTES = {torch.int32: 11, torch.int64: 27}

# From so many steps on, what a search saves against sparse products is more than numba takes to
# start (benchmarks/reach_at_scale.py).
SEARCH_PAYS_FROM = 2e7

# Blocks a worker: one that met cheap nodes takes the next block while another is busy.
_BLOCKS = 4


def reach_blocks(
    graph: Graph,
    nodes: Tensor,
    *,
    hops: int,
    block_walks: int = BLOCK_WALKS,
    resources: Resources | None = None,
) -> Iterator[tuple[slice, scipy.sparse.csr_matrix]]:
    """Yield, block by block, which nodes each of ``nodes`` reaches within ``hops``, itself too.

    A block is a slice of ``nodes`` and a boolean CSR matrix [block, all nodes]. Blocks are cut so
    that none expands more than ``block_walks`` walks; an N x N matrix never exists.
    """
    found = ball_blocks(graph, nodes, hops=hops, block_walks=block_walks, resources=resources)
    for block, balls in found:
        members = next(balls)
        for members in balls:  # noqa: B007  (the last one counts; those before it may go)
            pass
        yield block, members


def ball_blocks(
    graph: Graph,
    nodes: Tensor,
    *,
    hops: int,
    block_walks: int = BLOCK_WALKS,
    resources: Resources | None = None,
) -> Iterator[tuple[slice, Iterator[scipy.sparse.csr_matrix]]]:
    """Yield, block by block, what each of ``nodes`` reaches within 0, 1, ..., ``hops``.

    As ``reach_blocks``, with a matrix for every distance on the way: each is one step from the one
    before, so all of them together cost what the last one does. Of the adjacency those rows that
    are stepped through are copied, once, whatever the number of blocks; resources: it is asked
    first whether they fit.
    """
    wanted = nodes.cpu().numpy()
    walks = walk_counts(graph, nodes, hops=hops).cpu().numpy()
    rows = _stepped_through(graph, nodes, hops, float(walks.sum()), resources or Resources())
    adjacency = pattern(RowSweep.of(graph), rows)
    for block in cut(walks, block_walks):
        yield block, _balls(wanted[block], adjacency, hops)


def _stepped_through(
    graph: Graph, nodes: Tensor, hops: int, walks: float, resources: Resources
) -> Tensor:
    """Return the nodes that a walk may take a step from; all where finding them does not pay.

    walks: how many there are in all.  -> int64 [rows]
    """
    if walks >= graph.num_edges and resources.fits(_pattern_bytes(graph.num_edges)):
        return torch.arange(graph.num_nodes)
    rows = covered_nodes(graph, nodes, hops=max(hops - 1, 0)).nonzero().flatten()
    entries = int(graph.degrees[rows.to(graph.device)].sum())
    resources.check(_pattern_bytes(entries), "exact reach by sparse products")
    return rows


def _pattern_bytes(entries: int) -> int:
    return PATTERN_BYTES[pointer_type(entries)] * entries


def _balls(
    nodes: npt.NDArray[np.int64], adjacency: scipy.sparse.csr_matrix, hops: int
) -> Iterator[scipy.sparse.csr_matrix]:
    members = _identity_rows(nodes, adjacency)
    yield members
    for hop in range(hops):
        members = step_out(members, adjacency) if hop else adjacency[nodes]
        yield members


def reach(graph: Graph, nodes: Tensor, *, hops: int) -> list[Tensor]:
    """Return the nodes within ``hops`` of each of ``nodes``, ascending.  [int64 [size], ...]

    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), features=torch.eye(4),
    ...                         labels=torch.zeros(4, dtype=torch.long), undirected=True)
    >>> reach(path, torch.tensor([0, 1]), hops=2)
    [tensor([0, 1, 2]), tensor([0, 1, 2, 3])]
    """
    found: list[Tensor] = []
    for _, members in reach_blocks(graph, nodes, hops=hops):
        members.sort_indices()
        rows = np.split(members.indices, members.indptr[1:-1])
        found.extend(torch.from_numpy(row.astype(np.int64)) for row in rows)
    return found


def reach_sizes(
    graph: Graph,
    nodes: Tensor,
    *,
    hops: int,
    method: str = "auto",
    resources: Resources | None = None,
) -> Tensor:
    """Return how many nodes lie within ``hops`` of each of ``nodes``.  int64 [nodes]

    method: "exact"; "estimated" (``estimate_reach_sizes``, rounded); or "auto": exact unless that
        would take more than a minute and the estimate less, which the log says. The choice depends
        on the graph and the nodes alone, and up to one hop everything is exact.
    """
    check_choice("reach method", method, METHODS)
    if hops < 2:
        near = graph.degrees[nodes.to(graph.device)].cpu() + 1
        return near if hops else torch.ones_like(near)
    costs = search_costs(graph, nodes, hops=hops)
    cost = reach_cost(graph, costs, hops=hops, registers=REGISTERS)
    if choose(method, cost, nodes=len(nodes), hops=hops) == "exact":
        if search_pays(costs):
            return searched_sizes(graph, nodes, hops=hops, costs=costs, resources=resources)
        return multiplied_sizes(graph, nodes, hops=hops, resources=resources)
    return estimate_reach_sizes(graph, nodes, hops=hops, resources=resources).round().long()


def multiplied_sizes(
    graph: Graph, nodes: Tensor, *, hops: int, resources: Resources | None = None
) -> Tensor:
    """Return exact sizes from sparse products, for small graphs and without numba.  int64 [nodes]

    They copy rows of the adjacency, unlike ``searched_sizes``.
    """
    sizes = np.empty(len(nodes), dtype=np.int64)
    for block, members in reach_blocks(graph, nodes, hops=hops, resources=resources):
        sizes[block] = np.diff(members.indptr)
    return torch.from_numpy(sizes)


def _identity_rows(
    nodes: npt.NDArray[np.int64], adjacency: scipy.sparse.csr_matrix
) -> scipy.sparse.csr_matrix:
    ones = np.ones(len(nodes), dtype=bool)
    return scipy.sparse.csr_matrix(
        (ones, nodes, np.arange(len(nodes) + 1)), shape=(len(nodes), adjacency.shape[1])
    )


def search_pays(costs: npt.NDArray[np.float64]) -> bool:
    """Whether to search: sparse products also copy rows, but numba takes its time to start."""
    return bool(costs.sum() >= SEARCH_PAYS_FROM) and numba_works()


def searched_sizes(
    graph: Graph,
    nodes: Tensor,
    *,
    hops: int,
    costs: npt.NDArray[np.float64],
    resources: Resources | None = None,
) -> Tensor:
    """Return how many nodes lie within ``hops`` of each of ``nodes``.  int64 [nodes]

    costs: what the search from each costs.  [nodes]
    """
    engine = (resources or Resources()).engine
    rows = RowSweep(graph.indptr.cpu(), graph.indices.cpu(), graph.mapped)  # no features
    pieces = engine.workers * _BLOCKS if engine.workers > 1 else 1
    blocks = [(b.start, b.stop) for b in cut(costs, float(costs.sum()) / pieces)]
    shared = {"rows": rows, "nodes": nodes.cpu(), "hops": hops, "costs": costs}
    found = list(engine.map(search_block, blocks, shared=shared))
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)


def search_block(
    block: tuple[int, int],
    *,
    rows: RowSweep,
    nodes: Tensor,
    hops: int,
    costs: npt.NDArray[np.float64],
) -> Tensor:
    """Return the sizes of some of the nodes; a pure function.  int64 [block]"""
    part, (indptr, indices) = slice(*block), rows.plain
    sizes = ego_sizes(indptr, indices, nodes[part], hops=hops, costs=costs[part])
    if rows.mapped:
        page_out(indices)
    return sizes
