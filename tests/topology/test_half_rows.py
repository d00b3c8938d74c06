"""What rows in half numbers change of every f_topo: no more than their digits allow."""

import pytest
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.core.resources import Resources
from evergraph.experiments.build import build_learner
from evergraph.experiments.config import RunConfig
from evergraph.graphs.csr import as_csr
from evergraph.graphs.kernels.scaled_rows import RowType
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.graph.live_embeddings import LiveEmbeddings
from evergraph.online.learner import OnlineLearner
from evergraph.topology import SGC, column_blocks, topologies
from evergraph.topology.column_blocks import encode_within
from graphs_to_draw import graph_of, path_pairs, random_graph
from several import Several

HALVES: list[RowType] = ["float16", "bfloat16"]
SUMMING = [name for name in topologies.names() if "dtype" in topologies.parameters(name)]


@pytest.mark.parametrize("rows", HALVES)
@pytest.mark.parametrize("name", SUMMING)
def test_they_do_change_and_whole_numbers_are_the_default(name, rows):
    graph = random_graph(1, nodes=30, edges=80, dims=7)
    plain = topologies.make(name).encode(graph)
    assert not topologies.make(name, dtype=rows).encode(graph).equal(plain)
    assert topologies.make(name, dtype="float32").encode(graph).equal(plain)


def test_a_hop_by_hand():
    #  0 - 1 with 2049 each: a hop halves the sum of what is held, 2049/√2 ≈ 1448.86 -> 1449
    pair = graph_of(path_pairs(2), features=torch.full((2, 1), 2049.0))
    found = SGC(hops=1, dtype="float16").encode(pair)
    assert found.flatten().tolist() == pytest.approx([2 * 1449 / 2**0.5] * 2, rel=1e-6)


@pytest.mark.parametrize("name", [each for each in SUMMING if topologies.make(each).separable])
def test_workers_hold_the_same_rows(name, small_graph):
    topology = topologies.make(name, dtype="bfloat16")
    found = encode_within(topology, small_graph, resources=Resources(engine=Several()), shared=True)
    # A last bit that differs may be rounded the other way at the next hop.
    torch.testing.assert_close(found, topology.encode(small_graph), rtol=2e-2, atol=1e-2)


def test_memory_is_foretold(small_graph):
    nodes = small_graph.num_nodes
    size = column_blocks._size
    # features, a hop and the one before in float32, and the rows that are gathered
    assert size(SGC(), small_graph, 5) == nodes * 5 * 12
    assert size(SGC(dtype="float16"), small_graph, 5) == nodes * 5 * 14
    assert size(SGC(), small_graph, 5, "cuda") == nodes * 5 * 16
    assert size(SGC(dtype="bfloat16"), small_graph, 5, "cuda") == nodes * 5 * 14


def test_sparse_features_are_not_rounded_while_they_stay_sparse():
    graph = random_graph(3, nodes=60, edges=80, dims=50)
    thin = graph.features * (torch.rand(60, 50, generator=torch.Generator().manual_seed(0)) > 0.99)
    sparse = graph.with_features(as_csr(thin))
    assert SGC(hops=1, dtype="float16").encode(sparse).equal(SGC(hops=1).encode(sparse))


def test_a_growing_graph_is_embedded_in_whole_numbers():
    with pytest.raises(ConfigurationError, match="dtype must be 'float32' for embeddings of"):
        LiveEmbeddings(SGC(dtype="float16"), GrowingGraph(num_features=3))
    with pytest.raises(ConfigurationError, match="not 'bfloat16'"):  # before the first node
        OnlineLearner(topology=SGC(dtype="bfloat16"))


def test_a_configuration_says_which():
    of_topology = RunConfig.of({"method": "tem", "topology": {"name": "sgc", "dtype": "float16"}})
    assert build_learner(of_topology, 0).backbone.topology.dtype == "float16"
    of_views = RunConfig.of({"backbone": {"name": "view-features", "dtype": "bfloat16"}})
    backbone = build_learner(of_views, 0).backbone
    hops, codes, *_ = backbone._topologies
    assert (hops.dtype, codes.dtype) == ("bfloat16", "float32")
