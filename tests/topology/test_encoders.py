"""Every f_topo against numbers worked out by hand, and the properties that all of them share."""

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from evergraph.core.errors import ConfigurationError
from evergraph.core.resources import Resources, SharedCache
from evergraph.graphs import Graph, reach
from evergraph.graphs.csr import as_csr
from evergraph.topology import EmbeddingCache, MixHop, cached, topologies
from evergraph.topology.mixhop import ViewHops
from graphs_to_draw import few_each, graph_of, path_pairs, random_graph

#  0 - 1 - 2   and 3 apart; degrees with self-loops 2, 3, 2, 1
PATH = graph_of(path_pairs(3), features=torch.tensor([[1.0], [2.0], [4.0], [8.0]]))
S6 = 6**-0.5


# One hop of Â x by hand: row 0 = x0/2 + x1/√6, row 1 = x0/√6 + x1/3 + x2/√6, and so on.
def hop(x: list[float]) -> list[float]:
    return [x[0] / 2 + x[1] * S6, x[0] * S6 + x[1] / 3 + x[2] * S6, x[1] * S6 + x[2] / 2, x[3]]


ONE = hop([1, 2, 4, 8])
TWO = hop(ONE)


def mix(a: float, x: list[float], b: float, y: list[float]) -> list[float]:
    return [a * p + b * q for p, q in zip(x, y, strict=True)]


X = [1.0, 2.0, 4.0, 8.0]
PPR1 = mix(0.75, ONE, 0.25, X)
HAND = {
    "identity": [X],
    "sgc": [TWO],
    "s2gc": [mix(0.5, mix(0.75, ONE, 0.25, X), 0.5, mix(0.75, TWO, 0.25, X))],
    "ppr": [mix(0.75, hop(PPR1), 0.25, PPR1)],
    "appnp": [mix(0.75, hop(PPR1), 0.25, X)],
    "mixhop": [X, ONE, TWO],
    # means over the neighbours {1}, {0, 2}, {1}, {}; at distance two are only 0 and 2
    "h2gcn": [X, [2.0, 2.5, 2.0, 0.0], [4.0, 0.0, 1.0, 0.0]],
}


@pytest.mark.parametrize("name", sorted(HAND))
def test_embeddings_equal_the_hand_computed_ones(name):
    teleports = {"alpha": 0.25} if "alpha" in topologies.parameters(name) else {}
    encoder = topologies.make(name, hops=2, **teleports)
    expected = torch.tensor(HAND[name]).T
    torch.testing.assert_close(encoder.encode(PATH), expected)


@pytest.mark.parametrize(
    ("keep", "expected"),
    [(None, [X, ONE, TWO]), ((0, 2), [X, TWO]), ([2, 0], [TWO, X]), ((1,), [ONE])],
)
def test_mixhop_keeps_the_hops_it_is_told_to(keep, expected):
    torch.testing.assert_close(
        MixHop(hops=2, kept_hops=keep).encode(PATH), torch.tensor(expected).T
    )
    for wrong in ((), (3,), (0, -1), (1, 1)):
        with pytest.raises(ConfigurationError, match="must name at least one hop between 0 and"):
            MixHop(hops=2, kept_hops=wrong)


def test_mixhop_may_divide_each_hop_by_its_own_length():
    left, right = [3.0, 0.0, 0.0, 8.0], [4.0, 2.0, 0.0, 6.0]
    graph = replace(PATH, features=torch.tensor([left, right]).T)
    columns = []
    for x, y in ((left, right), (hop(left), hop(right))):
        lengths = [max((a * a + b * b) ** 0.5, 1e-12) for a, b in zip(x, y, strict=True)]
        columns += [[a / n for a, n in zip(side, lengths, strict=True)] for side in (x, y)]
    encoder = MixHop(hops=2, kept_hops=(0, 1), unit=True)
    found = encoder.scaled(encoder.encode(graph))
    torch.testing.assert_close(found, torch.tensor(columns).T)
    torch.testing.assert_close(found[3], torch.tensor([0.8, 0.6, 0.8, 0.6]))  # alone: hops agree
    torch.testing.assert_close(found[0, :2], torch.tensor([0.6, 0.8]))
    assert found[2, :2].tolist() == [0.0, 0.0]  # no features: no length either


def test_reservoir_equals_its_formula_written_out():
    encoder = topologies.make("reservoir", hops=1, dims=2)
    own, others = encoder.weights(0, 1)
    # Without self-loops Â weighs both edges of the path 1/√2.
    gathered = torch.tensor([[2.0], [5.0], [2.0], [0.0]]) / 2**0.5
    expected = torch.tanh(PATH.features @ own + gathered @ others)
    torch.testing.assert_close(encoder.encode(PATH), expected)
    assert encoder.weights(0, 1)[0].equal(own)
    assert set(topologies.names()) == {*HAND, "reservoir"}


