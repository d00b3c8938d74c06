"""A graph that has grown: whose embedding is computed anew, and that no other one would differ."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.topology import EmbeddingCache, topologies
from evergraph.topology.cached import affected_nodes, encode_nodes, grown_embeddings
from graphs_to_draw import few_each, graph_of, path_pairs

NODES = 12
every_topology = pytest.mark.parametrize("name", topologies.names())


X = torch.randn(NODES, 3, generator=torch.Generator().manual_seed(NODES))
#  0 - 1 - 2 - ... - 9, and the same with every arrow to the right
PATH = graph_of(path_pairs(10), features=X[:10])
ARROWS = graph_of(path_pairs(10), features=X[:10], undirected=False)

pairs = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=20)
arrivals = st.sets(st.integers(0, 11), max_size=8)


def positions(chosen: Tensor) -> list[int]:
    return chosen.nonzero().flatten().tolist()


def others(new: set[int]) -> Tensor:
    return torch.tensor([node for node in range(NODES) if node not in new], dtype=torch.int64)


@pytest.mark.parametrize(
    ("new", "hops", "expected"),
    [
        ([9], 0, [8, 9]),  # 8 has another degree, and looks no further than itself
        ([9], 1, [7, 8, 9]),
        ([9], 2, [6, 7, 8, 9]),
        ([4], 1, [2, 3, 4, 5, 6]),
        ([0, 9], 1, [0, 1, 2, 7, 8, 9]),
        ([], 2, []),
    ],
)
def test_affected_nodes_on_a_path(new, hops, expected):
    assert positions(affected_nodes(PATH, torch.tensor(new).long(), hops=hops)) == expected
    # Along arrows only those change that features flow to.
    for start, reached in ((9, [9]), (4, [4, 5, 6]), (0, [0, 1, 2])):
        assert positions(affected_nodes(ARROWS, torch.tensor([start]), hops=1)) == reached


@every_topology
@few_each
@given(
    pairs=pairs,
    new=arrivals,
    undirected=st.booleans(),
    hops=st.integers(0, 3),
    weighted=st.booleans(),
)
def test_grown_embeddings_are_those_computed_from_scratch(
    name, pairs, new, undirected, hops, weighted
):
    graph, old = graph_of(pairs, features=X, undirected=undirected), others(new)
    if weighted:
        graph = replace(graph, weights=1 + torch.arange(graph.num_edges) % 7 / 2)
    encoder = topologies.make(name, hops=hops)
    known = encoder.encode(graph.subgraph(old))
    growth = grown_embeddings(encoder, graph, known=known, old=old)
    expected = encoder.encode(graph)
    torch.testing.assert_close(growth.embeddings, expected, atol=1e-5, rtol=1e-5)
    stood = ~growth.changed[old]
    assert growth.embeddings[old[stood]].equal(known[stood])
    torch.testing.assert_close(expected[old[stood]], known[stood], atol=1e-5, rtol=1e-5)
    assert new <= set(positions(growth.changed))
    assert growth.recomputed == len(positions(growth.changed))


@every_topology
@few_each
@given(pairs=pairs, nodes=arrivals, undirected=st.booleans())
def test_some_nodes_are_encoded_from_what_lies_around_them(name, pairs, nodes, undirected):
    graph = graph_of(pairs, features=X, undirected=undirected)
    asked = torch.tensor(sorted(nodes)).long()
    encoder = topologies.make(name)
    torch.testing.assert_close(
        encode_nodes(encoder, graph, asked), encoder.encode(graph)[asked], atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("scaling", ["unit", "none"])
def test_a_cache_grows_and_keeps_its_work(scaling, monkeypatch):
    cache = EmbeddingCache(topologies.make("sgc"), scaling=scaling)
    old = torch.arange(8)
    growth = cache.grow(PATH, known=cache.encode(PATH.subgraph(old)), old=old)
    torch.testing.assert_close(growth.embeddings, cache.encode(PATH))
    assert growth.recomputed == 5  # 8 and 9, 7 with another degree, and two that look at it
    monkeypatch.setattr(cache, "encode", lambda graph: pytest.fail("encoded twice"))
    assert cache(PATH) is growth.embeddings
    assert cache.hops == 2
    assert cache.seconds > 0
