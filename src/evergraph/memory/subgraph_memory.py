"""A memory of nodes with some of the graph around them."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from evergraph.graphs import Graph
from evergraph.graphs.csr import csr_tensor
from evergraph.graphs.disjoint import disjoint_union
from evergraph.memory.budget import Budget, check_budget, class_budgets
from evergraph.memory.ego_networks import EgoNetworks
from evergraph.memory.samplers import Candidates, Sampler, UniformSampler
from evergraph.memory.usage import MemoryUsage

logger = logging.getLogger(__name__)

Keep = Callable[[Graph, Tensor], EgoNetworks]
"""From a task's graph and the nodes chosen to what is kept of the graph around them."""


class SubgraphMemory:
    """Nodes of earlier tasks, chosen by a sampler, each with what is kept of its ego-subnetwork.

    How much of the ego-subnetwork is the method's affair: nothing but the edges among stored
    nodes (``er-gnn``), a few neighbours (``ssm``, ``sem``) or everything (``full-subgraph``).

    Args:
        budget: an integer per class or a fraction of the dataset.
        sampler: which nodes to keep.

    Attributes:
        graph_: what is kept of all earlier graphs, side by side; None while there is nothing.
        centres_: positions in ``graph_`` of the nodes chosen.  int64 [chosen]
        labels_: their classes.  int64 [chosen]
    """

    def __init__(self, *, budget: Budget = 100, sampler: Sampler | None = None) -> None:
        check_budget(budget)
        if budget == 0:
            logger.warning("budget 0: nothing is stored, and nothing will be replayed")
        self.budget = budget
        self.sampler = sampler if sampler is not None else UniformSampler()
        self.graph_: Graph | None = None
        self.centres_ = torch.empty(0, dtype=torch.int64)
        self.labels_ = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.labels_)

    def store(
        self,
        candidates: Candidates,
        sizes: dict[int, int],
        *,
        keep: Keep,
        generator: torch.Generator,
    ) -> None:
        """Choose among a task's nodes and keep what ``keep`` returns for them.

        sizes: how many nodes each class has in the whole task, for fractional budgets.
        """
        labels, counts = candidates.labels.unique(return_counts=True)
        available = dict(zip(labels.tolist(), counts.tolist(), strict=True))
        budgets = class_budgets(self.budget, sizes, available)
        chosen = self.sampler.select(candidates, budgets, generator=generator)
        if not len(chosen):
            return
        kept = keep(candidates.graph, candidates.nodes.cpu()[chosen])
        before = 0 if self.graph_ is None else self.graph_.num_nodes
        graphs = [kept.graph] if self.graph_ is None else [self.graph_, kept.graph]
        self.graph_ = disjoint_union(graphs)
        self.centres_ = torch.cat([self.centres_, kept.centres + before])
        self.labels_ = torch.cat([self.labels_, candidates.labels[chosen]])

    @property
    def usage(self) -> MemoryUsage:
        """Features of every node kept, as the paper counts them, edges, and bytes of all."""
        if self.graph_ is None:
            return MemoryUsage()
        return MemoryUsage(
            samples=self.graph_.num_nodes * self.graph_.num_features,
            edges=self.graph_.num_edges,
            bytes=sum(tensor.nbytes for tensor in self.state().values()),
        )

    def state(self) -> dict[str, Tensor]:
        """Return everything stored, by name."""
        state = {"centres": self.centres_, "labels": self.labels_}
        if self.graph_ is None:
            return state
        features = self.graph_.features
        state |= {"indptr": self.graph_.indptr, "indices": self.graph_.indices}
        if features.layout == torch.strided:
            return state | {"features": features}
        return state | {
            "features.indptr": features.crow_indices(),
            "features.indices": features.col_indices(),
            "features.values": features.values(),
            "features.width": torch.tensor(features.shape[1]),
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self.centres_, self.labels_ = state["centres"], state["labels"]
        self.graph_ = None
        if "indptr" in state:
            unlabelled = torch.full((len(state["indptr"]) - 1,), -1)
            self.graph_ = Graph(state["indptr"], state["indices"], _features(state), unlabelled)


def _features(state: dict[str, Tensor]) -> Tensor:
    if "features" in state:
        return state["features"]
    indptr = state["features.indptr"]
    shape = (len(indptr) - 1, int(state["features.width"]))
    return csr_tensor(indptr, state["features.indices"], state["features.values"], shape)
