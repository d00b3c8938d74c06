"""Subgraph episodic memory, sparsified by curvature."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.graphs import Graph, forman_curvature
from evergraph.memory import EgoNetworks, SubgraphMemory, ego_networks
from evergraph.methods.base import methods
from evergraph.methods.replay import ReplayingLearner
from evergraph.nn import Backbone
from evergraph.training import Trainer


@methods.register
class SEM(ReplayingLearner):
    """Replays stored nodes with the neighbours of largest Ricci curvature (Zhang et al. 2023).

    Curvature is large where two nodes share neighbours and small on bridges, so strongly curved
    edges carry most information about a node. It is the augmented Forman curvature, computed from
    degrees and triangles.

    Args:
        neighbours: number of neighbours kept per node and hop, at least 1.
        memory: the sampler and the budget; 100 nodes per class drawn uniformly by default.
        backbone, trainer, generator: see ``BackboneLearner``.
    """

    name = "sem"

    def __init__(
        self,
        *,
        neighbours: int = 5,
        memory: SubgraphMemory | None = None,
        backbone: Backbone | None = None,
        trainer: Trainer | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(memory=memory, backbone=backbone, trainer=trainer, generator=generator)
        check_integer("neighbours", neighbours, least=1)
        self.neighbours = neighbours

    def keep(self, graph: Graph, centres: Tensor) -> EgoNetworks:
        """Return ego-subnetworks in which every node keeps its most curved edges."""
        curvature = forman_curvature(graph)

        def rank(entries: Tensor) -> Tensor:
            return -curvature[entries]

        hops = self.backbone.hops
        return ego_networks(graph, centres, hops=hops, neighbours=self.neighbours, rank=rank)
