"""Replay of complete ego-subnetworks, the buffer that the paper argues against."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.graphs import Graph
from evergraph.memory import EgoNetworks, ego_networks
from evergraph.methods.base import methods
from evergraph.methods.replay import ReplayingLearner


@methods.register
class FullSubgraph(ReplayingLearner):
    """Replays stored nodes with their complete ego-subnetworks: O(n d^L), for comparison.

    With ``gat``, ``gin``, ``sage`` and the sum of ``gcn``, the replayed input of a node equals its
    training input; the normalised ``gcn`` weighs the outermost nodes by their degrees in the
    stored subgraph.

    Args:
        memory: the sampler and the budget; 100 nodes per class drawn uniformly by default.
        backbone, trainer, generator: see ``BackboneLearner``.
    """

    name = "full-subgraph"

    def keep(self, graph: Graph, centres: Tensor) -> EgoNetworks:
        """Return all nodes within reach."""
        return ego_networks(graph, centres, hops=self.backbone.hops, rank=torch.zeros_like)
