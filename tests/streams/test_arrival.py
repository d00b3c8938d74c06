"""Which task brings a node, and which task brings a class first."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.streams import Arrival, order_classes
from evergraph.streams.arrival import arrival_of


def test_nodes_and_classes_arrive_by_hand():
    #        node  0  1  2  3   4  5  6
    labels = torch.tensor([3, 1, 1, 3, -1, 0, 2])
    owner = torch.tensor([2, 2, 0, 0, -1, 2, -1])  # class 2 is left out
    arrival = arrival_of(owner, labels, classes=[3, 1, 0])
    assert arrival.new_classes == [(3, 1), (), (0,)]
    assert arrival.classes == [3, 1, 0]
    assert len(arrival) == 3
    # The order of classes decides within a task.
    labels, owner = torch.tensor([0, 1, 2]), torch.tensor([0, 1, 0])
    assert arrival_of(owner, labels, classes=[2, 1, 0]).new_classes == [(2, 0), (1,)]
    # Tasks without a node are counted where asked.
    labels, owner = torch.tensor([0, 0]), torch.tensor([0, 0])
    assert arrival_of(owner, labels, classes=[0], tasks=3).new_classes == [(0,), (), ()]
    # Nodes are shared out by hand.
    arrival = Arrival(torch.tensor([1, 0, 1, -1, 3]), [(0,), (), (), ()])
    shares = arrival.shared_out(torch.tensor([0, 1, 2, 4]))
    assert [nodes.tolist() for nodes in shares] == [[1], [0, 2], [], [4]]


@given(nodes=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=20))
def test_every_class_is_new_once_with_its_first_nodes(nodes):
    labels, owner = torch.tensor(nodes).T
    arrival = arrival_of(owner, labels, classes=sorted(set(labels.tolist())))
    assert sorted(arrival.classes) == sorted(set(labels.tolist()))
    for task, classes in enumerate(arrival.new_classes):
        for label in classes:
            assert int(owner[labels == label].min()) == task


def equal(classes: int) -> torch.Tensor:
    return torch.full((classes,), 5)


def flat(tasks: list[tuple[int, ...]]) -> list[int]:
    return [label for task in tasks for label in task]


FIVE, MIXED = [5] * 6, [9, 1, 2, 0, 3, 9]
ORDERED: list[tuple[list[int], dict[str, Any], list[tuple[int, ...]]]] = [
    (FIVE, {"per_task": 2}, [(0, 1), (2, 3), (4, 5)]),
    (FIVE, {"per_task": 3, "order": "label"}, [(0, 1, 2), (3, 4, 5)]),
    (FIVE[:5], {"per_task": 2}, [(0, 1), (2, 3)]),  # a single class left over is dropped
    (FIVE[:4], {"per_task": 3}, [(0, 1, 2)]),
    (FIVE[:5], {"per_task": 3}, [(0, 1, 2), (3, 4)]),  # two or more make a smaller task
    (FIVE[:3], {"per_task": 10}, [(0, 1, 2)]),
    (FIVE[:3], {"per_task": 1}, [(0,), (1,), (2,)]),  # nothing is left over
    (FIVE[:1], {"per_task": 1}, [(0,)]),
    (MIXED, {"per_task": 2}, [(0, 4)]),  # at least 3 nodes unless told; 5 is left over
    (MIXED, {"per_task": 2, "min_size": 2}, [(0, 2), (4, 5)]),
    (MIXED, {"per_task": 1, "min_size": 3}, [(0,), (4,), (5,)]),
    (MIXED, {"per_task": 1, "min_size": 4}, [(0,), (5,)]),
    (FIVE[:4], {"per_task": 2, "order": [3, 1, 0, 2]}, [(3, 1), (0, 2)]),
    (FIVE, {"per_task": 2, "order": (5, 2)}, [(5, 2)]),  # classes may be left out
    ([4, 9, 2, 4, 30, 9], {"per_task": 2, "order": "size"}, [(4, 1), (5, 0)]),  # 3 is left over
    ([4, 9, 2, 4, 30, 9], {"per_task": 1, "order": "size", "min_size": 9}, [(4,), (1,), (5,)]),
]


@pytest.mark.parametrize(("sizes", "options", "expected"), ORDERED)
def test_classes_become_tasks(sizes, options, expected):
    given = torch.tensor(sizes)
    assert order_classes(given, **options) == expected
    assert given.tolist() == sizes


def test_shuffling_is_a_permutation_that_follows_the_seed_alone():
    first, again = (
        [order_classes(equal(12), per_task=2, order="shuffled", seed=seed) for seed in range(10)]
        for _ in range(2)
    )
    assert first == again
    assert {tuple(sorted(flat(tasks))) for tasks in first} == {tuple(range(12))}
    assert len({tuple(flat(tasks)) for tasks in first}) == 10
    assert order_classes(equal(4), per_task=2, seed=1) == [(0, 1), (2, 3)]
    # Shuffling leaves small classes and the global generator alone.
    before = torch.get_rng_state()
    tasks = order_classes(torch.tensor([5, 1, 5, 5, 5]), per_task=2, order="shuffled")
    assert sorted(flat(tasks)) == [0, 2, 3, 4]
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize("order", [[0, 0, 1], [0, 1, 9], [0, -1], [0, 2]])
def test_an_order_with_doubles_strangers_or_small_classes_is_refused(order):
    with pytest.raises(ConfigurationError) as caught:
        order_classes(torch.tensor([5, 5, 1]), per_task=1, order=order)
    assert "order must name each class at most once" in str(caught.value)
    assert str(order) in str(caught.value)
    with pytest.raises(
        ConfigurationError, match="order must be 'label', 'size', 'shuffled' or classes, not 'age'"
    ):
        order_classes(equal(4), per_task=2, order="age")


@pytest.mark.parametrize("per_task", [0, -1, 1.5, True])
def test_tasks_of_no_class_are_refused(per_task):
    with pytest.raises(ConfigurationError, match="classes_per_task must be an integer"):
        order_classes(equal(4), per_task=per_task)


@pytest.mark.parametrize(("sizes", "found"), [([5], 1), ([5, 1], 1), ([1, 1], 0), ([], 0)])
def test_too_few_classes_for_a_task_are_refused(sizes, found):
    count = "1 class has" if found == 1 else f"{found} classes have"
    message = f"no task can be made: {count} at least 3 nodes, and a task needs 2"
    with pytest.raises(DataError, match=message):
        order_classes(torch.tensor(sizes), per_task=2)
