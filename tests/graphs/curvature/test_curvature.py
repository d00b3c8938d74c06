"""Curvature by hand, by linear programming, and as GraphRicciCurvature has it."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse.csgraph import shortest_path

from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph, forman_curvature, ollivier_curvature
from graphs_to_draw import Pairs, graph_of, ring_pairs, star_pairs

Matrix = npt.NDArray[np.float64]
REFERENCE = json.loads((Path(__file__).parent / "curvature_reference.json").read_text())["graphs"]
NODES = 8
pairs = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=16)
# most of what happens to a lazy walk on eight nodes happens below 1 / (degree + 1)
shares = st.floats(0, 1) | st.floats(0, 0.34)
SQUARES = [(0, 1), (1, 2), (2, 3), (3, 0), (2, 4), (4, 5), (5, 3)]  # two that share the edge 2 - 3


def complete(nodes: int) -> Graph:
    return graph_of(list(combinations(range(nodes), 2)), nodes)


def cycle(nodes: int) -> Graph:
    return graph_of(ring_pairs(nodes), nodes)


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


def ollivier(graph: Graph, alpha: float, edge: tuple[int, int] = (0, 1)) -> float:
    return by_edge(graph, ollivier_curvature(graph, alpha=alpha))[edge]


def measure(adjacency: Matrix, node: int, alpha: float) -> Matrix:
    share: Matrix = (1 - alpha) * adjacency[node] / adjacency[node].sum()
    share[node] = alpha
    return share


def by_linear_programme(pairs: Pairs, alpha: float, longest: int) -> dict[tuple[int, int], float]:
    """1 - W₁ with every cell of the transport plan a variable, distances cut off at longest."""
    adjacency = np.zeros((NODES, NODES))
    for source, target in pairs:
        adjacency[source, target] = adjacency[target, source] = source != target
    distances = np.minimum(shortest_path(adjacency, unweighted=True), longest)
    rows, columns = np.kron(np.eye(NODES), np.ones(NODES)), np.kron(np.ones(NODES), np.eye(NODES))
    found = {}
    for u, v in zip(*(ends.tolist() for ends in adjacency.nonzero()), strict=True):
        masses = [measure(adjacency, u, alpha), measure(adjacency, v, alpha)]
        plan = linprog(
            distances.reshape(-1), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate(masses)
        )
        found[u, v] = 1 - plan.fun
    return found


@pytest.mark.parametrize("nodes", [2, 3, 4, 7])
def test_complete_graphs(nodes: int) -> None:
    # all but the two ends is shared; the mass |alpha - (1 - alpha) / (n - 1)| moves one step
    graph, others = complete(nodes), nodes - 1
    for alpha in (0.0, 0.1, 0.5, 0.9):
        expected = 1 - abs(alpha - (1 - alpha) / others)
        assert ollivier_curvature(graph, alpha=alpha).tolist() == pytest.approx(
            [expected] * graph.num_edges, abs=1e-6
        )
    # 4 - 2 (n - 1) + 3 (n - 2)
    assert forman_curvature(graph).tolist() == [nodes] * graph.num_edges


@pytest.mark.parametrize("nodes", [6, 7, 12])
@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.5])
def test_long_cycles_are_flat(nodes: int, alpha: float) -> None:
    assert ollivier_curvature(cycle(nodes), alpha=alpha).abs().max() < 1e-6
    assert not forman_curvature(cycle(nodes)).any()


def test_short_cycles_are_not() -> None:
    # at alpha = 0.5 a quarter goes from u to v and a quarter from u's other neighbour to v's
    assert ollivier(cycle(4), 0.5) == pytest.approx(1 - 2 / 4)
    assert ollivier(cycle(5), 0.5) == pytest.approx(1 - 1 / 4 - 2 / 4)
    # at alpha = 0 half goes from v to its other neighbour and half from u's other one to u
    assert ollivier(cycle(4), 0.0) == ollivier(cycle(5), 0.0) == 0


@pytest.mark.parametrize("degrees", [(1, 1), (1, 2), (1, 5), (2, 2), (2, 3), (3, 7), (4, 4)])
def test_trees(degrees: tuple[int, int]) -> None:
    # At alpha = 0 a leaf's mass is one step from all of its neighbour's. Elsewhere all but the
    # 1/du and 1/dv on the edge itself goes three steps and they go one: 1 - W = 2/du + 2/dv - 2.
    graph, (left, right) = double_star(*degrees), degrees
    alone = 0 if min(degrees) == 1 else 2 / left + 2 / right - 2
    assert ollivier(graph, 0.0) == pytest.approx(alone, abs=1e-6)
    # At alpha = 0.5 u and v part with nothing that the other lacks: half of 2/du + 2/dv - 2.
    assert ollivier(graph, 0.5) == pytest.approx(1 / left + 1 / right - 1, abs=1e-6)
    assert by_edge(graph, forman_curvature(graph))[0, 1] == 4 - left - right


def test_a_star() -> None:
    star = graph_of(star_pairs(5))
    assert ollivier_curvature(star, alpha=0.0).tolist() == [0] * 10
    assert ollivier_curvature(star).tolist() == pytest.approx([1 / 5] * 10)
    assert forman_curvature(star).tolist() == [4 - 5 - 1] * 10


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_the_grid_is_flat(alpha: float) -> None:
    # neighbourhoods are each other's, moved by one step
    graph = torus(6)
    assert ollivier_curvature(graph, alpha=alpha).abs().max() < 1e-6
    assert forman_curvature(graph).tolist() == [4 - 4 - 4] * graph.num_edges


def test_a_cube() -> None:
    cube = graph_of([(a, a ^ bit) for a in range(8) for bit in (1, 2, 4)], NODES)
    # alpha = 0: everything moves one step; alpha = 0.5: 1/3 from u to v, 1/6 on each other side
    assert ollivier_curvature(cube, alpha=0.0).tolist() == [0] * 24
    assert ollivier_curvature(cube).tolist() == pytest.approx([1 - 1 / 3 - 2 / 6] * 24)


def test_two_triangles_that_share_an_edge() -> None:
    graph = graph_of([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)], 4)
    # 0 - 1: both give a third (a sixth at 0.5) to 2 and 3; a third goes from end to end
    assert ollivier(graph, 0.0) == pytest.approx(2 / 3)
    assert ollivier(graph, 0.5) == pytest.approx(2 / 3)
    # 0 - 2 at 0: two thirds go from 2 and 3 to 0 and 1, one step. At 0.5: 1/4 from 0 to 2, and of
    # the 1/6 on 3 half to 1, one step, and half to 2, two steps.
    assert ollivier(graph, 0.0, (0, 2)) == pytest.approx(1 / 3)
    assert ollivier(graph, 0.5, (0, 2)) == pytest.approx(1 - 1 / 4 - 1 / 12 - 2 / 12)
    assert by_edge(graph, forman_curvature(graph))[0, 1] == 4 - 3 - 3 + 6
    assert by_edge(graph, forman_curvature(graph))[0, 2] == 4 - 3 - 2 + 3


@pytest.mark.parametrize("name", REFERENCE)
def test_graph_ricci_curvature_agrees(name: str) -> None:
    # Its own values are 64-bit sums of network simplex; ours differ by 3e-8, which is float32's.
    reference = REFERENCE[name]
    edges = [tuple(edge) for edge in reference["edges"]]
    graph = graph_of(edges, reference["nodes"])
    forman = by_edge(graph, forman_curvature(graph))
    assert [forman[edge] for edge in edges] == reference["forman"]
    for alpha, expected in reference["ollivier"].items():
        found = by_edge(graph, ollivier_curvature(graph, alpha=float(alpha)))
        assert [found[edge] for edge in edges] == pytest.approx(expected, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(pairs=pairs, alpha=shares)
@example(pairs=SQUARES, alpha=0.0)
@example(pairs=SQUARES, alpha=0.2)
@example(pairs=SQUARES, alpha=1.0)
def test_ollivier_equals_the_linear_programme(pairs: Pairs, alpha: float) -> None:
    graph = graph_of(pairs, NODES)
    found = by_edge(graph, ollivier_curvature(graph, alpha=alpha))
    assert found == pytest.approx(by_linear_programme(pairs, alpha, 3), abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(pairs=pairs, alpha=shares)
@example(pairs=SQUARES, alpha=0.5)
def test_beyond_the_limit_three_counts_as_two(pairs: Pairs, alpha: float) -> None:
    graph = graph_of(pairs, NODES)
    found = by_edge(graph, ollivier_curvature(graph, alpha=alpha, most_walks=0))
    exact, short = (by_linear_programme(pairs, alpha, longest) for longest in (3, 2))
    for edge, value in found.items():
        assert value >= exact[edge] - 1e-6
        assert min(abs(value - exact[edge]), abs(value - short[edge])) < 1e-6


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
@given(pairs=pairs, order=st.permutations(range(NODES)), alpha=shares)
def test_names_and_directions_do_not_matter(pairs: Pairs, order: list[int], alpha: float) -> None:
    graph = graph_of(pairs, NODES)
    renamed = graph_of([(order[source], order[target]) for source, target in pairs], NODES)
    for values, others in (
        (forman_curvature(graph), forman_curvature(renamed)),
        (ollivier_curvature(graph, alpha=alpha), ollivier_curvature(renamed, alpha=alpha)),
    ):
        assert values.dtype == torch.float32
        assert len(values) == graph.num_edges
        found, again = by_edge(graph, values), by_edge(renamed, others)
        assert all(found[u, v] == found[v, u] for u, v in found)
        assert again == {(order[u], order[v]): value for (u, v), value in found.items()}


@settings(max_examples=25, deadline=None)
@given(pairs=pairs)
def test_a_directed_graph_has_the_curvature_of_its_undirected_edges(pairs: Pairs) -> None:
    directed, both = graph_of(pairs, NODES, undirected=False), graph_of(pairs, NODES)
    for curvature in (forman_curvature, ollivier_curvature):
        expected = by_edge(both, curvature(both))
        found = by_edge(directed, curvature(directed))
        assert found == {edge: expected[edge] for edge in found}


@pytest.mark.parametrize("nodes", [0, 3])
def test_a_graph_without_edges(nodes: int) -> None:
    for values in (forman_curvature(graph_of([], nodes)), ollivier_curvature(graph_of([], nodes))):
        assert values.shape == (0,)
        assert values.dtype == torch.float32


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of([*REFERENCE["karate"]["edges"]], 34)
    whole = forman_curvature(graph)
    for size in (1, 7, 100):
        monkeypatch.setattr("evergraph.graphs.curvature.forman.BLOCK_NEIGHBOURS", size)
        assert forman_curvature(graph).equal(whole)


def test_only_the_entries_asked_for() -> None:
    graph = graph_of([*REFERENCE["karate"]["edges"]], 34)
    everything = ollivier_curvature(graph)
    for wanted in ([3, 150, 0, 3], [], list(range(20, 60))):
        entries = torch.tensor(wanted, dtype=torch.int64)
        assert ollivier_curvature(graph, entries=entries).equal(everything[entries])
        assert entries.tolist() == wanted


def test_hubs_in_a_tree_are_exact_whatever_the_limit() -> None:
    graph = double_star(400, 300)
    entry = graph.neighbours(0).tolist().index(1)
    found = ollivier_curvature(graph, entries=torch.tensor([entry]), alpha=0.0)
    assert found.item() == pytest.approx(2 / 400 + 2 / 300 - 2, abs=1e-6)


def test_hubs_with_much_between_them_are_nearly_exact() -> None:
    # 240 leaves of 0 and as many of 1 all know a go-between; one more of each does not.
    leaves, degree = 240, 242
    pairs = [(0, 1), (0, 3), (1, 4)]
    for leaf in range(5, 5 + 2 * leaves):
        pairs += [(leaf, 2), (leaf, leaf % 2)]
    graph = graph_of(pairs, 5 + 2 * leaves)
    entry = torch.tensor([graph.neighbours(0).tolist().index(1)])
    # half of 1 + 1/d - W: d the degree, 240 go two steps and one goes three, or two if cut short
    exact, short = (0.5 * (degree + 1 - 2 * leaves - last) / degree for last in (3, 2))
    for limit, expected in ((leaves**2, exact), (None, exact), (leaves**2 - 1, short)):
        found = ollivier_curvature(graph, entries=entry, most_walks=limit)
        assert found.item() == pytest.approx(expected, abs=1e-6)
    assert ollivier_curvature(graph, entries=entry).item() == pytest.approx(short, abs=1e-6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"alpha": 1.5}, "alpha must be a number from 0 to 1, not 1.5"),
        ({"alpha": -0.1}, "alpha must be"),
        ({"most_walks": -1}, "most_walks must be an integer of at least 0, not -1"),
        ({"entries": torch.tensor([0, 12])}, "entries must lie from 0 to 11, not from 0 to 12"),
        ({"entries": torch.tensor([-1])}, "entries must lie from 0 to 11"),
        ({"entries": torch.tensor([0.5])}, "entries must be integers"),
        ({"entries": torch.ones(12, dtype=torch.bool)}, "entries must be integers"),
        ({"entries": torch.zeros(2, 2, dtype=torch.int64)}, "entries must be integers"),
    ],
)
def test_what_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ollivier_curvature(cycle(6), **wrong)  # type: ignore[arg-type]
