"""Row pointers are of 32 bits while these count all entries, and of 64 bits beyond."""

from __future__ import annotations

import pytest
import torch

from evergraph.graphs import Graph, csr, normalised
from evergraph.graphs.csr import as_csr, csr_tensor, pointer_type
from evergraph.graphs.disjoint import disjoint_union
from graphs_to_draw import graph_of, path_pairs

PATH = graph_of(path_pairs(4), 4)  # six entries


@pytest.fixture
def counts_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say that 31 bits count to seven."""
    monkeypatch.setattr(csr, "MOST_INT32", 7)


@pytest.mark.usefixtures("counts_to")
def test_pointers_get_longer_where_entries_get_more() -> None:
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


def test_a_matrix_has_one_type_for_both_of_its_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [pointer_type(2**31 - 1), pointer_type(2**31)] == [torch.int32, torch.int64]
    values, shape = torch.ones(6), (4, 4)
    mixed = csr_tensor(PATH.indptr.long(), PATH.indices, values, shape)
    assert mixed.crow_indices().dtype == mixed.col_indices().dtype == torch.int32
    assert as_csr(torch.eye(3).to_sparse_csr()).col_indices().dtype == torch.int32
    monkeypatch.setattr(csr, "MOST_INT32", 5)
    mixed = csr_tensor(PATH.indptr, PATH.indices, values, shape)
    assert mixed.crow_indices().dtype == mixed.col_indices().dtype == torch.int64
