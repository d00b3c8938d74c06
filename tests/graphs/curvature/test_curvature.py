"""Curvature by hand, and as GraphRicciCurvature has it."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.graphs import Graph, forman_curvature
from graphs_to_draw import Pairs, graph_of

REFERENCE = json.loads((Path(__file__).parent / "curvature_reference.json").read_text())["graphs"]
NODES = 8
pairs = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=16)


def complete(nodes: int) -> Graph:
    return graph_of(list(combinations(range(nodes), 2)), nodes)


def cycle(nodes: int) -> Graph:
    return graph_of([(node, (node + 1) % nodes) for node in range(nodes)], nodes)


def torus(side: int) -> Graph:
    cells = [(row, column) for row in range(side) for column in range(side)]
    right = [(side * row + column, side * row + (column + 1) % side) for row, column in cells]
    down = [(side * row + column, side * ((row + 1) % side) + column) for row, column in cells]
    return graph_of(right + down, side * side)


def double_star(left: int, right: int) -> Graph:
    """0 and 1 joined, with so many leaves each that their degrees are left and right."""
    leaves = [(0, 2 + leaf) for leaf in range(left - 1)]
    leaves += [(1, 1 + left + leaf) for leaf in range(right - 1)]
    return graph_of([(0, 1), *leaves], left + right)


def by_edge(graph: Graph, values: torch.Tensor) -> dict[tuple[int, int], float]:
    ends = zip(graph.edge_rows().tolist(), graph.indices.tolist(), strict=True)
    return dict(zip(ends, values.tolist(), strict=True))


@pytest.mark.parametrize("nodes", [2, 3, 4, 7])
def test_complete_graphs(nodes: int) -> None:
    graph = complete(nodes)
    # 4 - 2 (n - 1) + 3 (n - 2)
    assert forman_curvature(graph).tolist() == [nodes] * graph.num_edges


@pytest.mark.parametrize("nodes", [6, 7, 12])
def test_long_cycles_are_flat(nodes: int) -> None:
    assert not forman_curvature(cycle(nodes)).any()


@pytest.mark.parametrize("degrees", [(1, 1), (1, 2), (1, 5), (2, 2), (2, 3), (3, 7), (4, 4)])
def test_trees(degrees: tuple[int, int]) -> None:
    graph, (left, right) = double_star(*degrees), degrees
    assert by_edge(graph, forman_curvature(graph))[0, 1] == 4 - left - right


def test_a_star() -> None:
    star = graph_of([(0, leaf) for leaf in range(1, 6)], 6)
    assert forman_curvature(star).tolist() == [4 - 5 - 1] * 10


def test_a_grid_has_degrees_alone() -> None:
    graph = torus(6)
    assert forman_curvature(graph).tolist() == [4 - 4 - 4] * graph.num_edges


def test_two_triangles_that_share_an_edge() -> None:
    graph = graph_of([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)], 4)
    assert by_edge(graph, forman_curvature(graph))[0, 1] == 4 - 3 - 3 + 6
    assert by_edge(graph, forman_curvature(graph))[0, 2] == 4 - 3 - 2 + 3


@pytest.mark.parametrize("name", REFERENCE)
def test_graph_ricci_curvature_agrees(name: str) -> None:
    reference = REFERENCE[name]
    edges = [tuple(edge) for edge in reference["edges"]]
    graph = graph_of(edges, reference["nodes"])
    forman = by_edge(graph, forman_curvature(graph))
    assert [forman[edge] for edge in edges] == reference["forman"]


@settings(max_examples=40, deadline=None)
@given(pairs=pairs)
def test_forman_counts_triangles(pairs: Pairs) -> None:
    graph = graph_of(pairs, NODES)
    near = [set(graph.neighbours(node).tolist()) for node in range(NODES)]
    expected = {
        (u, v): 4 - len(near[u]) - len(near[v]) + 3 * len(near[u] & near[v])
        for u in range(NODES)
        for v in near[u]
    }
    assert by_edge(graph, forman_curvature(graph)) == expected


@settings(max_examples=25, deadline=None)
@given(pairs=pairs, order=st.permutations(range(NODES)))
def test_names_and_directions_do_not_matter(pairs: Pairs, order: list[int]) -> None:
    graph = graph_of(pairs, NODES)
    renamed = graph_of([(order[source], order[target]) for source, target in pairs], NODES)
    values = forman_curvature(graph)
    assert values.dtype == torch.float32
    assert len(values) == graph.num_edges
    found, again = by_edge(graph, values), by_edge(renamed, forman_curvature(renamed))
    assert all(found[u, v] == found[v, u] for u, v in found)
    assert again == {(order[u], order[v]): value for (u, v), value in found.items()}


@settings(max_examples=25, deadline=None)
@given(pairs=pairs)
def test_a_directed_graph_has_the_curvature_of_its_undirected_edges(pairs: Pairs) -> None:
    directed, both = graph_of(pairs, NODES, undirected=False), graph_of(pairs, NODES)
    expected = by_edge(both, forman_curvature(both))
    found = by_edge(directed, forman_curvature(directed))
    assert found == {edge: expected[edge] for edge in found}


@pytest.mark.parametrize("nodes", [0, 3])
def test_a_graph_without_edges(nodes: int) -> None:
    values = forman_curvature(graph_of([], nodes))
    assert values.shape == (0,)
    assert values.dtype == torch.float32


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of([*REFERENCE["karate"]["edges"]], 34)
    whole = forman_curvature(graph)
    for size in (1, 7, 100):
        monkeypatch.setattr("evergraph.graphs.edge_measures.BLOCK_NEIGHBOURS", size)
        assert forman_curvature(graph).equal(whole)