@pytest.mark.parametrize("name", topologies.names())
@few_each
@given(seed=st.integers(0, 10_000))
def test_permutation_equivariance(name, seed):
    graph = random_graph(seed, classes=3)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    encoder = topologies.make(name)
    torch.testing.assert_close(
        encoder.encode(graph.subgraph(order)), encoder.encode(graph)[order], atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("name", topologies.names())
@few_each
@given(seed=st.integers(0, 10_000), hops=st.integers(0, 3))
def test_an_embedding_depends_on_its_ego_subnetwork_only(name, seed, hops):
    graph = random_graph(seed, nodes=14, edges=12)
    encoder = topologies.make(name, hops=hops)
    ego = reach(graph, torch.tensor([0]), hops=encoder.hops)[0]
    outside = torch.ones(graph.num_nodes, dtype=torch.bool)
    outside[ego] = False
    features = graph.features.clone()
    features[outside] += 100.0
    rows, columns = graph.edge_rows(), graph.indices.long()
    kept = ~(outside[rows] & outside[columns])  # every edge that does not touch the ego goes
    changed = Graph.from_edges(
        torch.stack([columns[kept], rows[kept]]), features=features, labels=graph.labels
    )
    torch.testing.assert_close(encoder.encode(changed)[0], encoder.encode(graph)[0])


@pytest.mark.parametrize("name", topologies.names())
def test_sparse_features_give_the_embeddings_of_dense_ones(name):
    graph = random_graph(3, nodes=60, edges=80, dims=50)
    thin = graph.features * (torch.rand(60, 50, generator=torch.Generator().manual_seed(0)) > 0.99)
    dense = Graph(graph.indptr, graph.indices, thin, graph.labels)
    sparse = Graph(graph.indptr, graph.indices, thin.to_sparse_csr(), graph.labels)
    encoder = topologies.make(name)
    torch.testing.assert_close(encoder.encode(sparse), encoder.encode(dense))
    lonely = graph_of([], features=torch.eye(3))  # which comes back unchanged
    embeddings = encoder.encode(lonely)
    assert embeddings.shape[0] == 3
    assert embeddings.isfinite().all()
    assert lonely.features.equal(torch.eye(3))


def test_caches_with_a_shelf_encode_once_for_each_way(monkeypatch):
    made = []
    encode = EmbeddingCache.encode

    def counted(self, graph):
        made.append((self.topology.name, self.topology.hops, self.scaling))
        return encode(self, graph)

    monkeypatch.setattr(EmbeddingCache, "encode", counted)
    resources = Resources(cache=SharedCache())

    def cache(name="sgc", *, hops=2, scaling="unit"):
        topology = topologies.make(name, hops=hops)
        return EmbeddingCache(topology, scaling=scaling, resources=resources)

    one = cache()
    assert one(PATH) is one(PATH) is cache()(PATH)
    for other in (cache(hops=1), cache("ppr"), cache(scaling="none")):
        other(PATH)
    assert made == [("sgc", 2, "unit"), ("sgc", 1, "unit"), ("ppr", 2, "unit"), ("sgc", 2, "none")]
    EmbeddingCache(topologies.make("sgc"))(PATH)  # without a cache each computes its own
    assert made[4:] == [("sgc", 2, "unit")]


def test_a_shelf_keeps_nothing_alive():
    class Thing:
        pass

    cache, thing = SharedCache(), Thing()
    kept = cache.take(thing, "embedding", Thing)
    gone = weakref.ref(kept)
    del thing, kept
    gc.collect()
    assert gone() is None


def test_hops_by_hand():
    """On 0 - 1 the step is 1/2 everywhere: any hop but 0 is the mean of both."""
    graph = graph_of(path_pairs(2), features=torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    found = EmbeddingCache(ViewHops(kept_hops=(0, 2))).encode(graph)
    mean = [0.6, 0.8]
    expected = torch.tensor([[1.0, 0.0, *mean], [0.0, 1.0, *mean]])
    torch.testing.assert_close(found, expected)
    turned = EmbeddingCache(ViewHops(kept_hops=(2, 0))).encode(graph)
    torch.testing.assert_close(turned, expected.roll(2, dims=1))
    # Features up to the limit stay as they are.
    graph = random_graph(0, dims=5)
    assert ViewHops(kept_hops=(0,), widest=5).inputs(graph) is graph
    narrower = ViewHops(kept_hops=(0,), widest=4).inputs(graph)
    assert narrower.num_features == 4
    assert narrower.indices is graph.indices


def test_narrower_features_keep_inner_products():
    graph = random_graph(1, nodes=30, dims=3000)
    unit = graph.with_features(normalize(graph.features, dim=1))
    few = ViewHops(kept_hops=(0,), widest=1024).inputs(unit).features
    errors = few @ few.t() - unit.features @ unit.features.t()
    # of standard deviation 1/√1024 = 0.03 between two nodes, √2 as much of a length
    assert float(errors.fill_diagonal_(0.0).std()) < 1.2 / 32
    assert float(errors.abs().max()) < 5 / 32


def test_sparse_features_give_the_same_numbers():
    graph = random_graph(2, nodes=30, dims=40)
    graph = graph.with_features(graph.features * (graph.features > 0.8))
    sparse = graph.with_features(as_csr(graph.features))
    assert sparse.features.layout == torch.sparse_csr
    for widest in (8, 40):
        cache = EmbeddingCache(ViewHops(kept_hops=(0, 1, 3), widest=widest))
        torch.testing.assert_close(cache.encode(sparse), cache.encode(graph), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stored", ["dense", "sparse"])
def test_hops_in_half_precision_may_be_computed_in_blocks_of_columns(monkeypatch, stored):
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


def test_the_matrix_depends_on_widths_alone():
    one, other = (random_graph(seed, dims=9) for seed in (0, 1))
    hops = ViewHops(kept_hops=(0,), widest=4)
    both = torch.cat([one.features, other.features])
    together = hops.inputs(graph_of([], features=both)).features
    apart = torch.cat([hops.inputs(one).features, hops.inputs(other).features])
    torch.testing.assert_close(together, apart)
    assert together.abs().sum() > 0


@pytest.mark.parametrize("sparse", [False, True])
def test_hops_in_float16_are_the_rounded_ones(small_graph, sparse):
    """Made one after the other they are the same as made at once and rounded."""
    features = small_graph.features.to_sparse_csr() if sparse else small_graph.features
    graph = small_graph.with_features(features)
    hops = ViewHops(kept_hops=(0, 1, 3))
    whole = EmbeddingCache(hops)(graph)
    assert EmbeddingCache(hops, storage="float16")(graph).equal(whole.half())
