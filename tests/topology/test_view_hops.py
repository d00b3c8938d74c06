"""Hops kept apart, of features that may be too wide."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import normalize

from evergraph.graphs import Graph
from evergraph.graphs.csr import as_csr
from evergraph.topology import EmbeddingCache, cached
from evergraph.topology.mixhop import ViewHops
from graphs_to_draw import graph_of, path_pairs, random_graph


def test_hops_by_hand() -> None:
    """On 0 - 1 the step is 1/2 everywhere: any hop but 0 is the mean of both."""
    graph = graph_of(path_pairs(2), features=torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    found = EmbeddingCache(ViewHops(kept_hops=(0, 2))).encode(graph)
    mean = [0.6, 0.8]
    expected = torch.tensor([[1.0, 0.0, *mean], [0.0, 1.0, *mean]])
    torch.testing.assert_close(found, expected)
    # Features up to the limit stay as they are.
    graph = random_graph(0, dims=5)
    assert ViewHops(kept_hops=(0,), widest=5).inputs(graph) is graph
    narrower = ViewHops(kept_hops=(0,), widest=4).inputs(graph)
    assert narrower.num_features == 4
    assert narrower.indices is graph.indices


def test_narrower_features_keep_inner_products() -> None:
    graph = random_graph(1, nodes=30, dims=3000)
    unit = graph.with_features(normalize(graph.features, dim=1))
    few = ViewHops(kept_hops=(0,), widest=1024).inputs(unit).features
    errors = few @ few.t() - unit.features @ unit.features.t()
    # of standard deviation 1/√1024 = 0.03 between two nodes, √2 as much of a length
    assert float(errors.fill_diagonal_(0.0).std()) < 1.2 / 32
    assert float(errors.abs().max()) < 5 / 32


def test_sparse_features_give_the_same_numbers() -> None:
    graph = random_graph(2, nodes=30, dims=40)
    graph = graph.with_features(graph.features * (graph.features > 0.8))
    sparse = graph.with_features(as_csr(graph.features))
    assert sparse.features.layout == torch.sparse_csr
    for widest in (8, 40):
        cache = EmbeddingCache(ViewHops(kept_hops=(0, 1, 3), widest=widest))
        torch.testing.assert_close(cache.encode(sparse), cache.encode(graph), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stored", ["dense", "sparse"])
def test_hops_in_half_precision_may_be_computed_in_blocks_of_columns(
    monkeypatch: pytest.MonkeyPatch, stored: str
) -> None:
    graph = random_graph(3, nodes=30, edges=20, dims=200)
    features = graph.features * (graph.features > 0.8)
    features[0] = 0.0
    features[1] *= 1e25  # its square is beyond float32
    graph = graph.with_features(as_csr(features) if stored == "sparse" else features)
    cache = EmbeddingCache(ViewHops(kept_hops=(0, 2), widest=None), storage="float16")
    whole = cache.encode(graph).float()
    monkeypatch.setattr(cached, "HALVED_AT_A_TIME", 1)  # 64 columns at a time
    blocks = cache.encode(graph).float()
    torch.testing.assert_close(blocks, whole, rtol=2e-3, atol=1e-6)
    lengths = blocks.view(30, 2, 200).norm(dim=2)
    torch.testing.assert_close(lengths, (lengths > 0).float(), rtol=1e-3, atol=0.0)


def test_the_matrix_depends_on_widths_alone() -> None:
    one, other = (random_graph(seed, dims=9) for seed in (0, 1))
    hops = ViewHops(kept_hops=(0,), widest=4)
    both = torch.cat([one.features, other.features])
    together = hops.inputs(graph_of([], features=both)).features
    apart = torch.cat([hops.inputs(one).features, hops.inputs(other).features])
    torch.testing.assert_close(together, apart)
    assert together.abs().sum() > 0


@pytest.mark.parametrize("sparse", [False, True])
def test_hops_in_float16_are_the_rounded_ones(small_graph: Graph, sparse: bool) -> None:
    """Made one after the other they are the same as made at once and rounded."""
    features = small_graph.features.to_sparse_csr() if sparse else small_graph.features
    graph = small_graph.with_features(features)
    hops = ViewHops(kept_hops=(0, 1, 3))
    whole = EmbeddingCache(hops)(graph)
    assert EmbeddingCache(hops, storage="float16")(graph).equal(whole.half())
