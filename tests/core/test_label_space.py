"""What a node may be called, in class-IL and in task-IL."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import UnknownNameError
from evergraph.core.label_space import LabelSpace

sizes = st.lists(st.integers(0, 4), min_size=1, max_size=6).map(tuple)


def test_spaces_by_hand():
    before = LabelSpace("task-il")
    after = before.grown(2).grown(3)
    assert before.sizes == ()
    assert before.num_classes == 0
    assert after == LabelSpace("task-il", (2, 3))
    assert after.num_classes == 5
    # One loss term in class il and one a task in task il.
    tasks = torch.tensor([2, 0, 1, 0])
    assert LabelSpace("class-il", (2, 2, 2)).terms(tasks).tolist() == [0, 0, 0, 0]
    assert LabelSpace("task-il", (2, 2, 2)).terms(tasks).tolist() == [2, 0, 1, 0]
    assert tasks.tolist() == [2, 0, 1, 0]
    # An unknown setting lists the two.
    with pytest.raises(UnknownNameError, match=r"unknown setting 'task': .*class-il, task-il"):
        LabelSpace("task")


def test_a_task_may_bring_no_new_class():
    # classes 0 1 | none | 2
    space = LabelSpace("class-il", (2, 0, 1))
    assert space.num_classes == 3
    assert space.task_of(torch.tensor([0, 1, 2])).tolist() == [0, 0, 2]
    assert space.groups() == [range(0, 3)]
    assert LabelSpace("task-il", (2, 0, 1)).groups() == [range(0, 2), range(2, 3)]
    before = LabelSpace("class-il", (2,)).grown(0)
    assert before.sizes == (2, 0)
    assert list(before.newest()) == []
    assert before.terms(torch.tensor([1, 0])).tolist() == [0, 0]


@given(sizes=sizes)
def test_a_class_is_allowed_exactly_where_its_task_is_asked_for(sizes):
    space = LabelSpace("task-il", sizes)
    owners = [task for task, size in enumerate(sizes) for _ in range(size)]
    assert space.task_of(torch.arange(sum(sizes))).tolist() == owners
    allowed = space.allowed(torch.arange(len(sizes)))
    assert allowed.tolist() == [[o == task for o in owners] for task in range(len(sizes))]
    assert space.newest() == range(sum(sizes[:-1]), sum(sizes))
