"""Nodes without a class come along, or are left out."""

import logging

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.graphs import UNLABELLED, Graph, Targets, csr
from evergraph.graphs.relations import NodeTypes
from evergraph.streams import GraphStream, arrival
from evergraph.streams.arrival import with_companions


def authors() -> Graph:
    """Return 24 papers of 4 classes; an author wrote 0 and 23, another is known by that one."""
    ends = torch.tensor([[24, 24, 25], [0, 23, 24]])
    return Graph.from_edges(
        ends,
        features=torch.eye(26),
        labels=torch.cat([torch.arange(24) // 6, torch.tensor([-1, -1])]),
        undirected=True,
    )


def test_they_come_with_the_first_task_that_needs_them():
    graph = authors()
    owner = torch.cat([torch.arange(24) // 12, torch.tensor([-1, -1])])
    assert with_companions(graph, owner)[24:].tolist() == [0, 0]
    later = torch.where(owner == 0, -1, owner)  # of classes that are dropped
    assert with_companions(graph, later)[24:].tolist() == [1, 1]
    assert with_companions(graph, later)[0] == -1  # it has a class, and it is not wanted


def test_a_stream_of_typed_nodes_keeps_them():
    graph = authors()
    left, along = GraphStream(graph), GraphStream(graph, unlabelled="along")
    for stream in (left, along):
        assert stream.step_sizes == [
            stream.open(step).graph.num_nodes for step in range(len(stream))
        ]
    assert sum(along.step_sizes) == sum(left.step_sizes) + 2
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


def test_nodes_with_targets_stay_where_they_are():
    values = torch.arange(26.0)[:, None]
    values[24:] = torch.nan
    ends = torch.tensor([[*range(23), 24], [*range(1, 24), 0]])  # a chain, so tasks are neighbours
    graph = Graph.from_edges(
        ends, features=torch.eye(26), targets=Targets(values, "numbers"), undirected=True
    )
    left, along = (GraphStream(graph, tasks=2, unlabelled=way) for way in ("leave-out", "along"))
    own = [set(left.open(task).ids.tolist()) for task in (0, 1)]
    kept = [set(along.open(task).ids.tolist()) for task in (0, 1)]
    assert [ids - {24} for ids in kept] == own
    assert [24 in ids for ids in kept] == [0 in ids for ids in own]


def over_all_edges(graph: Graph, owner: Tensor) -> Tensor:
    never = len(owner) + 1
    free = graph.labels == UNLABELLED
    one, other = graph.edge_rows(), graph.indices.long()
    when = owner.where(owner >= 0, never)
    for _ in range(arrival.ROUNDS):
        near = when.clone()
        near.scatter_reduce_(0, one, when[other], "amin")
        near.scatter_reduce_(0, other, when[one], "amin")
        when = torch.where(free, near, when)
    return when.where(when < never, -1)


NODES = 12
nodes = st.integers(0, NODES - 1)


@given(
    ends=st.lists(st.tuples(nodes, nodes), max_size=40),
    labels=st.lists(st.integers(-1, 3), min_size=NODES, max_size=NODES),
    undirected=st.booleans(),
    block=st.sampled_from([1, 20, 100]),
)
def test_blocks_of_rows_do_not_show(ends, labels, undirected, block):
    graph = Graph.from_edges(
        torch.tensor(ends, dtype=torch.long).reshape(-1, 2).T,
        features=torch.eye(NODES),
        labels=torch.tensor(labels),
        undirected=undirected,
    )
    owner = torch.where(graph.labels == 3, -1, graph.labels)  # class 3 is dropped
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(csr.BLOCK_ENTRIES, "cpu", block)
        patch.setattr(csr, "ROWS_CUT_TOGETHER", 5)
        found = with_companions(graph, owner)
    assert torch.equal(found, over_all_edges(graph, owner))


@pytest.mark.parametrize(("labelled", "way"), [(12, "leave-out"), (11, "along")])
def test_where_most_nodes_have_no_class_they_come_along_and_it_is_said(labelled, way, caplog):
    graph = Graph.from_edges(
        torch.tensor([[0], [20]]),
        features=torch.eye(24),
        labels=torch.where(torch.arange(24) < labelled, torch.arange(24) % 2, UNLABELLED),
    )
    assert GraphStream(graph).unlabelled == way
    said = "54.2 % of the nodes have no class and come along with the first task"
    assert (said in caplog.text) == (way == "along")
    caplog.clear()
    GraphStream(graph, unlabelled="leave-out")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
