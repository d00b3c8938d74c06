"""Complete ego-subnetworks: the buffer that the paper argues against."""

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

    What a stored node replays is what it was trained on, with ``gat``, ``gin``, ``sage`` and the
    sum of ``gcn``; the normalised ``gcn`` weighs the outermost nodes by the degrees they have in
    what is stored.

    Args:
        memory: which nodes are kept, and how many; 100 per class drawn uniformly by default.
        backbone, trainer, generator: see ``BackboneLearner``.
    """

    name = "full-subgraph"

    def keep(self, graph: Graph, centres: Tensor) -> EgoNetworks:
        """Return all that lies within reach."""
        return ego_networks(graph, centres, hops=self.backbone.hops, rank=torch.zeros_like)
