"""Exact ego-subnetwork sizes by search, over blocks of nodes that any worker may take."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.mapped import page_out
from evergraph.core.resources import Resources
from evergraph.graphs.cuts import cut
from evergraph.graphs.graph import Graph
from evergraph.graphs.kernels.choice import numba_works
from evergraph.graphs.kernels.numba_ego import ego_sizes
from evergraph.graphs.rows import RowSweep

# From so many steps on, what a search saves against sparse products is more than numba takes to
# start (benchmarks/reach_at_scale.py).
SEARCH_PAYS_FROM = 2e7
# Blocks a worker: one that met cheap nodes takes the next block while another is busy.
_BLOCKS = 4


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
