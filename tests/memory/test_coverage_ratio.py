"""R_c by hand, and against ego-subnetworks joined one by one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.graphs import Graph, reach
from evergraph.memory import coverage_ratio
from graphs_to_draw import graph_of, path_pairs


def ratio(graph: Graph, nodes: list[int], hops: int) -> float:
    return coverage_ratio(graph, torch.tensor(nodes, dtype=torch.int64), hops=hops)


def test_a_path_by_hand() -> None:
    path = graph_of(path_pairs(5))  # and 5 apart
    assert ratio(path, [0], 0) == pytest.approx(1 / 6)
    assert ratio(path, [0], 1) == pytest.approx(2 / 6)
    assert ratio(path, [0, 2], 1) == pytest.approx(4 / 6)  # 1 is covered twice and counts once
    assert ratio(path, [2], 2) == pytest.approx(5 / 6)
    assert ratio(path, [2, 5], 2) == 1.0
    assert ratio(path, [], 2) == 0.0


def test_on_a_directed_graph_a_node_covers_those_that_flow_into_it() -> None:
    chain = graph_of(path_pairs(3), undirected=False)
    assert ratio(chain, [0], 2) == pytest.approx(1 / 6)
    assert ratio(chain, [2], 2) == pytest.approx(3 / 6)


@settings(max_examples=20, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12),
    nodes=st.lists(st.integers(0, 5), max_size=5),
    hops=st.integers(0, 3),
)
def test_the_ratio_is_the_share_of_the_union_of_egos(
    pairs: list[tuple[int, int]], nodes: list[int], hops: int
) -> None:
    graph = graph_of(pairs, undirected=False)
    egos = reach(graph, torch.tensor(nodes, dtype=torch.int64), hops=hops)
    union = {node for ego in egos for node in ego.tolist()}
    assert ratio(graph, nodes, hops) == pytest.approx(len(union) / 6)
