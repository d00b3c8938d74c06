"""Hops kept apart, for graphs whose neighbours differ."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.graphs import Graph, walk
from evergraph.graphs.propagation import densify
from evergraph.topology.base import TopologyEncoder, topologies


@topologies.register
class MixHop(TopologyEncoder):
    """E = [X, Â X, ..., Â^L X]: every hop its own columns (after Abu-El-Haija et al. 2019).

    dims = (hops + 1) x features.
    """

    name = "mixhop"

    def _embed(self, graph: Graph, adjacency: Tensor) -> Tensor:
        steps = [graph.features, *walk(adjacency, graph.features, hops=self.hops)]
        return torch.cat([densify(step) for step in steps], dim=1)
