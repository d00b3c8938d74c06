"""The first entries of each row, by hand and against sorting every row."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.mapped import is_mapped
from evergraph.core.resources import Resources
from evergraph.graphs import Graph
from evergraph.graphs.csr import first_of_each_row


def test_the_smallest_keys_of_each_row_by_hand() -> None:
    # rows 0, 2 and 3 hold three, one and two entries; row 1 is empty
    owners = torch.tensor([0, 0, 0, 2, 3, 3])
    keys = torch.tensor([5.0, 1.0, 3.0, 9.0, 2.0, 2.0])
    assert first_of_each_row(owners, keys, 1).tolist() == [1, 3, 4]
    assert first_of_each_row(owners, keys, 2).tolist() == [1, 2, 3, 4, 5]
    assert sorted(first_of_each_row(owners, keys, 9).tolist()) == [0, 1, 2, 3, 4, 5]


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


class Tight(Resources):
    """No memory at all for arrays that stay: everything goes to a file."""

    @property
    def left(self) -> int:
        return 0


def test_what_does_not_fit_lies_in_files_and_is_the_same() -> None:
    ring = torch.stack([torch.arange(3000), torch.arange(3000).roll(1)])
    graph = Graph.from_edges(
        ring, features=torch.rand(3000, 9), labels=torch.arange(3000) % 2, undirected=True
    )
    nodes = torch.arange(500, 2500)
    in_memory, on_disk = graph.subgraph(nodes), graph.subgraph(nodes, resources=Tight())
    assert on_disk.mapped
    assert is_mapped(on_disk.features)
    assert not in_memory.mapped
    assert on_disk.indices.equal(in_memory.indices)
    assert on_disk.features.equal(in_memory.features)
    again = on_disk.subgraph(torch.arange(10), resources=Tight())  # of a graph in files
    assert again.indices.equal(in_memory.subgraph(torch.arange(10)).indices)
