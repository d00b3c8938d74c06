"""Which nodes are within L hops of others, all of them together: one sweep a hop."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.graphs.graph import Graph
from evergraph.graphs.rows import RowSweep, neighbour_sums


def covered_nodes(graph: Graph, nodes: Tensor, *, hops: int) -> Tensor:
    """Return which nodes lie within ``hops`` of at least one of ``nodes``.  bool [all nodes]

    One breadth-first step a hop for all of them together, so the cost does not depend on how many
    they are. Only rows of nodes met in the hop before are read, some at a time.
    """
    met = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    met[nodes.to(graph.device)] = True
    sweep, layer = RowSweep.of(graph), met
    for _ in range(hops):
        if bool(met.all()):  # nobody is left to be found
            break
        found = met.clone()
        for _, near in sweep.blocks(layer.nonzero().flatten(), sweep.neighbours):
            found[near] = True
        layer, met = found & ~met, found
    return met.cpu()


def reaching_nodes(graph: Graph, nodes: Tensor, *, hops: int) -> Tensor:
    """Return which nodes have at least one of ``nodes`` within ``hops``.  bool [all nodes]

    The other direction of ``covered_nodes``: on an undirected graph the two are the same.
    """
    if graph.undirected:
        return covered_nodes(graph, nodes, hops=hops)
    met = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    met[nodes.to(graph.device)] = True
    for _ in range(hops):
        met = met | (neighbour_sums(graph, met.double()) > 0)
    return met.cpu()
