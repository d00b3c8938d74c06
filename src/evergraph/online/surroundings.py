"""Embeddings computed from what lies around a change."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.graphs import Graph
from evergraph.online.change import Change
from evergraph.online.growing_graph import GrowingGraph
from evergraph.topology import TopologyEncoder


class Surroundings:
    """Any f_topo at the nodes that feel a change, encoded with all they look at.

    Nothing is kept between changes. Who feels a change is encoded together with the nodes within
    L + 1 hops (degrees of the outermost count), so a change costs its surroundings of 2L + 1 hops;
    an f_topo that is a recursion over hops costs L (see ``HopStates``). The same changes give the
    same bits, but a row's last bits may depend on the rows it is computed with.

    Args:
        topology: the f_topo.
        num_features: how wide a node's features are.
    """

    def __init__(self, topology: TopologyEncoder, num_features: int) -> None:
        self.topology = topology
        one = torch.zeros(1, num_features)
        lonely = Graph.from_edges(
            torch.empty(2, 0, dtype=torch.int64), features=one, labels=torch.zeros(1).long()
        )
        self.dims = topology.encode(lonely).shape[1]

    @property
    def nbytes(self) -> int:
        """Nothing is kept."""
        return 0

    def update(self, graph: GrowingGraph, change: Change) -> tuple[Tensor, Tensor]:
        """Follow a change; return who feels it and their embeddings, unscaled.  [k], [k, dims]"""
        changed = change.new
        for hop in range(self.topology.hops):
            seeds = torch.cat([changed, change.touched]) if hop == 0 else changed
            changed = graph.gatherers(seeds)
        if not len(changed):
            return changed, torch.empty(0, self.dims)
        around = changed
        for _ in range(self.topology.hops + 1):
            near = torch.from_numpy(graph.rows(around)[1]).long()
            around = torch.cat([around, near]).unique()
        embeddings = self.topology.encode(graph.induced(around))
        return changed, embeddings[torch.searchsorted(around, changed)]

    def state(self) -> dict[str, Tensor]:
        """Return nothing."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take nothing back."""
