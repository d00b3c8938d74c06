"""Streams of nodes that have several labels or numbers."""

import pytest
import torch

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.graphs import Graph, Targets
from evergraph.streams import GraphStream

NAN = float("nan")


def ring(nodes: int = 30, *, timed: bool = False, values: torch.Tensor | None = None) -> Graph:
    values = torch.arange(2.0 * nodes).reshape(nodes, 2) if values is None else values
    return Graph.from_edges(
        torch.stack([torch.arange(nodes), torch.arange(nodes).roll(1)]),
        features=torch.eye(nodes),
        targets=Targets(values, "numbers", ("height", "weight")),
        time=torch.arange(nodes) // 3 if timed else None,
        undirected=True,
    )


def test_nodes_arrive_in_a_random_order_in_equal_parts():
    graph = ring()
    stream = GraphStream(graph, tasks=3, by="random")
    assert repr(stream) == (
        "GraphStream(tasks=3, numbers=2, nodes=30, edges='within', setting='class-il')"
    )
    met = []
    for task in stream:
        assert (len(task.train), len(task.validation)) == (6, 2)
        assert task.train_targets is not None
        assert task.label_space.kind == "numbers"
        assert torch.equal(task.train_targets, graph.targets.values[task.ids[task.train]])
        assert task.label_space.names == ("height", "weight")
        assert task.label_space.num_classes == 2
        met += task.ids.tolist()
    assert sorted(met) == list(range(30))
    assert met != sorted(met)
    other = GraphStream(graph, tasks=3, by="random", seed=1)
    assert other.open(0).ids.tolist() != stream.open(0).ids.tolist()


def test_nodes_arrive_in_the_order_of_time():
    stream = GraphStream(ring(timed=True), by="time", tasks=2)
    assert [task.ids.tolist() for task in stream] == [[*range(15)], [*range(15, 30)]]


@pytest.mark.parametrize(("timed", "first"), [(True, [0, 1, 2, 3, 4, 5]), (False, None)])
def test_by_class_stands_for_what_the_graph_allows(timed, first):
    stream = GraphStream(ring(timed=timed))
    assert len(stream) == 5
    assert first is None or stream.open(0).ids.tolist() == first


def test_exams_hold_targets_and_unknown_nodes_are_left_out():
    stream = GraphStream(ring(), tasks=3, by="random")
    for testing in ("local", "global"):
        for exam in stream.exams(2, testing):
            assert exam.targets is not None
            assert len(exam.targets) == len(exam.nodes)
            assert exam.graph.targets is None
            assert bool((exam.graph.labels == -1).all())
    assert stream.open(0).graph.targets is None
    # Nodes of which nothing is known are left out.
    values = torch.arange(60.0).reshape(30, 2)
    values[:5] = NAN
    values[5, 0] = NAN  # the other one is known
    stream = GraphStream(ring(values=values), tasks=2, by="random")
    assert sorted(id for task in stream for id in task.ids.tolist()) == list(range(5, 30))


def test_classes_may_come_in_a_random_order_too():
    labels = torch.arange(30) // 15
    graph = Graph.from_edges(torch.zeros(2, 0).long(), features=torch.eye(30), labels=labels)
    stream = GraphStream(graph, by="random", tasks=2)
    assert stream.tasks == [(0, 1), ()]
    assert len(stream.open(0).ids) == 15


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"by": "blurred"}, ConfigurationError, "arrive by 'time' or 'random'"),
        ({"setting": "task-il"}, ConfigurationError, "have none: use 'class-il'"),
        ({"by": "time"}, DataError, "by = 'time' needs the time of every node"),
        ({"by": "random", "tasks": 20}, DataError, "make fewer tasks than 20"),
    ],
)
def test_what_means_nothing_without_classes_is_refused(options, error, said):
    with pytest.raises(error, match=said):
        GraphStream(ring(), **options)


def test_too_few_nodes_are_refused():
    values = torch.full((30, 2), NAN)
    values[0] = 1.0
    with pytest.raises(DataError, match="targets are known of 1 nodes"):
        GraphStream(ring(values=values))
