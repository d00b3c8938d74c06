"""A node as the graph of its features."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph, normalised
from evergraph.nn import FeatureGraph, feature_graph
from evergraph.nn.feature_graph import FeatureConvolution, FeatureGraphHead, feature_adjacency
from graphs_to_draw import generator, graph_of

close = torch.testing.assert_close


def as_defined(graph: Graph, node: int) -> Tensor:
    """sgnroot of the sum of cross-correlations with neighbours, one after another."""
    x, matrix = graph.features, normalised(graph).to_dense()
    pairs = [x[node].outer(x[w]) + x[w].outer(x[node]) for w in range(graph.num_nodes)]
    total = sum(weight * pair for weight, pair in zip(matrix[node], pairs, strict=True))
    rooted = total.sign() * total.abs().sqrt()
    return rooted / rooted.abs().sum(1, keepdim=True).clamp_min(1e-30)


def test_the_feature_adjacency_of_a_pair_by_hand():
    # 0 - 1: Â is 1/2 everywhere. x_0 = [1, 0], s_0 = ([1, 0] + [1, 4]) / 2 = [1, 2].
    pair = graph_of([(0, 1)], features=torch.tensor([[1.0, 0.0], [1.0, 4.0]]))
    found = feature_adjacency(pair.features[:1], torch.tensor([[1.0, 2.0]]))[0]
    # x sᵀ + s xᵀ = [2 2; 2 0], rooted √2 [1 1; 1 0].
    close(found, torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    close(found, as_defined(pair, 0))


def test_signs_outlast_the_root():
    found = feature_adjacency(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, -16.0]]))
    close(found, torch.tensor([[[2 / 6, -4 / 6], [-1.0, 0.0]]]))


@given(
    edges=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8),
    seed=st.integers(0, 999),
    node=st.integers(0, 4),
)
def test_a_product_sums_neighbours(edges, seed, node):
    graph = graph_of(edges, features=torch.randn(5, 3, generator=generator(seed)))
    near = normalised(graph).to_dense() @ graph.features
    found = feature_adjacency(graph.features, near)
    close(found[node], as_defined(graph, node), atol=1e-4, rtol=1e-3)


def test_a_convolution_by_hand():
    layer = FeatureConvolution(1, 1, relations=1, generator=generator())
    with torch.no_grad():
        layer.own.weight.fill_(10.0)
        layer.own.bias.fill_(100.0)
        layer.near[0].weight.fill_(2.0)
    adjacency = torch.tensor([[[0.5, 0.5], [1.0, 0.0]]])
    state = torch.tensor([[[1.0], [3.0]]])
    # 10 x + 100 + 2 A x, A x = [2, 1]
    close(layer([adjacency], state).detach(), torch.tensor([[[114.0], [132.0]]]))


def partners() -> Graph:
    """Pairs of nodes, each with feature a or b; the class is whether partners have the same."""
    first = torch.arange(80) % 2
    second = torch.arange(80) // 2 % 2
    features = torch.eye(2)[torch.stack([first, second], dim=1).flatten()]
    labels = (first == second).long().repeat_interleave(2)
    edges = torch.arange(160).view(80, 2).t()
    return Graph.from_edges(edges, features=features, labels=labels, undirected=True)


def accuracy(graph: Graph) -> float:
    model = FeatureGraph(channels=(8, 8), dropout=0.0)
    inputs = model.prepare(graph)
    model.begin(2, generator=generator())
    model.grow(2, generator=generator(1))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), graph.labels).backward()
        optimiser.step()
    return float((model.eval()(inputs).argmax(1) == graph.labels).float().mean())


def test_what_only_neighbours_tell_is_learned(monkeypatch):
    assert accuracy(partners()) == 1.0
    alone = torch.eye(2)[None]  # features that interact with themselves alone, whoever is near
    monkeypatch.setattr(
        feature_graph, "feature_adjacency", lambda own, near: alone.expand(len(own), 2, 2)
    )
    assert accuracy(partners()) <= 0.5


def test_blocks_give_what_all_at_once_give(monkeypatch):
    head = FeatureGraphHead(
        4, relations=2, channels=(3,), dropout=0.0, generator=generator()
    ).eval()
    head.grow(2, generator=generator())
    rows = torch.randn(7, 12, generator=generator())
    whole = head(rows)
    monkeypatch.setattr(feature_graph, "BLOCK_VALUES", 3 * 16)
    close(head(rows), whole)


def test_many_features_are_reduced_to_the_width_asked_for():
    graph = graph_of([(0, 1)], features=torch.randn(3, 50, generator=generator()))
    assert FeatureGraph(width=8).prepare(graph).shape == (3, 16)
    assert FeatureGraph(width=64, hops=2).prepare(graph).shape == (3, 150)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 257}, "width must be at most 256, since a node costs width² numbers, not 257"),
        ({"channels": ()}, "number of channels must be an integer of at least 1, not 0"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        FeatureGraph(**options)
