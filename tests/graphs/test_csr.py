"""The first entries of each row, by hand and against sorting every row."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.graphs.csr import first_of_each_row


def test_the_smallest_keys_of_each_row_by_hand() -> None:
    # rows 0, 2 and 3 hold three, one and two entries; row 1 is empty
    owners = torch.tensor([0, 0, 0, 2, 3, 3])
    keys = torch.tensor([5.0, 1.0, 3.0, 9.0, 2.0, 2.0])
    assert first_of_each_row(owners, keys, 1).tolist() == [1, 3, 4]
    assert first_of_each_row(owners, keys, 2).tolist() == [1, 2, 3, 4, 5]
    assert sorted(first_of_each_row(owners, keys, 9).tolist()) == [0, 1, 2, 3, 4, 5]


def test_no_entries_leave_none() -> None:
    nothing = torch.empty(0, dtype=torch.int64)
    assert first_of_each_row(nothing, torch.empty(0), 3).tolist() == []


@settings(max_examples=40, deadline=None)
@given(
    entries=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=20),
    count=st.integers(1, 4),
)
def test_each_row_keeps_what_sorting_it_would(entries: list[tuple[int, int]], count: int) -> None:
    entries = sorted(entries, key=lambda entry: entry[0])
    owners = torch.tensor([row for row, _ in entries], dtype=torch.int64)
    keys = torch.tensor([key for _, key in entries], dtype=torch.float64)
    expected = []
    for row in range(6):
        places = [place for place, (owner, _) in enumerate(entries) if owner == row]
        expected += sorted(places, key=lambda place: entries[place][1])[:count]
    assert first_of_each_row(owners, keys, count).tolist() == expected
