"""Rows of CSR arrays, and their pointers: of 32 bits while these count all entries, else of 64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.mapped import is_mapped
from evergraph.core.resources import Resources
from evergraph.graphs import Graph, csr, normalised
from evergraph.graphs.csr import as_csr, csr_tensor, first_of_each_row, pointer_type
from evergraph.graphs.disjoint import disjoint_union
from graphs_to_draw import graph_of, path_pairs


def test_the_smallest_keys_of_each_row_by_hand():
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
def test_each_row_keeps_what_sorting_it_would(entries, count):
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


def test_what_does_not_fit_lies_in_files_and_is_the_same():
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


PATH = graph_of(path_pairs(4), 4)  # six entries


@pytest.fixture
def counts_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say that 31 bits count to seven."""
    monkeypatch.setattr(csr, "MOST_INT32", 7)


@pytest.mark.usefixtures("counts_to")
def test_pointers_get_longer_where_entries_get_more():
    assert graph_of(path_pairs(4), 4).indptr.dtype == torch.int32
    longer = graph_of(path_pairs(5), 5)  # eight entries
    assert (longer.indptr.dtype, longer.indices.dtype) == (torch.int64, torch.int32)
    assert longer.neighbours(3).tolist() == [2, 4]
    assert longer.subgraph(torch.arange(4)).indptr.dtype == torch.int32
    assert disjoint_union([PATH, PATH]).indptr.tolist() == [0, 1, 3, 5, 6, 7, 9, 11, 12]
    assert disjoint_union([PATH, PATH]).indptr.dtype == torch.int64
    # Six entries and four self-loops: the graph's pointers are short, those of the matrix long.
    assert normalised(PATH, self_loops=False).crow_indices().dtype == torch.int32
    matrix = normalised(PATH)
    assert matrix.crow_indices().tolist() == [0, 2, 5, 8, 10]
    assert matrix.crow_indices().dtype == matrix.col_indices().dtype == torch.int64
    eye = torch.eye(4).to_sparse_csr()
    pair = [Graph(PATH.indptr, PATH.indices, as_csr(eye), PATH.labels)] * 2
    found = disjoint_union(pair).features
    assert found.crow_indices().tolist() == list(range(9))
    assert found.crow_indices().dtype == torch.int64


def test_a_matrix_has_one_type_for_both_of_its_arrays(monkeypatch):
    assert [pointer_type(2**31 - 1), pointer_type(2**31)] == [torch.int32, torch.int64]
    values, shape = torch.ones(6), (4, 4)
    mixed = csr_tensor(PATH.indptr.long(), PATH.indices, values, shape)
    assert mixed.crow_indices().dtype == mixed.col_indices().dtype == torch.int32
    assert as_csr(torch.eye(3).to_sparse_csr()).col_indices().dtype == torch.int32
    monkeypatch.setattr(csr, "MOST_INT32", 5)
    mixed = csr_tensor(PATH.indptr, PATH.indices, values, shape)
    assert mixed.crow_indices().dtype == mixed.col_indices().dtype == torch.int64
