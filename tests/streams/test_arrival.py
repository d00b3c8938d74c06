"""Which task brings a node, and which task brings a class first."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.streams import Arrival
from evergraph.streams.arrival import arrival_of


def test_a_class_is_new_with_its_first_node_by_hand() -> None:
    #        node  0  1  2  3   4  5  6
    labels = torch.tensor([3, 1, 1, 3, -1, 0, 2])
    owner = torch.tensor([2, 2, 0, 0, -1, 2, -1])  # class 2 is left out
    arrival = arrival_of(owner, labels, classes=[3, 1, 0])
    assert arrival.new_classes == [(3, 1), (), (0,)]
    assert arrival.classes == [3, 1, 0]
    assert len(arrival) == 3


def test_the_order_of_classes_decides_within_a_task() -> None:
    labels, owner = torch.tensor([0, 1, 2]), torch.tensor([0, 1, 0])
    assert arrival_of(owner, labels, classes=[2, 1, 0]).new_classes == [(2, 0), (1,)]


def test_tasks_without_a_node_are_counted_where_asked() -> None:
    labels, owner = torch.tensor([0, 0]), torch.tensor([0, 0])
    assert arrival_of(owner, labels, classes=[0], tasks=3).new_classes == [(0,), (), ()]


def test_nodes_are_shared_out_by_hand() -> None:
    arrival = Arrival(torch.tensor([1, 0, 1, -1, 3]), [(0,), (), (), ()])
    shares = arrival.shared_out(torch.tensor([0, 1, 2, 4]))
    assert [nodes.tolist() for nodes in shares] == [[1], [0, 2], [], [4]]


@settings(max_examples=25, deadline=None)
@given(nodes=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=20))
def test_every_class_is_new_exactly_once_and_never_before_its_nodes(
    nodes: list[tuple[int, int]],
) -> None:
    labels, owner = torch.tensor(nodes).T
    arrival = arrival_of(owner, labels, classes=sorted(set(labels.tolist())))
    assert sorted(arrival.classes) == sorted(set(labels.tolist()))
    for task, classes in enumerate(arrival.new_classes):
        for label in classes:
            assert int(owner[labels == label].min()) == task
