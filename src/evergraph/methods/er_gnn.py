"""Experience replay for graph neural networks."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from evergraph.graphs import Graph
from evergraph.memory import EgoNetworks, SubgraphMemory, isolated
from evergraph.memory.samplers import EmbeddingCoverageSampler
from evergraph.methods.base import methods
from evergraph.methods.replay import ReplayingLearner


@methods.register
class ERGNN(ReplayingLearner):
    """Replays stored nodes without their neighbourhoods (Zhou and Cao 2021).

    Nodes are chosen by coverage in the hidden layer (``embedding-coverage``), by distance to the
    mean of their class (``mean-feature``) or by their influence on the model (``influence``). Only
    edges between stored nodes are kept, as in the published runs; mostly there are none.

    Args:
        memory: the sampler and the budget; 100 nodes per class by default.
        backbone, trainer, generator: see ``BackboneLearner``.
    """

    name = "er-gnn"

    @classmethod
    def make_memory(cls, **options: Any) -> SubgraphMemory:
        """Return a memory of 100 nodes per class, chosen by coverage in the hidden layer."""
        return SubgraphMemory(**{"sampler": EmbeddingCoverageSampler(), **options})

    def keep(self, graph: Graph, centres: Tensor) -> EgoNetworks:
        """Return the nodes without neighbours."""
        return isolated(graph, centres)
