"""The drift of old embeddings when new nodes arrive, estimated from the nodes in sight."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.graphs import covered_nodes
from evergraph.methods.refresh import is_first_graph
from evergraph.nn import PDGNN
from evergraph.streams import Task

logger = logging.getLogger(__name__)

# At most this many old nodes are compared, evenly spaced; the map converges with far fewer.
MOST = 4096
# Relative to the mean eigenvalue: directions in which the nodes hardly differ stay unchanged.
RIDGE = 0.01


@dataclass(frozen=True, eq=False)
class Drift:
    """Old nodes inside the ego-subnetworks of new ones, embedded without and with the new nodes.

    Attributes:
        before, after: X and Y.  float32 [seen, dims]
        share: fraction of all old nodes that are in sight; the others have hardly moved.
    """

    before: Tensor
    after: Tensor
    share: float


def seen_drift(task: Task, backbone: PDGNN) -> Drift | None:
    """Return the drift seen in the new nodes' ego-subnetworks; None if they hold no old node.

    Only the subgraph of nodes within L hops of a new one is read: no label, no earlier graph. Old
    nodes near its rim lack neighbours, in X and Y alike.
    """
    if is_first_graph(task):
        return None
    graph = task.graph
    around = covered_nodes(graph, task.own, hops=backbone.hops).nonzero().flatten()
    old = (~torch.isin(around, task.own)).nonzero().flatten()
    if not len(old):
        return None
    everyone = graph.num_nodes - len(task.own)
    logger.info("task %d: %d of %d old nodes in sight", task.index, len(old), everyone)
    sight = graph.subgraph(around)
    kept = min(len(old), MOST)
    rows = torch.arange(kept) * len(old) // kept  # evenly spaced
    after = backbone.taken(backbone.embeddings.encode(sight), old[rows])
    before = backbone.taken(backbone.embeddings.encode(sight.subgraph(old)), rows)
    return Drift(before, after, len(old) / everyone)


def drift_map(drift: Drift, *, ridge: float = RIDGE) -> Tensor:
    """Return the linear map nearest to the drift.  -> float64 [dims, dims]

    W = I + share (XᵀX + λI)⁻¹ Xᵀ(Y - X), λ = ``ridge`` x the mean of XᵀX's diagonal: ridge
    regression of each node's change on its old embedding. A node e moves to Wᵀe, and sums of nodes
    and their Gram matrix move along (``ClassStatistics.transform``).

    >>> drift = Drift(torch.eye(2), torch.tensor([[1., 0.], [0.5, 0.5]]), share=1.0)
    >>> drift_map(drift, ridge=0.0)  # the second axis turns half way to the first
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000]], dtype=torch.float64)
    """
    gain = drift.before.t() @ (drift.after - drift.before)
    weights = _solved(drift, drift.before.t() @ drift.before, gain, ridge)
    weights.mul_(drift.share).diagonal().add_(1.0)
    return weights


def drifted(vectors: Tensor, drift: Drift, *, ridge: float = RIDGE) -> Tensor:
    """Return stored vectors after the drift, ``vectors @ drift_map(drift)``.  -> float32 [n, dims]

    If there are more dims than nodes in sight, this is computed as
    e + share eXᵀ (XXᵀ + λI)⁻¹ (Y - X), which is equal and needs no matrix of dims x dims.
    """
    seen, dims = drift.before.shape
    if dims <= seen:
        return (vectors.double() @ drift_map(drift, ridge=ridge)).float()
    alike = drift.before @ drift.before.t()
    gain = _solved(drift, alike, drift.after - drift.before, ridge)
    return vectors + drift.share * (vectors @ drift.before.t() @ gain.float())


def _solved(drift: Drift, matrix: Tensor, right: Tensor, ridge: float) -> Tensor:
    matrix = matrix.double()
    matrix.diagonal().add_(ridge * drift.before.double().square().sum() / drift.before.shape[1])
    return torch.cholesky_solve(right.double(), torch.linalg.cholesky(matrix))
