"""Â by hand, and against the dense formula."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import UnknownNameError
from evergraph.graphs import normalised
from graphs_to_draw import Pairs, few_each, graph_of, matrix_of, path_pairs

pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=18)


#  0 - 1 - 2   and 3 apart
PATH = graph_of(path_pairs(3), 4)
S6, S2 = 6**-0.5, 2**-0.5
# rows of A + I hold 2, 3, 2 and 1 entries; rows of A hold 1, 2, 1 and none
HAND = {
    ("symmetric", True): [[1 / 2, S6, 0, 0], [S6, 1 / 3, S6, 0], [0, S6, 1 / 2, 0], [0, 0, 0, 1]],
    ("symmetric", False): [[0, S2, 0, 0], [S2, 0, S2, 0], [0, S2, 0, 0], [0, 0, 0, 0]],
    ("row", True): [[1 / 2, 1 / 2, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [0, 1 / 2, 1 / 2, 0],
                    [0, 0, 0, 1]],
    ("row", False): [[0, 1, 0, 0], [1 / 2, 0, 1 / 2, 0], [0, 1, 0, 0], [0, 0, 0, 0]],
    ("none", True): [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]],
    ("none", False): [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]],
}  # fmt: skip


@pytest.mark.parametrize(("scheme", "self_loops"), HAND)
def test_a_path_by_hand(scheme: str, self_loops: bool) -> None:
    matrix = normalised(PATH, self_loops=self_loops, scheme=scheme)  # type: ignore[arg-type]
    assert matrix.layout == torch.sparse_csr
    assert matrix.dtype == torch.float32
    assert matrix.crow_indices().dtype == torch.int32
    expected = torch.tensor(HAND[scheme, self_loops], dtype=torch.float32)
    torch.testing.assert_close(matrix.to_dense(), expected)


def test_a_directed_graph_by_hand() -> None:
    # 0 -> 1, 0 -> 2, 1 -> 2: rows of A + I hold 1, 2 and 3 entries
    graph = graph_of([(0, 1), (0, 2), (1, 2)], 3, undirected=False)
    expected = torch.tensor([[1, 0, 0], [S2, 1 / 2, 0], [3**-0.5, S6, 1 / 3]])
    torch.testing.assert_close(normalised(graph).to_dense(), expected)
    # Without self-loops row 0 is empty: D^-1/2 is 0 there, and so is what flows out of 0.
    bare = torch.tensor([[0, 0, 0], [0, 0, 0], [0, S2, 0]])
    torch.testing.assert_close(normalised(graph, self_loops=False).to_dense(), bare)
    mean = torch.tensor([[0.0, 0, 0], [1, 0, 0], [1 / 2, 1 / 2, 0]])
    torch.testing.assert_close(normalised(graph, self_loops=False, scheme="row").to_dense(), mean)


def test_an_unknown_scheme_lists_those_that_exist() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown normalisation 'col': .*none, row, symm"):
        normalised(PATH, scheme="col")  # type: ignore[arg-type]


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("self_loops", [True, False])
@few_each
@given(pairs=pairs)
def test_every_scheme_equals_its_dense_formula(
    undirected: bool, self_loops: bool, pairs: Pairs
) -> None:
    graph = graph_of(pairs, 6, undirected=undirected)
    A = matrix_of(pairs, undirected=undirected) + self_loops * torch.eye(6)
    degrees = A.sum(1)
    root = torch.diag(torch.where(degrees > 0, degrees**-0.5, 0.0))
    expected = {"symmetric": root @ A @ root, "row": root @ root @ A, "none": A}
    for scheme, dense in expected.items():
        ours = normalised(graph, self_loops=self_loops, scheme=scheme)  # type: ignore[arg-type]
        torch.testing.assert_close(ours.to_dense(), dense)
