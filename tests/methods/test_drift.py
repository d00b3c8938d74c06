"""Stored knowledge moved by the drift that new nodes' ego-subnetworks show."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.closed_form import ClassStatistics
from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.evaluation.evaluator import evaluate
from evergraph.graphs import Graph
from evergraph.methods import refresh as module
from evergraph.methods.refresh import RIDGE, Drift, drift_map, drifted, seen_drift
from evergraph.nn import PDGNN, RandomFeatures
from evergraph.streams import GraphStream
from evergraph.topology import SGC

Make = Callable[..., Any]
# Of unit vectors of two classes, four each, in four dimensions: 4 / (4 + RIDGE * 8 / 4).
KEPT = 4 / (4 + 2 * RIDGE)


@pytest.fixture
def mixing() -> Graph:
    """Classes 0 and 1 without edges, until each node meets 2 of class 2, or 3 of class 3."""
    met = [(i, 8 + (i + k) % 4) for i in range(4) for k in range(2)]
    met += [(4 + i, 12 + (i + k) % 4) for i in range(4) for k in range(3)]
    labels = torch.arange(16) // 4
    return Graph.from_edges(
        torch.tensor(met).t(), features=torch.eye(4)[labels], labels=labels, undirected=True
    )


def make_backbone(name: str) -> PDGNN:
    if name == "tem":
        return PDGNN(topology=SGC(hops=1), hidden=(32,), dropout=0.0, scaling="none")
    return RandomFeatures(topology=SGC(hops=1), width=64, scaling="none")


def learned(make: Make, name: str, stream: GraphStream, **options: Any) -> Any:
    learner = make(name, backbone=make_backbone(name), epochs=20, lr=0.06, **options)
    for task in stream:
        learner.fit_task(task)
    return learner


def test_the_drift_of_old_nodes_is_what_new_neighbours_add(mixing):
    stream = GraphStream(mixing, edges="all")
    assert seen_drift(stream.open(0), make_backbone("tem")) is None
    drift = seen_drift(stream.open(1), make_backbone("tem"))
    assert drift.share == 1.0
    assert drift.before.equal(torch.eye(4)[torch.arange(8) // 4])
    expected = torch.tensor([[1 / 3, 0, 2 / 3, 0], [0, 1 / 4, 0, 3 / 4]])
    torch.testing.assert_close(drift.after, expected[torch.arange(8) // 4])


def test_stored_vectors_move_to_where_their_nodes_are(mixing, make):
    learner = make("tem", backbone=make_backbone("tem"), refresh="corrected")
    stream = GraphStream(mixing, edges="all")
    learner.fit_task(stream.open(0))
    learner.begin_task(stream.open(1))
    moved = learner.memory.embeddings_[learner.memory.labels_ == 1][0]
    expected = [0, 1 - 3 / 4 * KEPT, 0, 3 / 4 * KEPT]
    torch.testing.assert_close(moved, torch.tensor(expected))


def test_unit_vectors_stay_unit_vectors(mixing, make):
    backbone = PDGNN(topology=SGC(hops=1), scaling="unit")
    learner = make("tem", backbone=backbone, refresh="corrected")
    stream = GraphStream(mixing, edges="all")
    learner.fit_task(stream.open(0))
    learner.begin_task(stream.open(1))
    stored = learner.memory.embeddings_
    torch.testing.assert_close(stored.norm(dim=1), torch.ones(len(stored)))
    assert float(stored[learner.memory.labels_ == 1][0, 3]) > 0.9  # (1, 3) / √10, nearly


def test_class_means_move_to_where_recounting_puts_them(mixing, make):
    stream = GraphStream(mixing, edges="all")
    found = {
        refresh: learned(make, "analytic", stream, refresh=refresh).statistics_
        for refresh in ("none", "corrected", "embeddings")
    }
    exact = found["embeddings"]
    stale = float((found["none"].sums_ - exact.sums_).norm())
    assert float((found["corrected"].sums_ - exact.sums_).norm()) < 0.02 * stale
    stale = float((found["none"].gram_ - exact.gram_).tril().norm())
    assert float((found["corrected"].gram_ - exact.gram_).tril().norm()) < 0.02 * stale


def test_statistics_move_without_those_of_validation_nodes(mixing, make):
    stream = GraphStream(mixing, edges="all")
    found = {
        refresh: learned(make, "analytic", stream, refresh=refresh, regularisation=0.01)
        for refresh in ("none", "corrected", "embeddings")
    }
    exact = found["embeddings"].statistics_
    for name in ("sums_", "gram_"):
        stale, moved = (
            float((getattr(found[refresh].statistics_, name) - getattr(exact, name)).norm())
            for refresh in ("none", "corrected")
        )
        assert moved < 0.1 * stale, name
    assert len(found["corrected"].validation_.mass_) == 0


@pytest.mark.parametrize(
    ("name", "setting"), [("analytic", "class-il"), ("tem", "class-il"), ("tem", "task-il")]
)
def test_old_classes_are_found_later(name, setting, mixing, make):
    stream = GraphStream(mixing, edges="all", setting=setting)
    rows = {
        refresh: evaluate(learned(make, name, stream, refresh=refresh), stream, 1).rows["global"]
        for refresh in ("none", "corrected")
    }
    assert rows["corrected"]["balanced"] == [1.0, 1.0]
    if setting == "class-il":  # a class 1 node is mostly class 3 by now; task-IL does not ask
        assert rows["none"]["balanced"][0] < 1.0


def test_only_ego_subnetworks_of_new_nodes_are_read(mixing):
    far = torch.tensor([0, 1])  # two old nodes lose their edges, and must not be looked at
    rows = mixing.edge_rows()
    keep = ~(torch.isin(rows, far) | torch.isin(mixing.indices.long(), far))
    features = mixing.features.clone()
    features[far] = 1e9
    edges = torch.stack([rows[keep], mixing.indices[keep].long()])
    graph = Graph.from_edges(edges, features=features, labels=mixing.labels)
    drift = seen_drift(GraphStream(graph, edges="all").open(1), make_backbone("tem"))
    assert float(drift.after.max()) <= 1.0
    assert len(drift.before) == 6
    assert drift.share == 6 / 8


def test_what_is_out_of_sight_halves_the_drift():
    before, after = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    moved = drift_map(Drift(before, after, share=0.5), ridge=0.0)
    assert moved.tolist() == [[1.0, 0.0], [0.5, 0.5]]


@given(seen=st.integers(1, 8), dims=st.integers(1, 8), seed=st.integers(0, 99))
def test_both_ways_of_moving_vectors_agree(seen, dims, seed):
    generator = seeded(seed, "drift")
    before, after = torch.randn(2, seen, dims, generator=generator)
    vectors = torch.randn(3, dims, generator=generator)
    drift = Drift(before, after, share=0.7)
    expected = (vectors.double() @ drift_map(drift, ridge=0.1)).float()
    torch.testing.assert_close(drifted(vectors, drift, ridge=0.1), expected, rtol=1e-3, atol=1e-3)


@given(nodes=st.integers(1, 9), seed=st.integers(0, 99))
def test_transformed_statistics_are_those_of_transformed_nodes(nodes, seed):
    generator = seeded(seed, "transform")
    features = torch.randn(nodes, 3, generator=generator)
    matrix = torch.randn(3, 3, generator=generator).double()
    labels, weights = torch.arange(nodes) % 2, torch.rand(nodes, generator=generator) + 0.1
    moved, anew = ClassStatistics(3), ClassStatistics(3)
    moved.add(features, labels, weights)
    moved.transform(matrix)
    anew.add((features.double() @ matrix).float(), labels, weights)
    torch.testing.assert_close(moved.gram_.tril(), anew.gram_.tril(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(moved.sums_, anew.sums_, rtol=1e-4, atol=1e-4)


def test_many_nodes_are_thinned_evenly(mixing, monkeypatch):
    monkeypatch.setattr(module, "MAX_NODES", 4)
    drift = seen_drift(GraphStream(mixing, edges="all").open(1), make_backbone("tem"))
    assert drift.before.argmax(1).tolist() == [0, 0, 1, 1]  # nodes 0, 2, 4 and 6


@pytest.mark.parametrize("name", ["analytic", "tem"])
def test_a_graph_without_old_nodes_is_refused(name, mixing, make):
    stream = GraphStream(mixing, edges="within")
    learner = make(name, backbone=make_backbone(name), refresh="corrected")
    learner.fit_task(stream.open(0))
    with pytest.raises(ConfigurationError, match="edges must be 'all'"):
        learner.fit_task(stream.open(1))


def test_an_estimate_is_not_forgotten_from(mixing, make):
    backbone = make_backbone("analytic")
    learner = make("analytic", backbone=backbone, ledger=True, refresh="corrected")
    task = GraphStream(mixing, edges="all").open(0)
    learner.fit_task(task)
    with pytest.raises(ConfigurationError, match="corrected"):
        learner.forget(torch.tensor([0]), task.graph)
