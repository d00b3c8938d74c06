"""Curvature by hand and as GraphRicciCurvature has it; homophily by hand and edge by edge."""

import json
from itertools import combinations
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.graphs import Graph, csr, forman_curvature, homophily
from graphs_to_draw import graph_of

REFERENCE = json.loads((Path(__file__).parent / "curvature_reference.json").read_text())["graphs"]
NODES = 8
pairs = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=16)


def by_edge(graph: Graph, values: torch.Tensor) -> dict[tuple[int, int], float]:
    ends = zip(graph.edge_rows().tolist(), graph.indices.tolist(), strict=True)
    return dict(zip(ends, values.tolist(), strict=True))


BY_HAND = {  # an edge (0, 1) and 4 - d_0 - d_1 + 3 · its triangles
    "complete": (list(combinations(range(7), 2)), 4 - 6 - 6 + 3 * 5),
    "a long cycle": ([(node, (node + 1) % 6) for node in range(6)], 4 - 2 - 2),
    "a star": ([(0, leaf) for leaf in range(1, 6)], 4 - 5 - 1),
    "a tree": ([(0, 1), (0, 2), (0, 3), (1, 4)], 4 - 3 - 2),
    "two triangles that share it": ([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)], 4 - 3 - 3 + 6),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name):
    pairs, expected = BY_HAND[name]
    graph = graph_of(pairs, 7)
    assert by_edge(graph, forman_curvature(graph))[0, 1] == expected


@pytest.mark.parametrize("name", REFERENCE)
def test_graph_ricci_curvature_agrees(name):
    reference = REFERENCE[name]
    edges = [tuple(edge) for edge in reference["edges"]]
    graph = graph_of(edges, reference["nodes"])
    forman = by_edge(graph, forman_curvature(graph))
    assert [forman[edge] for edge in edges] == reference["forman"]


@given(pairs=pairs, order=st.permutations(range(NODES)))
def test_names_and_directions_do_not_matter(pairs, order):
    graph = graph_of(pairs, NODES)
    renamed = graph_of([(order[source], order[target]) for source, target in pairs], NODES)
    values = forman_curvature(graph)
    assert values.dtype == torch.float32
    assert len(values) == graph.num_edges
    found, again = by_edge(graph, values), by_edge(renamed, forman_curvature(renamed))
    assert all(found[u, v] == found[v, u] for u, v in found)
    assert again == {(order[u], order[v]): value for (u, v), value in found.items()}


@given(pairs=pairs)
def test_a_directed_graph_has_the_curvature_of_its_undirected_edges(pairs):
    directed, both = graph_of(pairs, NODES, undirected=False), graph_of(pairs, NODES)
    expected = by_edge(both, forman_curvature(both))
    found = by_edge(directed, forman_curvature(directed))
    assert found == {edge: expected[edge] for edge in found}


def test_blocks_change_nothing(monkeypatch):
    graph = graph_of([*REFERENCE["karate"]["edges"]], 34)
    whole = forman_curvature(graph)
    for size in (1, 7, 100):
        monkeypatch.setattr("evergraph.graphs.edge_measures.BLOCK_NEIGHBOURS", size)
        assert forman_curvature(graph).equal(whole)


def test_homophily_of_a_square_by_hand():
    # 0 - 1 - 2 - 3 - 0 with classes a a a b: two edges of four join a to a
    square = [(0, 1), (1, 2), (2, 3), (3, 0)]
    for undirected in (False, True):
        assert homophily(graph_of(square, labels=[0, 0, 0, 1], undirected=undirected)) == 0.5
    assert homophily(graph_of(square, labels=[7, 7, 7, 7])) == 1.0
    assert homophily(graph_of(square, labels=[0, 1, 0, 1])) == 0.0
    # Without an edge to count it is zero.
    assert homophily(graph_of([], labels=[0, 0])) == 0.0
    assert homophily(graph_of([(0, 1)], labels=[-1, -1])) == 0.0
    assert homophily(graph_of([(0, 1)], labels=[0, 0]).without_labels()) == 0.0


@given(
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=15),
    labels=st.lists(st.integers(-1, 2), min_size=6, max_size=6),
    rows=st.sampled_from([1, 4, 1 << 20]),
)
def test_homophily_counts_edges(pairs, labels, rows):
    counted = [
        labels[s] == labels[t]
        for s, t in {pair for pair in pairs if pair[0] != pair[1]}
        if labels[s] >= 0 and labels[t] >= 0
    ]
    expected = sum(counted) / len(counted) if counted else 0.0
    graph = graph_of(pairs, labels=labels, undirected=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csr, "ROWS_CUT_TOGETHER", rows)
        patch.setitem(csr.BLOCK_ENTRIES, "cpu", rows)
        assert homophily(graph) == pytest.approx(expected)
