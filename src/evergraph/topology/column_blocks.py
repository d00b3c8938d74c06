"""Embeddings of a graph that does not fit in memory, one block of feature columns at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from evergraph.core.mapped import fetch, is_mapped, page_out, put
from evergraph.core.resources import ColumnSlice, LocalEngine, Resources
from evergraph.core.sizes import shown
from evergraph.graphs import Graph
from evergraph.graphs.csr import ROWS_AT_A_TIME, as_scipy
from evergraph.graphs.kernels.scaled_rows import ROW_TYPES, empty_rows
from evergraph.topology.base import TopologyEncoder

logger = logging.getLogger(__name__)

# Memory besides features and embeddings: rows of the adjacency, pages on their way to and from the
# disk. On a graph of 124M entries some 280 MB were measured; a small graph needs less.
RESERVE = 5 << 26
LEAST_RESERVE = 1 << 25
# Per node: its row pointer and the values derived from its degree.
NODE_RESERVE = 16
# Entries x columns multiplied per hop, below which one process is faster than several.
SHARED_FROM = 1 << 27


def encode_within(
    topology: TopologyEncoder,
    graph: Graph,
    *,
    resources: Resources,
    device: torch.device | str = "cpu",
    shared: bool | None = None,
) -> Tensor:
    """Return the embeddings of all nodes within a memory limit.

    Column j of Â X depends on column j of X alone, so any columns can go through all hops without
    the others: nothing is computed twice and no number changes. Blocks are as wide as memory
    allows, and at least as many as the engine has workers, which share them: nothing is sent
    between hops. Embeddings that do not fit in memory are returned mapped from a file. An f_topo
    that mixes columns is encoded whole, in this process. shared: whether workers take part; by
    default if there is enough work.

    -> float32 [nodes, dims]
    """
    device = torch.device(device)
    graph = topology.inputs(graph)
    resources.tidy()
    size = _size(topology, graph, graph.num_features, device)
    fits = size + reserve_of(graph.entry_bytes, graph.num_nodes) <= resources.left_on(device)
    if shared is None:
        work = (graph.num_edges + graph.num_nodes) * graph.num_features
        shared = resources.engine.workers > 1 and work >= SHARED_FROM
    if fits and not (shared and topology.separable):
        return topology.smooth(graph.to(device))
    if not topology.separable:
        resources.check(size, f"encoding with {topology.name!r}, whose columns mix,")
        return topology.smooth(graph)
    embeddings = resources.array((graph.num_nodes, topology.parts * graph.num_features))
    for columns, part in encoded_blocks(topology, graph, embeddings, resources, device=device):
        put_columns(embeddings, part, columns, graph.num_features)
        del part  # before the next block allocates its memory
    return embeddings


def encoded_blocks(
    topology: TopologyEncoder,
    graph: Graph,
    embeddings: Tensor,
    resources: Resources,
    *,
    device: torch.device | str = "cpu",
    first: int = 0,
) -> Iterator[tuple[tuple[int, int], Tensor]]:
    """Yield blocks of columns, from a first column on, each with its embeddings.

    Workers share them, unless the adjacency does not fit in each one's share of memory.

    embeddings: their destination, whose memory counts.  [nodes, parts x dims];
    -> (start, stop), float32 [nodes, parts x columns]
    """
    device = torch.device(device)
    engine = resources.engine
    per_machine = -(-engine.workers // engine.machines)  # workers per machine, if all are alike
    if graph.entry_bytes > resources.left // per_machine:
        engine = LocalEngine()
        per_machine = 1
    columns_left = graph.num_features - first
    embedding_bytes = 0 if is_mapped(embeddings) else embeddings.nbytes
    column_bytes = _size(topology, graph, 1, device)
    reserve = reserve_of(graph.entry_bytes, graph.num_nodes)
    least_bytes = embedding_bytes + (column_bytes + reserve) * per_machine
    resources.check(least_bytes, "encoding a single column of the features")
    left = resources.left_on(device) - (embedding_bytes if device.type == "cpu" else 0)
    least = engine.workers
    count = block_count(
        columns_left, one=column_bytes, left=left, reserve=reserve, at_once=per_machine, least=least
    )
    ends = []
    if columns_left:
        ends = [first + columns_left * block // count for block in range(count + 1)]
    blocks = list(pairwise(ends))  # of nearly equal width
    logger.info(
        "encoding %d columns in %d blocks: %s of memory left, embeddings %s",
        columns_left,
        len(blocks),
        shown(resources.left),
        "on disk" if is_mapped(embeddings) else "in memory",
    )
    # The adjacency goes to the device if it takes at most half of the free memory: weights of the
    # products double it, and so do sorting buffers. Otherwise it is streamed, a block of rows at a
    # time.
    if device.type != "cpu" and 4 * graph.entry_bytes <= resources.left_on(device):
        weights = None if graph.weights is None else graph.weights.to(device)
        indptr, indices = graph.indptr.to(device), graph.indices.to(device)
        graph = replace(graph, indptr=indptr, indices=indices, weights=weights)
    # A worker is sent its own columns, and the graph without features.
    items = [ColumnSlice(graph.features, start, stop, start) for start, stop in blocks]
    structure = graph.with_features(torch.empty(graph.num_nodes, 0))
    shared = {"topology": topology, "graph": structure, "device": str(device)}
    parts = engine.map(encode_columns, items, shared=shared)
    for columns in blocks:  # no zip, which would hold a part until the next one is ready
        yield columns, next(parts)


def encode_columns(
    columns: ColumnSlice, *, topology: TopologyEncoder, graph: Graph, device: str = "cpu"
) -> Tensor:
    """Return the embeddings of some feature columns.  -> [nodes, parts x columns]"""
    features = columns_of(columns.array, columns.start, columns.stop)
    part = topology.from_column(columns.first)
    return part.smooth(graph.with_features(features.to(device))).cpu()


def columns_of(features: Tensor, start: int, stop: int) -> Tensor:
    """Return some columns of dense or CSR features, dense.  [nodes, dims] -> [nodes, columns]

    >>> columns_of(torch.tensor([[1., 2., 3.]]).to_sparse_csr(), 1, 3)
    tensor([[2., 3.]])
    """
    if features.layout != torch.strided:
        return torch.from_numpy(as_scipy(features.cpu())[:, start:stop].toarray())
    if not is_mapped(features):
        return features[:, start:stop].contiguous()
    # numpy returns memory to the system at once; torch does not on every platform.
    selected = empty_rows(len(features), like=features, width=stop - start)
    for first in range(0, len(features), ROWS_AT_A_TIME):
        rows = features[first : first + ROWS_AT_A_TIME]
        selected[first : first + ROWS_AT_A_TIME] = rows[:, start:stop]
        page_out(rows)
    return selected


def _size(
    topology: TopologyEncoder, graph: Graph, columns: int, device: torch.device | str = "cpu"
) -> int:
    """Return the peak memory in bytes for encoding some columns.

    On a GPU, or with half-precision rows, a hop also holds scaled features.
    """
    row_type = ROW_TYPES[topology.dtype]
    has_scaled_copy = torch.device(device).type == "cuda" or row_type != torch.float32
    scaled = row_type.itemsize if has_scaled_copy else 0
    return graph.num_nodes * columns * (4 * topology.arrays + scaled)


def reserve_of(entry_bytes: int, nodes: int) -> int:
    """Return the memory to keep free besides the columns, given the bytes of the entries.

    >>> reserve_of(1 << 20, 1000) >> 20, reserve_of(1 << 40, 1 << 27) >> 20
    (33, 2368)
    """
    return min(RESERVE, LEAST_RESERVE + entry_bytes) + NODE_RESERVE * nodes


def block_count(wide: int, *, one: int, left: int, reserve: int, at_once: int, least: int) -> int:
    """Return the smallest number of blocks of columns that memory allows.

    wide: columns; one: bytes per column; left: bytes available to the ``at_once`` blocks held at a
    time, each with a reserve; least: minimum number of blocks.

    >>> block_count(100, one=10, left=350, reserve=50, at_once=1, least=1)  # 30 at a time
    4
    """
    widest = (left // at_once - reserve) // one
    return max(-(-wide // max(widest, 1)), min(least, wide))


def put_columns(embeddings: Tensor, part: Tensor, columns: tuple[int, int], wide: int) -> None:
    """Write the embeddings of some columns to their positions, one per part."""
    start, stop = columns
    width = stop - start
    on_disk = is_mapped(embeddings)
    for first in range(0, len(part), ROWS_AT_A_TIME):
        part_rows = part[first : first + ROWS_AT_A_TIME]
        rows = slice(first, first + len(part_rows))
        target = fetch(embeddings, rows.start, rows.stop)
        for hop in range(part.shape[1] // width):
            target_columns = slice(hop * wide + start, hop * wide + stop)
            target[:, target_columns] = part_rows[:, hop * width : (hop + 1) * width]
        if on_disk:
            put(embeddings, rows.start, target)
