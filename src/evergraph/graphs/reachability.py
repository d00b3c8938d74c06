"""The nodes within L hops: the paper's computation ego-subnetworks, exactly and in blocks."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor

from evergraph.core.errors import check_choice
from evergraph.core.mapped import page_out
from evergraph.core.resources import Resources
from evergraph.graphs.csr import RowSweep, cut, neighbour_sums, pointer_type
from evergraph.graphs.graph import Graph
from evergraph.graphs.hyperloglog import REGISTERS, estimate_reach_sizes
from evergraph.graphs.kernels.row_ranges import compiled, in_parts, unsigned
from evergraph.graphs.propagation import pattern

# Walks expanded at a time; about 200 MB per block, whatever the graph.
BLOCK_WALKS = 1 << 24

# Bytes per entry while a boolean matrix with self-loops is built; from 2^31 entries on SciPy uses
# 64 bits for columns as well.
PATTERN_BYTES = {torch.int32: 11, torch.int64: 27}

# From this many steps on, a search saves more time against sparse products than numba takes to
# start (docs/decisions/0022).
SEARCH_PAYS_FROM = 2e7

# Blocks per worker: one that had cheap nodes takes the next block while another is busy.
_BLOCKS_PER_WORKER = 4
METHODS = ("auto", "exact", "estimated")
# Seconds on two cores (docs/decisions/0022): a walk of the exact search, and a register of
# an adjacency entry in a hop of the estimate. They are constants, so that the same command makes
# the same choice on every machine.
WALK_SECONDS = 2.5e-9
REGISTER_SECONDS = 0.2e-9
# Affordable seconds for exact sizes. Less on a GPU, where training would wait for them.
AFFORDABLE_SECONDS = {"cpu": 60.0, "cuda": 1.0}
# The share of rows below which selecting them is faster than reading all in sequence.
PICKED_BELOW = 0.3
logger = logging.getLogger(__name__)
Array = npt.NDArray[Any]


def ball_blocks(
    graph: Graph,
    nodes: Tensor,
    *,
    hops: int,
    block_walks: int = BLOCK_WALKS,
    resources: Resources | None = None,
) -> Iterator[tuple[slice, Iterator[scipy.sparse.csr_matrix]]]:
    """Yield, block by block, the nodes that each of ``nodes`` reaches within 0, 1, ..., ``hops``.

    A block is a slice of ``nodes``, and for every distance a boolean CSR matrix [block, all nodes]:
    each is one step from the one before, so all of them together cost as much as the last. None
    expands more than ``block_walks`` walks, so there is never an N x N matrix. The adjacency rows
    that are stepped through are copied once, whatever the number of blocks; resources: checked for
    their memory first.
    """
    node_ids = nodes.cpu().numpy()
    walks = walk_counts(graph, nodes, hops=hops).cpu().numpy()
    rows = _stepped_through(graph, nodes, hops, float(walks.sum()), resources or Resources())
    adjacency = pattern(graph.sweep, rows)

    def balls(centres: npt.NDArray[np.int64]) -> Iterator[scipy.sparse.csr_matrix]:
        centre_entries = (np.ones(len(centres), dtype=bool), centres, np.arange(len(centres) + 1))
        members = scipy.sparse.csr_matrix(centre_entries, shape=(len(centres), adjacency.shape[1]))
        yield members
        for hop in range(hops):
            members = members @ adjacency if hop else adjacency[centres]
            yield members

    for block in cut(walks, block_walks):
        yield block, balls(node_ids[block])


def _stepped_through(
    graph: Graph, nodes: Tensor, hops: int, walks: float, resources: Resources
) -> Tensor:
    """Return the nodes from which a walk may take a step; all if finding them costs more."""

    def pattern_bytes(entries: int) -> int:
        return PATTERN_BYTES[pointer_type(entries)] * entries

    if walks >= graph.num_edges and resources.fits(pattern_bytes(graph.num_edges)):
        return torch.arange(graph.num_nodes)
    rows = covered_nodes(graph, nodes, hops=max(hops - 1, 0)).nonzero().flatten()
    entries = int(graph.degrees[rows.to(graph.device)].sum())
    resources.check(pattern_bytes(entries), "exact reach by sparse products")
    return rows


def reach(graph: Graph, nodes: Tensor, *, hops: int) -> list[Tensor]:
    """Return the nodes within ``hops`` of each of ``nodes``, ascending.  [int64 [size], ...]

    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), features=torch.eye(4),
    ...                         labels=torch.zeros(4, dtype=torch.long), undirected=True)
    >>> reach(path, torch.tensor([0, 1]), hops=2)
    [tensor([0, 1, 2]), tensor([0, 1, 2, 3])]
    """
    neighbourhoods: list[Tensor] = []
    for _, balls in ball_blocks(graph, nodes, hops=hops):
        members = deque(balls, maxlen=1)[0]
        members.sort_indices()
        rows = np.split(members.indices, members.indptr[1:-1])
        neighbourhoods.extend(torch.from_numpy(row.astype(np.int64)) for row in rows)
    return neighbourhoods


def reach_sizes(
    graph: Graph,
    nodes: Tensor,
    *,
    hops: int,
    method: str = "auto",
    resources: Resources | None = None,
) -> Tensor:
    """Return the number of nodes within ``hops`` of each of ``nodes``.  int64 [nodes]

    method: "exact"; "estimated" (``estimate_reach_sizes``, rounded); or "auto": exact unless that
        would take more than a minute and the estimate less; the choice is logged. It depends on the
        graph and the nodes alone, and up to one hop everything is exact.
    """
    check_choice("reach method", method, METHODS)
    if hops < 2:
        one_hop = graph.degrees[nodes.to(graph.device)].cpu() + 1
        return one_hop if hops else torch.ones_like(one_hop)
    costs = search_costs(graph, nodes, hops=hops)
    seconds = predicted_seconds(graph, costs, hops=hops, registers=REGISTERS)
    chosen, why = choose(method, *seconds, device=graph.device)
    level = logging.INFO if chosen == "estimated" else logging.DEBUG
    message = "reach of %d nodes within %d hops: %s sizes, since %s"
    logger.log(level, message, len(nodes), hops, chosen, why)
    if chosen == "estimated":
        return estimate_reach_sizes(graph, nodes, hops=hops, resources=resources).round().long()
    # A search must save more than numba takes to start.
    if costs.sum() >= SEARCH_PAYS_FROM:
        return searched_sizes(graph, nodes, hops=hops, costs=costs, resources=resources)
    # Sparse products copy rows of the adjacency, unlike a search.
    sizes = np.empty(len(nodes), dtype=np.int64)
    for block, balls in ball_blocks(graph, nodes, hops=hops, resources=resources):
        sizes[block] = np.diff(deque(balls, maxlen=1)[0].indptr)
    return torch.from_numpy(sizes)


def searched_sizes(
    graph: Graph,
    nodes: Tensor,
    *,
    hops: int,
    costs: npt.NDArray[np.float64],
    resources: Resources | None = None,
) -> Tensor:
    """Return the number of nodes within ``hops`` of each of ``nodes``.  int64 [nodes]

    costs: cost of each search.  [nodes]
    """
    engine = (resources or Resources()).engine
    pieces = engine.workers * _BLOCKS_PER_WORKER if engine.workers > 1 else 1
    blocks = [(b.start, b.stop) for b in cut(costs, float(costs.sum()) / pieces)]
    shared = {"rows": graph.sweep.on_cpu(), "nodes": nodes.cpu(), "hops": hops, "costs": costs}
    sizes = list(engine.map(search_block, blocks, shared=shared))
    return torch.cat(sizes) if sizes else torch.empty(0, dtype=torch.int64)


def search_block(
    block: tuple[int, int],
    *,
    rows: RowSweep,
    nodes: Tensor,
    hops: int,
    costs: npt.NDArray[np.float64],
) -> Tensor:
    """Return the sizes of some of the nodes; a pure function.  int64 [block]"""
    span = slice(*block)
    indptr, indices = rows.plain
    sizes = np.empty(span.stop - span.start, dtype=np.int64)
    arrays = unsigned(indptr), unsigned(indices), nodes[span].numpy(), hops, sizes
    compiled_search = compiled(search)
    in_parts(lambda part: compiled_search(*arrays, part.start, part.stop), costs[span], each=1)
    if rows.mapped:
        page_out(indices)
    return torch.from_numpy(sizes)


def walk_counts(graph: Graph, nodes: Tensor | None = None, *, hops: int) -> Tensor:
    """Return the number of walks of ``hops`` steps, or rests, from each node.  float64 [nodes]

    nodes: all by default; only rows within their reach are read.

    >>> star = Graph.from_edges(torch.tensor([[0, 0], [1, 2]]), features=torch.eye(3),
    ...                         labels=torch.zeros(3, dtype=torch.long), undirected=True)
    >>> walk_counts(star, hops=2).tolist()  # the middle: 3 in one step, then 3 + 2 + 2
    [7.0, 5.0, 5.0]
    """
    counts = torch.ones(graph.num_nodes, dtype=torch.float64, device=graph.device)
    if hops:
        counts += graph.degrees
    for before in reversed(range(hops - 1)):  # number of steps taken before this one
        rows = None
        if nodes is not None:
            reached = covered_nodes(graph, nodes, hops=before).nonzero().flatten()
            if len(reached) <= PICKED_BELOW * graph.num_nodes:
                rows = reached.to(graph.device)
        counts[... if rows is None else rows] += neighbour_sums(graph.sweep, counts, rows)
    return counts if nodes is None else counts[nodes.to(graph.device)]


def search_costs(graph: Graph, nodes: Tensor, *, hops: int) -> npt.NDArray[np.float64]:
    """Return an upper bound of the entries read by a search from each of ``nodes``.  [nodes]

    It is bounded by the number of walks, and no entry is read twice.
    """
    walks = walk_counts(graph, nodes, hops=hops)
    return walks.clamp_max(graph.num_edges + graph.num_nodes).cpu().numpy()


def predicted_seconds(
    graph: Graph, costs: npt.NDArray[np.float64], *, hops: int, registers: int
) -> tuple[float, float]:
    """Return the seconds on two cores of exact and of estimated sizes; costs: of the searches."""
    work = float(graph.num_edges + graph.num_nodes) * registers * hops
    return float(costs.sum()) * WALK_SECONDS, work * REGISTER_SECONDS


def choose(method: str, exact: float, estimated: float, *, device: torch.device) -> tuple[str, str]:
    """Return "exact" or "estimated", and the reason.  exact, estimated: predicted seconds

    The estimate is taken only if exact sizes are not affordable, and if it is cheaper.
    """
    affordable = AFFORDABLE_SECONDS[device.type]
    if method != "auto":
        return method, "as configured"
    if exact > affordable and estimated < exact:
        return "estimated", f"exact ones would take more than {affordable:.0f} s"
    return "exact", "exact ones are affordable"


def covered_nodes(
    graph: Graph, nodes: Tensor, *, hops: int, available: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Return which nodes lie within ``hops`` of at least one of ``nodes``.  bool [all nodes]

    One breadth-first step per hop for all of them together, so the cost does not depend on their
    number. Only rows of nodes reached in the hop before are read, in blocks.

    available: tells which nodes may be reached, and passed through; all by default. int64 [n] ->
    bool [n], on the CPU

    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), features=torch.eye(4),
    ...                         labels=torch.zeros(4, dtype=torch.long), undirected=True)
    >>> covered_nodes(path, torch.tensor([1]), hops=2, available=lambda nodes: nodes != 0)
    tensor([False,  True,  True,  True])
    """
    reached = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    reached[nodes.to(graph.device)] = True
    sweep = graph.sweep
    layer = reached
    for _ in range(hops):
        if not bool(layer.any()):  # no others are connected
            break
        expanded = reached.clone()
        for _, neighbours in sweep.blocks(layer.nonzero().flatten(), sweep.neighbours):
            expanded[neighbours] = True
        layer = expanded & ~reached
        if available is not None:
            candidates = layer.nonzero().flatten()
            layer[candidates] = available(candidates.cpu()).to(layer.device)
        reached = reached | layer
    return reached.cpu()


