"""Whose features an embedding is made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from evergraph.graphs.csr import repeat
from evergraph.online.growing_graph import GrowingGraph
from evergraph.online.live_smoother import LiveSmoother


def contributions(
    graph: GrowingGraph, smoother: LiveSmoother, node: int, coefficients: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Return the positions that e_v = Σ_u w_u x_u sums over, and the weights.

    w = Σ_l c_l δ_v Â^l: one row goes through the graph, starting at the node alone, so the cost is
    that of its ego-subnetwork.

    coefficients: c_0, ..., c_L; -> int64 [nodes within L hops], ascending, float64 [nodes]
    """
    nodes, row = torch.tensor([node]), torch.ones(1, dtype=torch.float64)
    met, parts = [nodes], [row * coefficients[0]]
    for share in coefficients[1:]:
        indptr, columns, weights = smoother.rows(graph, nodes)
        nodes, row = _summed(columns, weights.double() * repeat(row, indptr.diff()))
        met.append(nodes)
        parts.append(row * share)
    return _summed(torch.cat(met), torch.cat(parts))


def _summed(nodes: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return each node once, ascending, with the sum of its values."""
    distinct, places = np.unique(nodes.numpy(), return_inverse=True)
    sums = np.bincount(places.reshape(-1), weights=values.numpy(), minlength=len(distinct))
    return torch.from_numpy(distinct.astype(np.int64)), torch.from_numpy(sums)
