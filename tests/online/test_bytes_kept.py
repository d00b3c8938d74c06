"""How many bytes a learner says it keeps."""

from __future__ import annotations

from dataclasses import asdict

import torch

from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.graph.live_embeddings import LiveEmbeddings
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner
from evergraph.topology import H2GCN, SGC, Identity, TopologyEncoder


def test_half_of_g_the_sums_and_the_solution() -> None:
    head = AnalyticHead(width=4)
    head.begin(2, topology=Identity(), scaling="unit", generator=torch.Generator())
    head.learn(torch.arange(3), torch.rand(3, 2), torch.tensor([0, 1, 2]))
    head.settle()
    gram, sums, solution = 4 * 4 * 8 // 2, 3 * 4 * 8, 4 * 3 * 4  # float64, float64, float32
    assert head.nbytes == gram + sums + solution


def test_a_learner_that_has_seen_nothing_keeps_nothing() -> None:
    assert asdict(OnlineLearner().status()) == {
        "seq": 0, "nodes": 0, "edges": 0, "classes": 0, "labelled": 0, "features": 0, "memory": 0,
        "predicted": 0, "accuracy": None, "exact_forgetting": True, "metric": "accuracy",
        "relations": True, "solved": 0, "undirected": True,
    }  # fmt: skip


def embedded(topology: TopologyEncoder) -> LiveEmbeddings:
    """Three nodes of two features on a path."""
    graph, live = GrowingGraph(num_features=2), LiveEmbeddings(topology, num_features=2)
    live.update(graph, graph.add(torch.rand(3, 2), torch.tensor([[0, 1], [1, 2]])))
    return live


def test_embeddings_and_the_hops_between() -> None:
    one = 3 * (2 + 1) * 4  # three nodes, two float32 each, and what rounding may have come to
    assert embedded(SGC(hops=1)).nbytes == one
    assert embedded(SGC(hops=3)).nbytes == 3 * one


def test_what_is_computed_from_its_surroundings_keeps_embeddings_alone() -> None:
    live = embedded(H2GCN(hops=1))
    assert live.nbytes == 3 * live.dims * 4
