"""Graphs, streams, reach and embeddings on a GPU give what they give on a CPU."""

from dataclasses import replace

import pytest
import torch

from evergraph.closed_form import ViewFeatures
from evergraph.closed_form.codes import RelationCodes, RelationHops
from evergraph.core.resources import Resources
from evergraph.core.seeding import seeded
from evergraph.graphs import (
    Graph,
    NodeTypes,
    Relations,
    covered_nodes,
    forman_curvature,
    homophily,
    reach,
    reach_sizes,
)
from evergraph.graphs.propagation import propagate, sparse_product
from evergraph.methods import ERGNN, Auto
from evergraph.streams import GraphStream
from evergraph.topology import EmbeddingCache, topologies
from evergraph.training import Trainer

SUMMING = [name for name in topologies.names() if "dtype" in topologies.parameters(name)]


def sparse(graph: Graph) -> Graph:
    """Return the graph with few features other than 0, and those sparse."""
    features = graph.features.where(graph.features.abs() > 2.3, 0.0)
    return graph.with_features(features.to_sparse_csr())


@pytest.mark.parametrize("hops", [0, 1, 2, 3])
@pytest.mark.parametrize("name", topologies.names())
def test_every_topology(name, hops, small_graph, on_gpu):
    topology = topologies.make(name, hops=hops)
    expected, found = topology.encode(small_graph), topology.encode(on_gpu)
    assert found.device.type == "cuda"
    assert found.cpu().allclose(expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", topologies.names())
def test_every_topology_of_sparse_features(name, small_graph):
    topology, graph = topologies.make(name), sparse(small_graph)
    found = topology.encode(graph.to("cuda")).cpu()
    assert found.allclose(topology.encode(graph), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", topologies.names())
def test_every_topology_of_weighted_edges(name, small_graph, little_room):
    weights = torch.rand(small_graph.num_edges, generator=torch.Generator().manual_seed(0)) + 0.1
    topology, graph = topologies.make(name), replace(small_graph, weights=weights)
    expected = topology.encode(graph)
    assert topology.encode(graph.to("cuda")).cpu().allclose(expected, rtol=1e-4, atol=1e-5)
    little_room()  # rows, with their weights, go there a range at a time
    cache = EmbeddingCache(topology, scaling="none", device="cuda", resources=Resources())
    assert cache(graph).cpu().allclose(expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", topologies.names())
def test_embeddings_that_do_not_fit_the_device(name, small_graph, on_gpu, little_room):
    expected = EmbeddingCache(topologies.make(name))(small_graph)
    little_room()
    for graph in (small_graph, on_gpu):
        cache = EmbeddingCache(topologies.make(name), device="cuda", resources=Resources())
        assert cache(graph).cpu().allclose(expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", SUMMING)
def test_every_topology_with_half_rows(name, rows, small_graph, on_gpu, little_room):
    topology = topologies.make(name, dtype=rows)
    expected = topology.encode(small_graph)
    digits = 2e-3 if rows == "float16" else 2e-2  # a sum that ends otherwise may be rounded so
    assert topology.encode(on_gpu).cpu().allclose(expected, rtol=digits, atol=digits)
    little_room()
    for graph in (small_graph, on_gpu):
        cache = EmbeddingCache(topology, scaling="none", device="cuda", resources=Resources())
        assert cache(graph).cpu().allclose(expected, rtol=digits, atol=digits)


def test_a_stream_is_cut_alike(small_graph, on_gpu):
    time = torch.arange(small_graph.num_nodes) % 5
    for by in ("class", "time", "blurred"):
        ours, theirs = (
            GraphStream(Graph(**(vars(graph) | {"time": time.to(graph.device)})), by=by)
            for graph in (small_graph, on_gpu)
        )
        assert ours.tasks == theirs.tasks
        for first, second in zip(ours.splits, theirs.splits, strict=True):
            assert first.train.equal(second.train)
        task, other = ours.open(1), theirs.open(1)
        assert other.graph.device.type == "cuda"
        assert task.graph.indices.equal(other.graph.indices.cpu())
        assert task.train_labels.equal(other.train_labels)


def test_reach_and_coverage(small_graph, on_gpu):
    nodes = torch.arange(0, small_graph.num_nodes, 7)
    for hops in (0, 1, 2, 3):
        expected = reach_sizes(small_graph, nodes, hops=hops)
        assert reach_sizes(on_gpu, nodes, hops=hops).equal(expected)
        covered = covered_nodes(small_graph, nodes[:5], hops=hops)
        assert covered_nodes(on_gpu, nodes[:5], hops=hops).equal(covered)
        for first, second in zip(
            reach(small_graph, nodes, hops=hops), reach(on_gpu, nodes, hops=hops), strict=True
        ):
            assert first.equal(second)


def test_curvature_and_homophily(small_graph, on_gpu):
    assert forman_curvature(on_gpu).cpu().equal(forman_curvature(small_graph))
    assert homophily(on_gpu) == homophily(small_graph)


def test_sparse_times_sparse(small_graph):
    few = sparse(small_graph).features
    square = torch.eye(len(few)).to_sparse_csr()
    product = sparse_product(square.to("cuda"), few.to("cuda"))
    assert product.to_dense().cpu().equal(few.to_dense())
    assert propagate(square.to("cuda"), few.to("cuda")).device.type == "cuda"


@pytest.fixture
def related(small_graph: Graph) -> Graph:
    """Return the graph with three relations of three weights, and two types."""
    ends = torch.stack([small_graph.indices.long(), small_graph.edge_rows()])
    kinds = ends.sum(0) % 3
    relations = Relations.of(
        ends, kinds, ("a", "b", "c"), nodes=small_graph.num_nodes, weights=1.0 + kinds
    )
    types = NodeTypes(("even", "odd"), (torch.arange(small_graph.num_nodes) % 2).short())
    return small_graph.with_relations(relations).with_types(types)


@pytest.mark.parametrize("encoder", [RelationHops(width=32), RelationCodes(width=32)])
def test_embeddings(encoder, related):
    found = encoder.encode(related.to("cuda"))
    assert found.device.type == "cuda"
    assert found.cpu().allclose(encoder.encode(related), rtol=1e-4, atol=1e-5)


def test_embeddings_that_do_not_fit(related, little_room):
    little_room()
    cache = EmbeddingCache(RelationHops(width=32), device="cuda")
    expected = EmbeddingCache(RelationHops(width=32))(related)
    assert cache(related).cpu().allclose(expected, rtol=1e-4, atol=1e-5)


def test_a_stream_learned_by_auto(related):
    scores = []
    for device in ("cpu", "cuda"):
        stream = GraphStream(related, device=device)
        learner = Auto(
            backbone=ViewFeatures(views=("0|1|r+y", "0|r"), width=64),
            trainer=Trainer(device=device),
            generator=seeded(0),
        )
        for task in stream:
            learner.fit_task(task)
        (exam,) = stream.exams(len(stream) - 1, "global")
        scores.append(learner.logits(exam.graph, exam.nodes).cpu())
    assert scores[1].allclose(scores[0], rtol=1e-2, atol=1e-2)


def test_a_stream_learned_by_replay(related):
    learner = ERGNN(trainer=Trainer(device="cuda", epochs=2), generator=seeded(0))
    stream = GraphStream(related, device="cuda")
    for task in stream:
        learner.fit_task(task)
    (exam,) = stream.exams(len(stream) - 1, "global")
    assert learner.logits(exam.graph, exam.nodes).isfinite().all()
