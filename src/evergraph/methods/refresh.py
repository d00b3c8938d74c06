"""Update stored knowledge when the graph grows around it."""

from __future__ import annotations

import logging
from typing import Literal, get_args

import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError
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
        recomputed, standing: number of old embeddings that were recomputed, and that were
            unchanged, over all tasks.
    """

    def __init__(self) -> None:
        self._ids: Tensor | None = None
        self._embeddings: Tensor | None = None
        self.recomputed = 0
        self.standing = 0

    def update(self, task: Task, backbone: PDGNN) -> tuple[Growth, Tensor] | None:
        """Embed a task's graph; return the changes and the old nodes' earlier embeddings.

        None at the first task. -> growth, embeddings before  [nodes, dims], new nodes' rows unset
        """
        result = None
        if not is_first_graph(task):
            is_old = torch.ones(task.graph.num_nodes, dtype=torch.bool)
            is_old[task.own] = False
            old = is_old.nonzero().flatten()
            known, ids = self._embeddings, task.ids[old]
            if known is None or self._ids is None or not self._ids.equal(ids):  # after a restart
                known = backbone.embeddings.encode(task.graph.subgraph(old))
            growth = backbone.embeddings.grow(task.graph, known=known, old=old)
            again = int(growth.changed[old].sum())
            self.recomputed += again
            self.standing += len(old) - again
            logger.info("task %d: %d of %d old embeddings recomputed", task.index, again, len(old))
            before = torch.zeros_like(growth.embeddings)
            before[old.to(known.device)] = known
            result = growth, before
        self._ids, self._embeddings = task.ids, backbone.prepare(task.graph)
        return result

    @property
    def cost(self) -> tuple[int, int]:
        """Number of old embeddings recomputed, and the number of all old embeddings."""
        return self.recomputed, self.recomputed + self.standing

    def state(self) -> dict[str, Tensor]:
        """Return the counts, if any; the embeddings are computed again."""
        if not self.recomputed + self.standing:
            return {}
        return {"refreshed": torch.tensor([self.recomputed, self.standing])}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        if "refreshed" in state:
            self.recomputed, self.standing = state["refreshed"].tolist()


def is_first_graph(task: Task) -> bool:
    """Return whether a task's graph holds no old node; raise if it should hold some."""
    first = len(task.own) == task.graph.num_nodes
    if task.index > 0 and first:
        raise ConfigurationError(NEEDS_ALL_EDGES)
    return first
