"""Sparsified subgraph memory."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from evergraph.core.checks import check_choice, check_integer
from evergraph.core.seeding import exponential
from evergraph.graphs import Graph
from evergraph.memory import EgoNetworks, SubgraphMemory, ego_networks
from evergraph.methods.base import methods
from evergraph.methods.replay import ReplayingLearner
from evergraph.nn import Backbone
from evergraph.training import Trainer


@methods.register
class SSM(ReplayingLearner):
    """Replays stored nodes with a few neighbours per hop (Zhang et al., ICDM 2022).

    A stored node keeps at most k(1 + k + ... ) nodes of its ego-subnetwork, whatever its degree.

    Args:
        neighbours: k, at least 1; 0 would be ``er-gnn``.
        choice: ``random``, or ``degree`` for neighbours drawn in proportion to their degree.
        memory: the sampler and the budget; 100 nodes per class drawn uniformly by default.
        backbone, trainer, generator: see ``BackboneLearner``.
    """

    name = "ssm"

    def __init__(
        self,
        *,
        neighbours: int = 5,
        choice: Literal["random", "degree"] = "degree",
        memory: SubgraphMemory | None = None,
        backbone: Backbone | None = None,
        trainer: Trainer | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(memory=memory, backbone=backbone, trainer=trainer, generator=generator)
        check_integer("neighbours", neighbours, least=1)
        check_choice("choice", choice, ("random", "degree"))
        self.neighbours = neighbours
        self.choice = choice

    def keep(self, graph: Graph, centres: Tensor) -> EgoNetworks:
        """Return ego-subnetworks in which every node keeps a few random neighbours."""

        def rank(entries: Tensor) -> Tensor:
            times = exponential(len(entries), generator=self.generator).to(entries.device)
            if self.choice == "random":
                return times
            return times / graph.degrees[graph.indices[entries].long()].clamp_min(1)

        hops = self.backbone.hops
        return ego_networks(graph, centres, hops=hops, neighbours=self.neighbours, rank=rank)
