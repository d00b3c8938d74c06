"""Update stored knowledge when the graph grows around it.

Embeddings are recomputed where the graph has changed, or moved by the drift of the nodes in sight.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError
from evergraph.graphs import covered_nodes
from evergraph.nn import PDGNN
from evergraph.streams import Task
from evergraph.topology.cached import Growth

logger = logging.getLogger(__name__)

Refresh = Literal["none", "embeddings", "corrected"]
REFRESHES: tuple[str, ...] = get_args(Refresh)
NEEDS_ALL_EDGES = "refresh needs the graph of everything so far: edges must be 'all', not 'within'"


class GrowingEmbeddings:
    """Embeddings of a growing graph, recomputed only where it has changed.

    The graph is still available (``edges="all"``), so nothing has to be stored between tasks: this
    is a cache, rebuilt from the graph after a restart.

    Attributes:
        recomputed, unchanged: number of old embeddings that were recomputed, and that were
            unchanged, over all tasks.
    """

    def __init__(self) -> None:
        self._ids: Tensor | None = None
        self._embeddings: Tensor | None = None
        self.recomputed = 0
        self.unchanged = 0

    def update(self, task: Task, backbone: PDGNN) -> tuple[Growth, Tensor] | None:
        """Embed a task's graph; return the changes and the old nodes' earlier embeddings.

        None at the first task. -> growth, embeddings before  [nodes, dims], new nodes' rows unset
        """
        result = None
        if not is_first_graph(task):
            is_old = torch.ones(task.graph.num_nodes, dtype=torch.bool)
            is_old[task.own] = False
            old = is_old.nonzero().flatten()
            old_embeddings = self._embeddings
            is_current = self._ids is not None and self._ids.equal(task.ids[old])
            if old_embeddings is None or not is_current:  # after a restart
                old_embeddings = backbone.embeddings.encode(task.graph.subgraph(old))
            growth = backbone.embeddings.grow(task.graph, known=old_embeddings, old=old)
            recomputed = int(growth.changed[old].sum())
            self.recomputed += recomputed
            self.unchanged += len(old) - recomputed
            logger.info(
                "task %d: %d of %d old embeddings recomputed", task.index, recomputed, len(old)
            )
            before = torch.zeros_like(growth.embeddings)
            before[old.to(old_embeddings.device)] = old_embeddings
            result = growth, before
        self._ids, self._embeddings = task.ids, backbone.prepare(task.graph)
        return result

    @property
    def cost(self) -> tuple[int, int]:
        """Number of old embeddings recomputed, and the number of all old embeddings."""
        return self.recomputed, self.recomputed + self.unchanged

    def state(self) -> dict[str, Tensor]:
        """Return the counts, if any; the embeddings are computed again."""
        if not self.recomputed + self.unchanged:
            return {}
        return {"counts": torch.tensor([self.recomputed, self.unchanged])}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        if "counts" in state:
            self.recomputed, self.unchanged = state["counts"].tolist()


def is_first_graph(task: Task) -> bool:
    """Return whether a task's graph holds no old node; raise if it should hold some."""
    first = len(task.own) == task.graph.num_nodes
    if task.index > 0 and first:
        raise ConfigurationError(NEEDS_ALL_EDGES)
    return first


# At most this many old nodes are compared, evenly spaced; the map converges with far fewer.
MAX_NODES = 4096
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
    nearby_nodes = covered_nodes(graph, task.own, hops=backbone.hops).nonzero().flatten()
    old = (~torch.isin(nearby_nodes, task.own)).nonzero().flatten()
    if not len(old):
        return None
    num_old = graph.num_nodes - len(task.own)
    logger.info("task %d: %d of %d old nodes in sight", task.index, len(old), num_old)
    nearby = graph.subgraph(nearby_nodes)
    count = min(len(old), MAX_NODES)
    rows = torch.arange(count) * len(old) // count  # evenly spaced
    after = backbone.taken(backbone.embeddings.encode(nearby), old[rows])
    before = backbone.taken(backbone.embeddings.encode(nearby.subgraph(old)), rows)
    return Drift(before, after, len(old) / num_old)


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
    weights = _ridge_solution(drift, drift.before.t() @ drift.before, gain, ridge)
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
    kernel = drift.before @ drift.before.t()
    gain = _ridge_solution(drift, kernel, drift.after - drift.before, ridge)
    return vectors + drift.share * (vectors @ drift.before.t() @ gain.float())


def _ridge_solution(drift: Drift, matrix: Tensor, targets: Tensor, ridge: float) -> Tensor:
    matrix = matrix.double()
    matrix.diagonal().add_(ridge * drift.before.double().square().sum() / drift.before.shape[1])
    return torch.cholesky_solve(targets.double(), torch.linalg.cholesky(matrix))
