"""The share of edges between nodes of one class."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.graphs import Graph, homophily


def graph_of(pairs: list[tuple[int, int]], labels: list[int], *, undirected: bool = False) -> Graph:
    return Graph.from_edges(
        torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T,
        features=torch.eye(len(labels)),
        labels=torch.tensor(labels),
        undirected=undirected,
    )


def test_a_square_by_hand() -> None:
    # 0 - 1 - 2 - 3 - 0 with classes a a a b: two edges of four join a to a
    square = [(0, 1), (1, 2), (2, 3), (3, 0)]
    for undirected in (False, True):
        assert homophily(graph_of(square, [0, 0, 0, 1], undirected=undirected)) == 0.5
    assert homophily(graph_of(square, [7, 7, 7, 7])) == 1.0
    assert homophily(graph_of(square, [0, 1, 0, 1])) == 0.0


def test_an_edge_counts_once_in_each_direction_it_has() -> None:
    # 0 <-> 1 alike, 1 -> 2 not
    assert homophily(graph_of([(0, 1), (1, 0), (1, 2)], [0, 0, 1])) == pytest.approx(2 / 3)


def test_edges_with_an_unlabelled_end_do_not_count() -> None:
    # alike, unlike, and four with an end that has no class (two of them with none at either)
    pairs = [(0, 1), (1, 2), (2, 3), (3, 2), (3, 4), (4, 3)]
    assert homophily(graph_of(pairs, [0, 0, 1, -1, -1])) == 0.5


def test_without_an_edge_to_count_homophily_is_zero() -> None:
    assert homophily(graph_of([], [0, 0])) == 0.0
    assert homophily(graph_of([(0, 1)], [-1, -1])) == 0.0
    assert homophily(graph_of([(0, 1)], [0, 0]).without_labels()) == 0.0


@settings(max_examples=25, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=15),
    labels=st.lists(st.integers(-1, 2), min_size=6, max_size=6),
)
def test_homophily_equals_counting_edge_by_edge(
    pairs: list[tuple[int, int]], labels: list[int]
) -> None:
    counted = [
        labels[s] == labels[t]
        for s, t in {pair for pair in pairs if pair[0] != pair[1]}
        if labels[s] >= 0 and labels[t] >= 0
    ]
    expected = sum(counted) / len(counted) if counted else 0.0
    assert homophily(graph_of(pairs, labels)) == pytest.approx(expected)
