"""What er-gnn, ssm, sem, full-subgraph and fgn keep and replay."""

from typing import Any

import pytest
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.evaluation import average_accuracy, average_forgetting
from evergraph.evaluation.evaluator import AccuracyMatrix, matrix_of
from evergraph.experiments.protocol import learn_stream
from evergraph.graphs import Graph, covered_nodes, reach
from evergraph.graphs.disjoint import disjoint_union
from evergraph.memory import EmbeddingMemory, SubgraphMemory
from evergraph.memory.samplers import UniformSampler
from evergraph.nn import GCN, PDGNN, FeatureGraph, backbones
from evergraph.streams import GraphStream

REPLAY = ["er-gnn", "ssm", "sem", "full-subgraph"]


def matrix(learner: Any, graph: Graph, **options: Any) -> AccuracyMatrix:
    reports = learn_stream(learner, GraphStream(graph, **options), testings=["local"])
    return matrix_of([report.rows["local"]["balanced"] for report in reports])


@pytest.mark.parametrize(
    ("name", "backbone"),
    [("er-gnn", "gcn"), ("ssm", "pdgnn"), ("sem", "gcn"), ("full-subgraph", "pdgnn")],
)
def test_replay_stops_forgetting(make, small_graph, name, backbone):
    def learned(budget):
        memory = SubgraphMemory(budget=budget)
        made = make(name, epochs=10, lr=0.03, backbone=backbones.make(backbone), memory=memory)
        return matrix(made, small_graph)

    with_memory, without = learned(20), learned(0)
    assert average_forgetting(without) < -0.8
    assert average_accuracy(with_memory) > average_accuracy(without) + 0.35


@pytest.mark.parametrize("name", REPLAY)
def test_budget_counts_nodes_and_usage_everything(make, small_graph, name):
    memory = SubgraphMemory(budget=4, sampler=UniformSampler())
    learner = make(name, epochs=1, backbone=GCN(hidden=4), memory=memory)
    stream = GraphStream(small_graph)
    for index in range(2):
        learner.fit_task(stream.open(index))
    assert torch.bincount(memory.labels_).tolist() == [4, 4, 4, 4]
    graph = memory.graph_
    assert learner.usage.samples == graph.num_nodes * small_graph.num_features
    assert learner.usage.edges == graph.num_edges
    assert learner.usage.bytes == sum(tensor.nbytes for tensor in memory.state().values())
    assert learner.begin_task(stream.open(2)) == len(stream.splits[2].train) + 16


def test_er_gnn_keeps_the_nodes_and_nothing_around_them(make, small_graph):
    memory = SubgraphMemory(budget=4)
    make("er-gnn", epochs=1, memory=memory).fit_task(GraphStream(small_graph).open(0))
    assert memory.graph_.num_nodes == len(memory) == 8


@pytest.mark.parametrize(
    ("options", "neighbours"),
    [
        ({"name": "ssm", "choice": "random"}, 1),
        ({"name": "ssm", "choice": "degree"}, 3),
        ({"name": "sem"}, 3),
    ],
)
def test_sparsified_ego_networks_stay_within_their_budget(make, small_graph, options, neighbours):
    memory = SubgraphMemory(budget=4)
    learner = make(epochs=1, memory=memory, neighbours=neighbours, **options)
    stream = GraphStream(small_graph)
    learner.fit_task(stream.open(0))
    kept = memory.graph_
    centres = len(memory)
    assert centres < kept.num_nodes <= centres * (1 + neighbours + neighbours**2)
    inside = centres * (1 + neighbours)  # nodes that chose neighbours
    assert kept.num_edges <= 2 * inside * neighbours  # each edge works both ways
    whole = SubgraphMemory(budget=4)
    make("full-subgraph", epochs=1, memory=whole).fit_task(stream.open(0))
    assert kept.num_edges < whole.graph_.num_edges


def test_sem_keeps_the_neighbour_in_the_triangle_not_the_bridge(make):
    """Node 0 is in a triangle with 1 and 2 and has a bridge to 3, which leads to 4."""
    edges = torch.tensor([[0, 0, 1, 0, 3], [1, 2, 2, 3, 4]])
    graph = Graph.from_edges(
        edges, features=torch.eye(5), labels=torch.zeros(5, dtype=torch.long), undirected=True
    )
    learner = make("sem", backbone=GCN(layers=1), neighbours=2)
    kept = learner.keep(graph, torch.tensor([0]))
    assert kept.graph.features.argmax(1).tolist() == [0, 1, 2]


def test_ssm_by_degree_prefers_hubs_and_at_random_does_not(make):
    """Node 0 has two neighbours: node 1 with 9 further ones, and node 2 with none."""
    edges = torch.tensor([[0, 0, *[1] * 9], [1, 2, *range(3, 12)]])
    graph = Graph.from_edges(
        edges, features=torch.eye(12), labels=torch.zeros(12, dtype=torch.long), undirected=True
    )
    hub = {}
    for choice in ("random", "degree"):
        learner = make("ssm", backbone=GCN(layers=1), neighbours=1, choice=choice)
        draws = [learner.keep(graph, torch.tensor([0])).graph for _ in range(100)]
        hub[choice] = sum(bool(g.features[:, 1].any()) for g in draws) / 100
    assert hub["random"] == pytest.approx(0.5, abs=0.2)
    assert hub["degree"] == pytest.approx(10 / 11, abs=0.06)


