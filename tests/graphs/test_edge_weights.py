"""Â, with weights of edges and without: in the record, what is made of it, and every product."""

from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.mapped import is_mapped, map_array
from evergraph.core.resources import Resources
from evergraph.graphs import Graph, csr, normalised, smoother
from evergraph.graphs.kernels import row_ranges, scaled_rows
from evergraph.graphs.kernels.scaled_rows import Kernel, Normalisation, row_sums
from graphs_to_draw import Pairs, edge_index, path_pairs
from pyg import pyg_data

KERNELS: list[Kernel] = ["torch", *(["numba"] if find_spec("numba") else [])]
SCHEMES: list[Normalisation] = ["symmetric", "row", "none"]
seeds = st.integers(0, 10_000)


def weighted(
    pairs: Pairs, weights: list[float] | None, nodes: int = 3, *, undirected: bool = True
) -> Graph:
    """Node v has the feature v."""
    return Graph.from_edges(
        edge_index(pairs),
        features=torch.arange(float(nodes))[:, None],
        labels=torch.zeros(nodes, dtype=torch.int64),
        undirected=undirected,
        weights=None if weights is None else torch.tensor(weights),
    )


def weighted_at_random(seed: int, *, nodes: int = 12, undirected: bool = False) -> Graph:
    """Doubles, self-loops, edges of weight 0, and nodes that gather from nobody."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(40, generator=generator) * 3
    return Graph.from_edges(
        torch.randint(nodes - 2, (2, 40), generator=generator),
        features=torch.randn(nodes, 5, generator=generator),
        labels=torch.zeros(nodes, dtype=torch.int64),
        undirected=undirected,
        weights=weights.where(torch.rand(40, generator=generator) > 0.2, 0.0),
    )


def dense(graph: Graph) -> Tensor:
    """A, written out.  [nodes, nodes]"""
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes)
    weights = torch.ones(graph.num_edges) if graph.weights is None else graph.weights
    matrix[graph.edge_rows(), graph.indices.long()] = weights
    return matrix


def entries(graph: Graph) -> list[tuple[int, int, float]]:
    """(source, target, weight) of every entry."""
    ends = (graph.indices.tolist(), graph.edge_rows().tolist(), graph.weights.tolist())
    return list(zip(*ends, strict=True))


# 0 -3- 1 -8- 2: rows of A + I sum up to 4, 12 and 9
PATH = weighted(path_pairs(3), [3.0, 8.0])
HAND: dict[tuple[str, bool], list[list[float]]] = {
    ("symmetric", True): [
        [1 / 4, 3 / 48**0.5, 0],
        [3 / 48**0.5, 1 / 12, 8 / 108**0.5],
        [0, 8 / 108**0.5, 1 / 9],
    ],
    ("row", True): [[1 / 4, 3 / 4, 0], [3 / 12, 1 / 12, 8 / 12], [0, 8 / 9, 1 / 9]],
    ("none", True): [[1, 3, 0], [3, 1, 8], [0, 8, 1]],
    ("symmetric", False): [[0, 3 / 33**0.5, 0], [3 / 33**0.5, 0, 8 / 88**0.5], [0, 8 / 88**0.5, 0]],
    ("row", False): [[0, 1, 0], [3 / 11, 0, 8 / 11], [0, 1, 0]],
    ("none", False): [[0, 3, 0], [3, 0, 8], [0, 8, 0]],
}


# 0 - 1 - 2 and 3 apart: rows of A + I hold 2, 3, 2 and 1 entries; rows of A hold 1, 2, 1 and none
PLAIN = weighted(path_pairs(3), None, nodes=4)
S6, S2 = 6**-0.5, 2**-0.5
BY_COUNT: dict[tuple[str, bool], list[list[float]]] = {
    ("symmetric", True): [[1 / 2, S6, 0, 0], [S6, 1 / 3, S6, 0], [0, S6, 1 / 2, 0], [0, 0, 0, 1]],
    ("symmetric", False): [[0, S2, 0, 0], [S2, 0, S2, 0], [0, S2, 0, 0], [0, 0, 0, 0]],
    ("row", True): [
        [1 / 2, 1 / 2, 0, 0],
        [1 / 3, 1 / 3, 1 / 3, 0],
        [0, 1 / 2, 1 / 2, 0],
        [0, 0, 0, 1],
    ],
    ("row", False): [[0, 1, 0, 0], [1 / 2, 0, 1 / 2, 0], [0, 1, 0, 0], [0, 0, 0, 0]],
    ("none", True): [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]],
    ("none", False): [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]],
}


@pytest.mark.parametrize(("scheme", "self_loops"), list(HAND))
@pytest.mark.parametrize(("graph", "hand"), [(PATH, HAND), (PLAIN, BY_COUNT)])
def test_a_path_by_hand(graph, hand, scheme, self_loops):
    expected = torch.tensor(hand[scheme, self_loops], dtype=torch.float32)
    found = normalised(graph, scheme=scheme, self_loops=self_loops)
    assert (found.layout, found.dtype) == (torch.sparse_csr, torch.float32)
    assert found.crow_indices().dtype == torch.int32
    torch.testing.assert_close(found.to_dense(), expected)
    for kernel in KERNELS:
        operator = smoother(graph, scheme=scheme, self_loops=self_loops, kernel=kernel)
        torch.testing.assert_close(operator.product(torch.eye(len(expected))), expected)


@given(seed=seeds, undirected=st.booleans(), self_loops=st.booleans(), plain=st.booleans())
def test_kernels_equal_matrices(seed, undirected, self_loops, plain):
    graph = weighted_at_random(seed, undirected=undirected)
    graph = replace(graph, weights=None) if plain else graph
    features = torch.randn(12, 7, generator=torch.Generator().manual_seed(seed))
    whole = dense(graph) + torch.eye(12) * self_loops
    sums = whole.sum(1)
    for scheme, kernel in product(SCHEMES, KERNELS):
        power = {"symmetric": -0.5, "row": -1.0, "none": 0.0}[scheme]
        inverse = torch.where(sums > 0, sums**power, 0.0) if power else torch.ones(12)
        matrix = inverse[:, None] * whole * (inverse if scheme == "symmetric" else 1)
        written = normalised(graph, scheme=scheme, self_loops=self_loops)
        torch.testing.assert_close(written.to_dense(), matrix)
        operator = smoother(graph, scheme=scheme, self_loops=self_loops, kernel=kernel)
        found = operator.product(features, add=features, scale=0.5)
        torch.testing.assert_close(found, 0.5 * matrix @ features + features)
        some = operator.rows(slice(2, 11)).rows(slice(1, 7)).product(features)
        torch.testing.assert_close(some, (matrix @ features)[3:9])


def test_the_weight_given_last_counts_and_none_of_zero():
    pairs = [(0, 1), (1, 0), (0, 1), (2, 2), (1, 2), (2, 1)]
    directed = weighted(pairs, [1.0, 2.0, 3.0, 9.0, 4.0, 0.0], undirected=False)
    assert entries(directed) == [(1, 0, 2.0), (0, 1, 3.0), (1, 2, 4.0)]
    both = weighted(pairs, [1.0, 2.0, 3.0, 9.0, 4.0, 0.0])  # 1 - 2 ends with 0: it is gone
    assert entries(both) == [(1, 0, 3.0), (0, 1, 3.0)]
    assert both.undirected
    # A new direction has the weight of the other.
    graph = weighted([(0, 1), (1, 0), (1, 2)], [1.0, 2.0, 4.0], undirected=False).to_undirected()
    assert entries(graph) == [(1, 0, 2.0), (0, 1, 1.0), (2, 1, 4.0), (1, 2, 4.0)]


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf"), 1e30, 1e-30])
def test_a_weight_that_is_none_names_its_edge(wrong):
    with pytest.raises(
        DataError, match=r"^edge 1 has weight .*: expected 0, for no edge, or a num"
    ):
        weighted(path_pairs(3), [1.0, wrong])
    with pytest.raises(DataError, match=r"weights have shape \[1\]: expected \[2\]"):
        weighted(path_pairs(3), [1.0])
    with pytest.raises(DataError, match=r"weights have shape \(3,\), but the graph has 4 edges"):
        replace(PATH, weights=torch.ones(3))


@given(seed=seeds, block=st.integers(1, 9))
def test_a_subgraph_equals_the_dense_cut_and_keeps_its_weights(seed, block):
    graph = weighted_at_random(seed)
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randperm(12, generator=generator)[:8]
    kept = torch.rand(graph.num_edges, generator=generator) > 0.3
    groups = torch.arange(12) % 2
    left = replace(graph, weights=torch.where(kept, graph.weights, 0.0))
    among = dense(graph).where(groups[:, None] == groups, 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(csr.BLOCK_ENTRIES, "cpu", block)
        for some in (nodes, nodes.sort().values):
            assert dense(graph.subgraph(some)).equal(dense(graph)[some][:, some])
            assert dense(graph.subgraph(some, keep=kept)).equal(dense(left)[some][:, some])
            cut = graph.subgraph(some, groups=groups)
            assert dense(cut).equal(among[some][:, some])
            assert cut.features.equal(graph.features[some])


def mapped(graph: Graph, folder: Path) -> Graph:
    assert graph.weights is not None
    for name in ("indices", "weights"):
        np.save(folder / f"{name}.npy", getattr(graph, name).numpy())
    arrays = {name: map_array(folder / f"{name}.npy") for name in ("indices", "weights")}
    return replace(graph, **arrays)


def test_what_lies_in_files_is_cut_and_brought_to_memory(tmp_path):
    graph, nodes = weighted_at_random(3), torch.arange(1, 9)
    in_files = mapped(graph, tmp_path)
    found = in_files.subgraph(nodes, resources=Resources(memory_limit=1, scratch=tmp_path))
    assert found.weights is not None
    assert is_mapped(found.weights)
    assert dense(found).equal(dense(graph)[nodes][:, nodes])
    whole = in_files.in_memory()
    assert whole.weights is not None
    assert not is_mapped(whole.weights)
    assert dense(whole).equal(dense(graph))


@pytest.mark.parametrize("kernel", KERNELS)
def test_pages_of_mapped_weights_go_once_they_are_read(kernel, tmp_path, monkeypatch):
    graph = weighted_at_random(4, nodes=20)
    expected = smoother(graph, kernel=kernel).product(graph.features)
    gone = []
    monkeypatch.setattr(scaled_rows, "page_out", gone.append)
    monkeypatch.setattr(row_ranges, "MAPPED_ENTRIES", 4)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    operator = smoother(mapped(graph, tmp_path), kernel=kernel)
    torch.testing.assert_close(operator.product(graph.features), expected)
    # all of it, once, in its order, in more ranges than one thread would make
    for kind, whole in ((torch.float32, graph.weights), (torch.int32, graph.indices)):
        parts = [part for part in gone if part.dtype == kind]
        assert torch.cat(parts).equal(whole)
        assert len(parts) > 4


def test_sums_of_weights_do_not_depend_on_blocks(monkeypatch):
    graph = weighted_at_random(6)
    expected = dense(graph).double().sum(1)
    monkeypatch.setitem(csr.BLOCK_ENTRIES, "cpu", 20)
    assert row_sums(graph).equal(expected)
    huge = weighted([(0, 1), (2, 1)], [2.0**59, 1.0])  # one sum over all would lose the small one
    assert row_sums(huge).tolist() == [2.0**59, 2.0**59, 1.0]


@pytest.mark.parametrize("weight", [1e-18, 1e18])
def test_weights_at_the_bounds_can_be_divided_by(weight):
    graph = weighted(path_pairs(3), [weight, weight])
    for scheme, loops in product(SCHEMES, (True, False)):
        assert normalised(graph, scheme=scheme, self_loops=loops).values().isfinite().all()
    found = normalised(graph, scheme="row", self_loops=False).to_dense()
    torch.testing.assert_close(found, torch.tensor([[0, 1.0, 0], [0.5, 0, 0.5], [0, 1.0, 0]]))


def test_pyg_weights_are_edge_weight_or_one_attribute(caplog):
    graph = weighted_at_random(7)
    assert entries(Graph.from_data(graph.to_data())) == entries(graph)
    assert "edge_weight" not in replace(graph, weights=None).to_data()
    data = pyg_data(x=torch.eye(2), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
    data.edge_attr = torch.tensor([[5]])
    assert entries(Graph.from_data(data)) == [(0, 1, 5.0)]
    data.edge_attr = torch.ones(1, 2)
    assert Graph.from_data(data).weights is None
    data.edge_weight = torch.tensor([0.25])
    assert entries(Graph.from_data(data)) == [(0, 1, 0.25)]
    assert [record.getMessage() for record in caplog.records] == [
        "Data: attribute 'edge_attr' is ignored: only x, edge_index, y and time are used",
        "Data: attribute 'edge_attr' is ignored: only x, edge_index, edge_weight, y and time are "
        "used",
    ]