def reaching_nodes(graph: Graph, nodes: Tensor, *, hops: int) -> Tensor:
    """Return which nodes have at least one of ``nodes`` within ``hops``.  bool [all nodes]

    The other direction of ``covered_nodes``: on an undirected graph the two are the same.
    """
    if graph.undirected:
        return covered_nodes(graph, nodes, hops=hops)
    reached = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    reached[nodes.to(graph.device)] = True
    for _ in range(hops):
        reached = reached | (neighbour_sums(graph.sweep, reached.double()) > 0)
    return reached.cpu()


def search(
    indptr: Array, indices: Array, nodes: Array, hops: int, sizes: Array, start: int, stop: int
) -> None:
    """Fill ``sizes[start:stop]``; a thread needs one byte and one number for every node.

    Nodes reached are marked with the number of the search, so that marks have to be cleared only
    when a byte has run through all its values.
    """
    marks = np.zeros(len(indptr) - 1, np.uint8)
    queue = np.empty(len(indptr) - 1, np.uint32)
    mark = 0
    for i in range(start, stop):
        mark += 1
        if mark == 256:
            marks[:] = 0
            mark = 1
        queue[0] = nodes[i]
        marks[nodes[i]] = mark
        layer, size = 0, 1  # start and end of the layer in the queue
        for _ in range(hops - 1):
            end = size
            for q in range(layer, end):
                for e in range(indptr[queue[q]], indptr[queue[q] + 1]):
                    if marks[indices[e]] != mark:
                        marks[indices[e]] = mark
                        queue[size] = indices[e]
                        size += 1
            layer = end
        end = size
        for q in range(layer, end if hops > 0 else layer):
            for e in range(indptr[queue[q]], indptr[queue[q] + 1]):
                u = indices[e]
                size += marks[u] != mark  # the last layer is not expanded: no queue, no branch
                marks[u] = mark
        sizes[i] = size