@pytest.mark.parametrize("backbone", ["gin", "sage", "gat"])
def test_a_complete_ego_network_gives_the_scores_of_the_whole_graph(make, small_graph, backbone):
    memory = SubgraphMemory(budget=3)
    learner = make("full-subgraph", backbone=backbones.make(backbone), memory=memory)
    task = GraphStream(small_graph).open(0)
    chosen = []
    keep = learner.keep
    learner.keep = lambda graph, centres: chosen.append(centres) or keep(graph, centres)
    learner.fit_task(task)
    graph = memory.graph_
    before = learner.logits(task.graph, chosen[0])
    after = learner.logits(graph, memory.centres_)
    torch.testing.assert_close(after, before, atol=1e-4, rtol=1e-4)
    met = torch.cat(reach(task.graph, chosen[0], hops=2)).unique()
    assert graph.num_nodes == len(met)


def test_stored_graphs_do_not_mix_with_the_current_one(make, small_graph):
    memory = SubgraphMemory(budget=5)
    learner = make("ssm", epochs=3, backbone=GCN(hidden=8), memory=memory)
    stream = GraphStream(small_graph)
    learner.fit_task(stream.open(0))
    task = stream.open(1)
    learner.begin_task(task)
    assert memory.graph_ is not None
    union = disjoint_union([task.graph, memory.graph_])
    rows = torch.cat([task.train, memory.centres_ + task.graph.num_nodes])
    apart = torch.cat(
        [learner.logits(task.graph, task.train), learner.logits(memory.graph_, memory.centres_)]
    )
    torch.testing.assert_close(learner.logits(union, rows), apart, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "budget"),
    [("er-gnn", 5), ("ssm", 0.1), ("sem", 5), ("full-subgraph", 0.1), ("gem", 5), ("a-gem", 0.1)],
)
def test_a_budget_holds_for_classes_that_come_back(make, small_graph, name, budget):
    memory = SubgraphMemory(budget=budget)
    learner = make(name, epochs=1, backbone=GCN(hidden=4), memory=memory)
    stream = GraphStream(small_graph, by="blurred", tasks=3)
    for task in stream:
        learner.fit_task(task)
        sizes = [task.met_sizes[label] for label in range(task.label_space.num_classes)]
        expected = [5 if budget == 5 else max(1, round(budget * size)) for size in sizes]
        found = torch.bincount(memory.labels_, minlength=len(sizes))
        assert bool((found <= torch.tensor(expected)).all())
    assert found.tolist() == expected
    graph = memory.graph_
    assert graph is not None
    hops = 2 if name in ("ssm", "sem", "full-subgraph") else 0
    assert bool(covered_nodes(graph, memory.centres_, hops=hops).all())  # nothing is left behind


def test_er_gnns_own_sampler_refuses_classes_that_come_back(make, small_graph):
    learner, stream = make("er-gnn", epochs=1), GraphStream(small_graph, by="blurred", tasks=3)
    learner.fit_task(stream.open(0))
    with pytest.raises(ConfigurationError, match="'embedding-coverage' must see a class whole"):
        learner.fit_task(stream.open(1))


def test_a_gradient_a_task_counts_with_the_nodes(make, two_pairs):
    memory = SubgraphMemory(budget=2)
    learner = make("gem", memory=memory, backbone=PDGNN(hidden=(3,)))
    assert (learner.usage.gradients, learner.usage.bytes) == (0, 0)
    stream = GraphStream(two_pairs)
    for tasks, classes in ((1, 2), (2, 4)):
        learner.fit_task(stream.open(tasks - 1))
        values = (4 + 1) * 3 + (3 + 1) * classes  # weights and biases of both layers
        nodes = 2 * classes
        assert learner.usage.samples == nodes * 4
        assert learner.usage.edges == memory.usage.edges
        assert learner.usage.gradients == tasks * values
        assert learner.usage.bytes == memory.usage.bytes + 4 * tasks * values


def test_stored_feature_graphs_keep_old_classes(make, two_pairs):
    kept = []
    for budget in (10, 0):
        memory = EmbeddingMemory(budget=budget, sampler=UniformSampler())
        backbone = FeatureGraph(channels=(8,), dropout=0.0)
        learner = make("fgn", epochs=20, lr=0.06, memory=memory, backbone=backbone)
        stream = GraphStream(two_pairs)
        for task in stream:
            learner.fit_task(task)
        exam = stream.exams(1, "local")[0]
        answers = learner.predict(exam.graph, exam.nodes)
        kept.append(float((answers == exam.labels).float().mean()))
    assert kept == [1.0, 0.0]


def test_a_node_is_kept_as_what_makes_its_feature_graph(make, two_pairs):
    learner = make("fgn", epochs=1)
    for task in GraphStream(two_pairs):
        learner.fit_task(task)
    memory = learner.memory
    assert memory.embeddings_.shape[1] == 8  # its 4 features and its neighbours', not 4² of them
    assert (memory.budget, memory.sampler.name) == (100, "uniform")
    inputs = learner.backbone.prepare(two_pairs)  # no edges between tasks: the same graph
    torch.testing.assert_close(memory.embeddings_, inputs[memory.nodes_])


def test_features_that_are_not_told_apart_are_said_once(make, two_pairs, caplog):
    caplog.set_level("INFO", "evergraph")
    for width, said in ((2, 1), (4, 0)):
        caplog.clear()
        learner = make("fgn", epochs=1, backbone=FeatureGraph(width=width))
        for task in GraphStream(two_pairs):
            learner.fit_task(task)
        assert caplog.text.count(f"projected at random to {width}") == said
