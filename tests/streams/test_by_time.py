"""Tasks of consecutive times."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.streams.ways import by_time, group_times

LABELS = torch.tensor([0, 1, 0, 2, 1, -1])
YEARS = torch.tensor([2003, 1999, 1999, 2001, 2003, 1990])


def test_times_make_tasks_by_hand() -> None:
    arrival = by_time(LABELS, YEARS, classes=[0, 1, 2])
    assert arrival.owner.tolist() == [2, 0, 0, 1, 2, -1]  # the unlabelled 1990 makes no task
    assert arrival.new_classes == [(0, 1), (2,), ()]
    # Classes that do not arrive make no task.
    arrival = by_time(LABELS, YEARS, classes=[1, 0])
    assert arrival.owner.tolist() == [1, 0, 0, -1, 1, -1]
    assert arrival.new_classes == [(1, 0), ()]
    # five nodes in two tasks: two in 1999, then one and two
    assert by_time(LABELS, YEARS, classes=[0, 1, 2], tasks=2).owner.tolist() == [1, 0, 0, 1, 1, -1]


@pytest.mark.parametrize(
    ("counts", "tasks", "expected"),
    [
        ([1, 1, 1, 1], 2, [0, 0, 1, 1]),
        ([5, 1, 1, 1], 2, [0, 1, 1, 1]),
        ([1, 1, 8], 2, [0, 0, 1]),
        ([1, 1, 8], 3, [0, 1, 2]),  # a share of 3.3 would take two times, but all need one
        ([8, 1, 1], 3, [0, 1, 2]),
        ([1, 2, 4, 8, 16, 32], 3, [0, 0, 0, 0, 1, 2]),  # 15, 16, 32
        ([3, 3], 9, [0, 1]),  # no more tasks than times
        ([4, 2], 1, [0, 0]),
    ],
)
def test_groups_are_of_nearly_equal_size(
    counts: list[int], tasks: int, expected: list[int]
) -> None:
    assert group_times(counts, tasks).tolist() == expected


@given(counts=st.lists(st.integers(1, 50), min_size=1, max_size=30), tasks=st.integers(1, 12))
def test_groups_are_consecutive_and_as_many_as_asked_where_there_are_times(
    counts: list[int], tasks: int
) -> None:
    groups = group_times(counts, tasks)
    assert groups.unique_consecutive().tolist() == list(range(min(tasks, len(counts))))
