"""Rings kept apart, without self-loops, for heterophilous graphs."""

from __future__ import annotations

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from evergraph.graphs import Graph, Smoother, propagate
from evergraph.graphs.csr import csr_tensor
from evergraph.graphs.propagation import densify
from evergraph.graphs.reach import reach_blocks
from evergraph.topology.base import TopologyEncoder, topologies


@topologies.register
class H2GCN(TopologyEncoder):
    """E = [X, Ā_1 X, ..., Ā_L X], Ā_k joining nodes at distance exactly k (after Zhu et al. 2020).

    Ego, neighbours and neighbours' neighbours never mix. Ā_k is the mean over the ring: the
    original's symmetric weights would need the ring sizes of nodes 2L hops away, and an embedding
    must depend on its own ego-subnetwork only. Rings are expanded in blocks of rows and never
    kept whole.

    dims = (hops + 1) x features.
    """

    name = "h2gcn"

    def __init__(self, *, hops: int = 2, self_loops: bool = False) -> None:
        super().__init__(hops=hops, self_loops=self_loops)

    @property
    def parts(self) -> int:
        """A column for the node itself and one for every ring."""
        return self.hops + 1

    @property
    def arrays(self) -> int:
        """Features and rings, and all of them once more side by side."""
        return 2 * self.parts

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        features = densify(graph.features)
        rings = [_ring_means(graph, features, hop) for hop in range(1, self.hops + 1)]
        return torch.cat([features, *rings], dim=1)


def _ring_means(graph: Graph, features: Tensor, hop: int) -> Tensor:
    """Return Ā_hop X.  [nodes, features]"""
    means = torch.empty_like(features)
    for rows, within in reach_blocks(graph, torch.arange(graph.num_nodes), hops=hop):
        ring = _without_inner(graph, rows, within, hop)
        sizes = np.diff(ring.indptr)
        matrix = csr_tensor(
            torch.from_numpy(ring.indptr.astype(np.int32)),
            torch.from_numpy(ring.indices.astype(np.int32)),
            torch.from_numpy(np.repeat(1 / np.maximum(sizes, 1), sizes).astype(np.float32)),
            ring.shape,
        )
        means[rows] = propagate(matrix.to(features.device), features)
    return means


def _without_inner(
    graph: Graph, rows: slice, within: scipy.sparse.csr_matrix, hop: int
) -> scipy.sparse.csr_matrix:
    """Return ``within`` less the nodes that are nearer than ``hop``."""
    nodes = torch.arange(rows.start, rows.stop)
    inner = [block for _, block in reach_blocks(graph, nodes, hops=hop - 1)]
    ring = within.astype(np.int8) - scipy.sparse.vstack(inner, format="csr").astype(np.int8)
    ring.eliminate_zeros()
    return ring
