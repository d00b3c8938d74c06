"""Separate rings of neighbours, without self-loops, for heterophilous graphs."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import scipy
import torch
from torch import Tensor

from evergraph.graphs import Graph, Smoother, propagate
from evergraph.graphs.csr import csr_tensor, densify
from evergraph.graphs.kernels.scaled_rows import RowType
from evergraph.graphs.reach.reach import ball_blocks
from evergraph.topology.base import TopologyEncoder, topologies


@topologies.register
@dataclass(kw_only=True, eq=False, repr=False)
class H2GCN(TopologyEncoder):
    """Concatenates the means of rings at distance exactly 1 .. L (after Zhu et al. 2020).

    E = [X, Ā_1 X, ..., Ā_L X], where Ā_k joins nodes at distance exactly k, so ego, neighbours and
    neighbours' neighbours never mix. Ā_k is the mean over the ring: the original's symmetric
    weights would need the ring sizes of nodes 2L hops away, and an embedding must depend on its own
    ego-subnetwork only. Edge weights are not used. Rings are expanded in blocks of rows and never
    kept whole.

    dims = (hops + 1) x features.
    """

    name = "h2gcn"
    sees_weights = False

    self_loops: bool = False
    dtype: RowType = field(init=False, default="float32")

    @property
    def parts(self) -> int:
        """The node itself and one part per ring."""
        return self.hops + 1

    @property
    def arrays(self) -> int:
        """Features and rings, and all of them concatenated."""
        return 2 * self.parts

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        features = densify(graph.features)
        rings = [torch.empty_like(features) for _ in range(self.hops)]
        for rows, balls in ball_blocks(graph, torch.arange(graph.num_nodes), hops=self.hops):
            for ring, (inner, outer) in zip(rings, pairwise(balls), strict=True):
                ring[rows] = propagate(_averaging(inner, outer).to(features.device), features)
        return torch.cat([features, *rings], dim=1)


def _averaging(inner: scipy.sparse.csr_matrix, outer: scipy.sparse.csr_matrix) -> Tensor:
    """Return the mean over the nodes in ``outer`` and not in ``inner``.  [rows, nodes]"""
    ring = outer.astype(np.int8) - inner.astype(np.int8)
    ring.eliminate_zeros()
    sizes = np.diff(ring.indptr)
    return csr_tensor(
        torch.from_numpy(ring.indptr),
        torch.from_numpy(ring.indices),
        torch.from_numpy(np.repeat(1 / np.maximum(sizes, 1), sizes).astype(np.float32)),
        ring.shape,
    )
