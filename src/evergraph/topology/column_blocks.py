"""Embeddings of a graph that does not fit: a block of feature columns at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import scipy
import torch
from torch import Tensor

from evergraph.core.engine import Engine
from evergraph.core.mapped import fetch, is_mapped, page_out, put
from evergraph.core.ray_transport import Columns
from evergraph.core.resources import Resources
from evergraph.core.sizes import shown
from evergraph.graphs import Graph
from evergraph.graphs.csr import ROWS_AT_A_TIME, densify
from evergraph.graphs.kernels import room
from evergraph.graphs.kernels.held_rows import ROW_TYPES
from evergraph.topology.base import TopologyEncoder
from evergraph.topology.node_blocks import node_blocks

logger = logging.getLogger(__name__)

# Room for what is neither features nor embeddings: rows of the adjacency, pages on their way to and
# from the disk. On a graph of 124M entries some 280 MB were seen; a small graph needs less.
RESERVE = 5 << 26
LEAST_RESERVE = 1 << 25
# And of every node: where its row begins and what is made of its degree.
NODE_RESERVE = 16
# Entries x columns that a hop multiplies; below, one process is done before others have begun.
SHARED_FROM = 1 << 27

Cut = Literal["columns", "nodes"]


def encode_within(
    topology: TopologyEncoder,
    graph: Graph,
    *,
    resources: Resources,
    device: torch.device | str = "cpu",
    by: Cut | None = None,
) -> Tensor:
    """Return the embeddings of all nodes without holding more than may be held.

    Column j of Â X depends on column j of X alone, so any number of columns can go through all hops
    without the others: nothing is computed twice and no number changes. Blocks are as wide as
    memory allows, and at least as many as the engine has workers. Embeddings that do not fit in
    memory come back mapped from a file.

    Where an engine has several workers, they share the columns: nothing is sent between hops. If
    the adjacency does not fit in a worker's share of memory, or columns mix, they share the nodes
    (see ``NodeBlocks``), and X is sent to all of them at every hop. by: which of the two; chosen
    unless given.

    -> float32 [nodes, dims]
    """
    device, graph = torch.device(device), topology.inputs(graph)
    resources.tidy()
    whole = _size(topology, graph, graph.num_features, device)
    fits = whole + reserve_of(graph.entry_bytes, graph.num_nodes) <= resources.left_on(device)
    if by is None and fits and not _worth_sharing(graph, resources):
        return topology.smooth(graph.to(device))
    if (by or _cut(topology, graph, resources)) == "nodes":
        return _encode_by_nodes(topology, graph, resources)
    if not topology.separable:
        resources.check(whole, f"encoding with {topology.name!r}, whose columns mix,")
        return topology.smooth(graph)
    return _encode_blocks(topology, graph, resources, device)


def _worth_sharing(graph: Graph, resources: Resources) -> bool:
    work = (graph.num_edges + graph.num_nodes) * graph.num_features
    return resources.engine.workers > 1 and work >= SHARED_FROM


def _cut(topology: TopologyEncoder, graph: Graph, resources: Resources) -> Cut:
    """Return what several workers share: columns, unless that cannot be."""
    engine = resources.engine
    whole = topology.separable and graph.entry_bytes <= resources.left // _beside(engine)
    return "columns" if whole or engine.workers == 1 else "nodes"


def _beside(engine: Engine) -> int:
    """Return how many workers share a machine's memory, all machines being like this one."""
    return -(-engine.workers // engine.machines)


def _encode_by_nodes(topology: TopologyEncoder, graph: Graph, resources: Resources) -> Tensor:
    """Return the embeddings, every hop computed by all workers; on CPUs."""
    engine, wide = resources.engine, graph.num_features
    adjacency = node_blocks(
        graph, engine=engine, self_loops=topology.self_loops, held=topology.rows
    )
    logger.info("encoding over %d blocks of nodes", len(adjacency.blocks))
    if not topology.separable:
        whole = _size(topology, graph, wide)
        resources.check(whole, f"encoding with {topology.name!r}, whose columns mix,")
        return topology.smooth(graph.with_features(densify(graph.features)), adjacency=adjacency)
    embeddings = resources.array((graph.num_nodes, topology.parts * wide))
    # Beside what a hop holds anyway: the features in the engine's store, and the results.
    copies = 1 + 2 / topology.arrays
    for columns in _column_blocks(topology, graph, embeddings, resources, at_once=copies):
        features = columns_of(graph.features, *columns)
        some = topology.from_column(columns[0])
        part = some.smooth(graph.with_features(features), adjacency=adjacency)
        put_columns(embeddings, part, columns, wide)
        del part  # before the next block takes its room
    return embeddings


def _encode_blocks(
    topology: TopologyEncoder, graph: Graph, resources: Resources, device: torch.device
) -> Tensor:
    wide = graph.num_features
    embeddings = resources.array((graph.num_nodes, topology.parts * wide))
    workers, beside = resources.engine.workers, _beside(resources.engine)
    blocks = _column_blocks(
        topology, graph, embeddings, resources, device, at_once=beside, least=workers
    )
    logger.info(
        "encoding %d columns in %d blocks: %s of memory left, embeddings %s",
        wide,
        len(blocks),
        shown(resources.left),
        "on disk" if is_mapped(embeddings) else "in memory",
    )
    graph = _adjacency_on(graph, resources, device)
    # A worker is sent its own columns, and the graph without any.
    items = [Columns(graph.features, start, stop, start) for start, stop in blocks]
    bare = graph.with_features(torch.empty(graph.num_nodes, 0))
    shared = {"topology": topology, "graph": bare, "device": str(device)}
    parts = resources.engine.map(encode_columns, items, shared=shared)
    for columns in blocks:  # not zipped: a zip holds a part until the next one is there
        put_columns(embeddings, next(parts), columns, wide)
    return embeddings


def encode_columns(
    columns: Columns, *, topology: TopologyEncoder, graph: Graph, device: str = "cpu"
) -> Tensor:
    """Return the embeddings that some feature columns give.  -> [nodes, parts x columns]"""
    features = columns_of(columns.array, columns.start, columns.stop)
    part = topology.from_column(columns.first)
    return part.smooth(graph.with_features(features.to(device))).cpu()


def columns_of(features: Tensor, start: int, stop: int) -> Tensor:
    """Return some columns of dense or CSR features, dense.  [nodes, dims] -> [nodes, columns]

    >>> columns_of(torch.tensor([[1., 2., 3.]]).to_sparse_csr(), 1, 3)
    tensor([[2., 3.]])
    """
    if features.layout != torch.strided:
        parts = (features.values(), features.col_indices(), features.crow_indices())
        arrays = tuple(part.cpu().numpy() for part in parts)
        matrix = scipy.sparse.csr_matrix(arrays, shape=features.shape)
        return torch.from_numpy(matrix[:, start:stop].toarray())
    if not is_mapped(features):
        return features[:, start:stop].contiguous()
    # numpy's memory goes back to the system at once, torch's not everywhere.
    taken = room(len(features), like=features, width=stop - start)
    for first in range(0, len(features), ROWS_AT_A_TIME):
        rows = features[first : first + ROWS_AT_A_TIME]
        taken[first : first + ROWS_AT_A_TIME] = rows[:, start:stop]
        page_out(rows)
    return taken


def _adjacency_on(graph: Graph, resources: Resources, device: torch.device) -> Graph:
    """Return the graph with its adjacency on a device if it takes at most half of what is left.

    Weights of the products double it, and sorting buffers again; else it is streamed to the
    device, a block of rows at a time.
    """
    if device.type == "cpu" or 4 * graph.entry_bytes > resources.left_on(device):
        return graph
    weights = None if graph.weights is None else graph.weights.to(device)
    indptr, indices = graph.indptr.to(device), graph.indices.to(device)
    return replace(graph, indptr=indptr, indices=indices, weights=weights)


def _size(
    topology: TopologyEncoder, graph: Graph, columns: int, device: torch.device | str = "cpu"
) -> int:
    """Return the bytes that encoding some columns takes at its highest.

    On a GPU, or where rows are of half numbers, a hop holds scaled features beside all else.
    """
    held = ROW_TYPES[topology.rows]
    apart = torch.device(device).type == "cuda" or held != torch.float32
    scaled = held.itemsize if apart else 0
    return graph.num_nodes * columns * (4 * topology.arrays + scaled)


def reserve_of(entry_bytes: int, nodes: int) -> int:
    """Return what is kept free beside the columns, given the bytes of the adjacency's entries.

    >>> reserve_of(1 << 20, 1000) >> 20, reserve_of(1 << 40, 1 << 27) >> 20
    (33, 2368)
    """
    return min(RESERVE, LEAST_RESERVE + entry_bytes) + NODE_RESERVE * nodes


def block_count(wide: int, *, one: int, left: int, reserve: int, at_once: float, least: int) -> int:
    """Return into how many blocks columns are cut: as few as memory allows.

    wide: columns; one: bytes that one of them takes; left: bytes that may be taken by the
    ``at_once`` blocks held at a time, each with a reserve; least: how many blocks there are to be.

    >>> block_count(100, one=10, left=350, reserve=50, at_once=1, least=1)  # 30 at a time
    4
    """
    widest = int(left / at_once - reserve) // one
    return max(-(-wide // max(widest, 1)), min(least, wide))


def _column_blocks(
    topology: TopologyEncoder,
    graph: Graph,
    embeddings: Tensor,
    resources: Resources,
    device: torch.device | str = "cpu",
    *,
    at_once: float,
    least: int = 1,
) -> Sequence[tuple[int, int]]:
    """Cut the columns into blocks of nearly one width, as few as memory allows.

    at_once: how many blocks are held at a time; least: how many there are to be.
    """
    wide, device = graph.num_features, torch.device(device)
    held = 0 if is_mapped(embeddings) else embeddings.nbytes
    one = _size(topology, graph, 1, device)
    reserve = reserve_of(graph.entry_bytes, graph.num_nodes)
    smallest = int((one + reserve) * at_once)
    resources.check(held + smallest, "encoding a single column of the features")
    left = resources.left_on(device) - (held if device.type == "cpu" else 0)
    count = block_count(wide, one=one, left=left, reserve=reserve, at_once=at_once, least=least)
    ends = [wide * block // count for block in range(count + 1)]
    return list(pairwise(ends))


def put_columns(
    embeddings: Tensor, part: Tensor, columns: tuple[int, int], wide: int, *, at: int = 0
) -> None:
    """Write what some columns gave to where it belongs: once in every part.  at: its first row"""
    start, stop = columns
    width = stop - start
    on_disk = is_mapped(embeddings)
    for first in range(0, len(part), ROWS_AT_A_TIME):
        some = part[first : first + ROWS_AT_A_TIME]
        rows = slice(at + first, at + first + len(some))
        target = fetch(embeddings, rows.start, rows.stop)
        for piece in range(part.shape[1] // width):
            where = slice(piece * wide + start, piece * wide + stop)
            target[:, where] = some[:, piece * width : (piece + 1) * width]
        if on_disk:
            put(embeddings, rows.start, target)
