"""The share of edges between nodes of one class."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph.graphs import csr, homophily
from graphs_to_draw import graph_of


def test_a_square_by_hand() -> None:
    # 0 - 1 - 2 - 3 - 0 with classes a a a b: two edges of four join a to a
    square = [(0, 1), (1, 2), (2, 3), (3, 0)]
    for undirected in (False, True):
        assert homophily(graph_of(square, labels=[0, 0, 0, 1], undirected=undirected)) == 0.5
    assert homophily(graph_of(square, labels=[7, 7, 7, 7])) == 1.0
    assert homophily(graph_of(square, labels=[0, 1, 0, 1])) == 0.0


def test_without_an_edge_to_count_homophily_is_zero() -> None:
    assert homophily(graph_of([], labels=[0, 0])) == 0.0
    assert homophily(graph_of([(0, 1)], labels=[-1, -1])) == 0.0
    assert homophily(graph_of([(0, 1)], labels=[0, 0]).without_labels()) == 0.0


@given(
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=15),
    labels=st.lists(st.integers(-1, 2), min_size=6, max_size=6),
    rows=st.sampled_from([1, 4, 1 << 20]),
)
def test_homophily_equals_counting_edge_by_edge(
    pairs: list[tuple[int, int]], labels: list[int], rows: int
) -> None:
    counted = [
        labels[s] == labels[t]
        for s, t in {pair for pair in pairs if pair[0] != pair[1]}
        if labels[s] >= 0 and labels[t] >= 0
    ]
    expected = sum(counted) / len(counted) if counted else 0.0
    graph = graph_of(pairs, labels=labels, undirected=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[homophily.__module__], "_ROWS", rows)
        patch.setitem(csr.BLOCK_ENTRIES, "cpu", rows)
        assert homophily(graph) == pytest.approx(expected)
