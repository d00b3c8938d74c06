"""Paths 0 - 1 - 2 - ... that grow, and embeddings that follow them."""

from typing import Any

import torch
from torch import Tensor

from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.live_embeddings import LiveEmbeddings
from evergraph.topology import SGC


def pairs_of(*pairs: tuple[int, int]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T


def path(*features: float, weights: list[float] | None = None, **given: Any) -> GrowingGraph:
    """0 - 1 - 2 - ...; arrows to the right if directed."""
    graph = GrowingGraph(num_features=1, **given)
    edges = pairs_of(*((v, v + 1) for v in range(len(features) - 1)))
    weighed = None if weights is None else torch.tensor(weights)
    graph.add(torch.tensor(features)[:, None], edges, weighed)
    return graph


def followed(graph: GrowingGraph, topology: Any = None, **given: Any) -> LiveEmbeddings:
    given = {"scaling": "none", **given}
    live = LiveEmbeddings(topology or SGC(hops=1), graph, **given)
    live.update(GraphChange(new=torch.arange(graph.num_nodes)))
    return live
