"""Nodes without a class come along, or are left out."""

from __future__ import annotations

import torch

from evergraph.graphs import Graph, Targets
from evergraph.graphs.relations import NodeTypes
from evergraph.streams import GraphStream
from evergraph.streams.companions import with_companions


def authors() -> Graph:
    """Return 24 papers of 4 classes; an author wrote 0 and 23, another is known by that one."""
    ends = torch.tensor([[24, 24, 25], [0, 23, 24]])
    return Graph.from_edges(
        ends,
        features=torch.eye(26),
        labels=torch.cat([torch.arange(24) // 6, torch.tensor([-1, -1])]),
        undirected=True,
    )


def test_they_come_with_the_first_task_that_needs_them() -> None:
    graph = authors()
    owner = torch.cat([torch.arange(24) // 12, torch.tensor([-1, -1])])
    assert with_companions(graph, owner)[24:].tolist() == [0, 0]
    later = torch.where(owner == 0, -1, owner)  # of classes that are dropped
    assert with_companions(graph, later)[24:].tolist() == [1, 1]
    assert with_companions(graph, later)[0] == -1  # it has a class, and it is not wanted


def test_a_stream_of_typed_nodes_keeps_them() -> None:
    graph = authors()
    left, along = GraphStream(graph), GraphStream(graph, unlabelled="along")
    assert left.open(0).graph.num_nodes == 12
    task = along.open(0)
    assert task.ids.tolist() == [*range(12), 24, 25]
    assert task.class_sizes == {0: 6, 1: 6}
    assert task.graph.neighbours(12).tolist() == [0, 13]
    assert not torch.isin(torch.tensor([12, 13]), torch.cat([task.train, task.validation])).any()
    (exam,) = GraphStream(graph, unlabelled="along", edges="all").exams(1, "global")
    assert exam.graph.num_nodes == 26
    assert 23 in exam.graph.neighbours(24).tolist()
    typed = graph.with_types(NodeTypes(("paper",), torch.zeros(26).short()))
    assert GraphStream(typed).unlabelled == "along"


def test_nodes_with_targets_stay_where_they_are() -> None:
    values = torch.arange(26.0)[:, None]
    values[24:] = torch.nan
    ends = torch.tensor([[*range(23), 24], [*range(1, 24), 0]])  # a chain, so tasks are neighbours
    graph = Graph.from_edges(
        ends, features=torch.eye(26), targets=Targets(values, "numbers"), undirected=True
    )
    left, along = (
        GraphStream(graph, tasks=2, unlabelled=way)  # type: ignore[arg-type]
        for way in ("leave-out", "along")
    )
    own = [set(left.open(task).ids.tolist()) for task in (0, 1)]
    kept = [set(along.open(task).ids.tolist()) for task in (0, 1)]
    assert [ids - {24} for ids in kept] == own
    assert [24 in ids for ids in kept] == [0 in ids for ids in own]
