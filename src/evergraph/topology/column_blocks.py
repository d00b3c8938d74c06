"""Embeddings of a graph that does not fit: a block of feature columns at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import scipy.sparse
import torch
from torch import Tensor

from evergraph.core.mapped import is_mapped, page_out
from evergraph.core.resources import Resources
from evergraph.core.sizes import shown
from evergraph.graphs import Graph
from evergraph.graphs.csr import ROWS_AT_A_TIME
from evergraph.topology.base import TopologyEncoder

logger = logging.getLogger(__name__)

# Room for what is neither features nor embeddings: row blocks of the adjacency and the like.
RESERVE = 1 << 27


def encode_within(
    topology: TopologyEncoder,
    graph: Graph,
    *,
    resources: Resources,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Return the embeddings of all nodes without holding more than may be held.

    Column j of Â X depends on column j of X alone, so any number of columns can go through all hops
    without the others: nothing is computed twice and no number changes. Blocks are as wide as
    memory allows, and at least as many as the engine has workers. Embeddings that do not fit in
    memory come back mapped from a file.

    -> float32 [nodes, dims]
    """
    device = torch.device(device)
    whole = _size(topology, graph, graph.num_features)
    alone = resources.engine.workers == 1
    if alone and whole + RESERVE <= resources.left_on(device):
        return topology.encode(graph.to(device))
    if not topology.separable:
        resources.check(whole, f"encoding with {topology.name!r}, whose columns mix,")
        return topology.encode(graph)
    return _encode_blocks(topology, graph, resources, device)


def _encode_blocks(
    topology: TopologyEncoder, graph: Graph, resources: Resources, device: torch.device
) -> Tensor:
    wide = graph.num_features
    embeddings = resources.array((graph.num_nodes, topology.parts * wide))
    blocks = _column_blocks(topology, graph, embeddings, resources, device)
    logger.info(
        "encoding %d columns in %d blocks: %s of memory left, embeddings %s",
        wide,
        len(blocks),
        shown(resources.left),
        "on disk" if is_mapped(embeddings) else "in memory",
    )
    graph = _adjacency_on(graph, resources, device)
    shared = {"topology": topology, "graph": graph, "device": str(device)}
    for columns, part in zip(
        blocks, resources.engine.map(encode_columns, blocks, shared=shared), strict=True
    ):
        _put(embeddings, part, columns, wide)
        del part  # before the next block takes its room
    return embeddings


def encode_columns(
    columns: tuple[int, int], *, topology: TopologyEncoder, graph: Graph, device: str = "cpu"
) -> Tensor:
    """Return the embeddings that some feature columns give.  -> [nodes, parts x columns]"""
    features = columns_of(graph.features, *columns)
    return topology.encode(graph.with_features(features.to(device))).cpu()


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
    taken = torch.empty(len(features), stop - start)
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
    if device.type == "cpu" or 4 * graph.indices.nbytes > resources.left_on(device):
        return graph
    return replace(graph, indptr=graph.indptr.to(device), indices=graph.indices.to(device))


def _size(topology: TopologyEncoder, graph: Graph, columns: int) -> int:
    """Return the bytes that encoding some columns takes at its highest."""
    return 4 * graph.num_nodes * columns * topology.arrays


def _column_blocks(
    topology: TopologyEncoder,
    graph: Graph,
    embeddings: Tensor,
    resources: Resources,
    device: torch.device,
) -> Sequence[tuple[int, int]]:
    """Cut the columns into blocks of nearly one width, as few as memory and workers allow."""
    wide = graph.num_features
    workers = resources.engine.workers
    held = 0 if is_mapped(embeddings) else embeddings.nbytes
    smallest = _size(topology, graph, 1) + RESERVE
    resources.check(held + smallest * workers, "encoding a single column of the features")
    left = resources.left_on(device) - (held if device.type == "cpu" else 0)
    widest = (left // workers - RESERVE) // _size(topology, graph, 1)
    count = max(-(-wide // max(widest, 1)), min(workers, wide))
    ends = [wide * block // count for block in range(count + 1)]
    return list(pairwise(ends))


def _put(embeddings: Tensor, part: Tensor, columns: tuple[int, int], wide: int) -> None:
    """Write what some columns gave to where it belongs: once in every part."""
    start, stop = columns
    width = stop - start
    on_disk = is_mapped(embeddings)
    for first in range(0, len(part), ROWS_AT_A_TIME):
        rows = slice(first, first + ROWS_AT_A_TIME)
        for piece in range(part.shape[1] // width):
            where = slice(piece * wide + start, piece * wide + stop)
            embeddings[rows, where] = part[rows, piece * width : (piece + 1) * width]
        if on_disk:
            page_out(embeddings[rows])
