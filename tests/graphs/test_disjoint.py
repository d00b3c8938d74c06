"""Several graphs in one: by hand, and nothing seen from one graph to another."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.graphs.csr import densify
from evergraph.graphs.disjoint import disjoint_union
from evergraph.topology import topologies
from graphs_to_draw import graph_of, path_pairs

#  0 - 1 - 2   and   0 - 1
PATH = graph_of(
    path_pairs(3), features=torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), labels=[0, 1, 2]
)
PAIR = graph_of([(0, 1)], features=torch.tensor([[0.0, 4.0], [5.0, 6.0]]), labels=[0, 1])
LONELY = graph_of([], features=torch.tensor([[7.0, 0.0]]), labels=[0])


def test_a_union_by_hand():
    union = disjoint_union([PATH, LONELY, PAIR])
    assert (union.num_nodes, union.num_edges) == (6, 6)
    neighbours = [union.neighbours(node).tolist() for node in range(6)]
    assert neighbours == [[1], [0, 2], [1], [], [5], [4]]
    assert union.labels.tolist() == [0, 1, 2, 0, 0, 1]
    assert union.features.tolist() == [[1, 0], [0, 2], [0, 0], [7, 0], [0, 4], [5, 6]]
    assert union.indptr.dtype == union.indices.dtype == torch.int32
    assert union.time is None


@pytest.mark.parametrize("sparse", [(True, True, True), (True, False, True), (False, True, False)])
def test_features_are_as_sparse_as_the_first_graphs(sparse):
    graphs = [
        graph.with_features(graph.features.to_sparse_csr()) if thin else graph
        for graph, thin in zip((PATH, LONELY, PAIR), sparse, strict=True)
    ]
    features = disjoint_union(graphs).features
    assert features.layout == (torch.sparse_csr if sparse[0] else torch.strided)
    assert densify(features).equal(disjoint_union([PATH, LONELY, PAIR]).features)
    assert features.to_dense().equal(densify(features))


def test_times_are_kept_if_every_graph_has_them_and_weights_if_one_has():
    early = replace(PAIR, time=torch.tensor([3, 4]))
    late = replace(PAIR, time=torch.tensor([8, 9]))
    time = disjoint_union([early, late]).time
    assert time.tolist() == [3, 4, 8, 9]
    assert disjoint_union([early, PAIR]).time is None
    weights = disjoint_union([replace(PAIR, weights=torch.tensor([3.0, 8.0])), PAIR]).weights
    assert weights.tolist() == [3, 8, 1, 1]
    assert disjoint_union([PAIR, PAIR]).weights is None


edges = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6)


@pytest.mark.parametrize("name", topologies.names())
@settings(max_examples=8)
@given(
    parts=st.lists(edges, min_size=1, max_size=3), seed=st.integers(0, 100), sparse=st.booleans()
)
def test_embeddings_of_the_union_are_those_of_the_parts(name, parts, seed, sparse):
    generator = torch.Generator().manual_seed(seed)
    graphs = [graph_of(part, features=torch.randn(4, 5, generator=generator)) for part in parts]
    if sparse:
        graphs = [graph.with_features(graph.features.to_sparse_csr()) for graph in graphs]
    topology = topologies.make(name)
    expected = torch.cat([topology.encode(graph) for graph in graphs])
    torch.testing.assert_close(topology.encode(disjoint_union(graphs)), expected)
