"""Row pointers of 64 bits: small graphs that are forced to have them, and one that needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from evergraph.core.mapped import create_array
from evergraph.graphs import (
    Graph,
    Smoother,
    covered_nodes,
    csr,
    homophily,
    reach_sizes,
    smoother,
)
from evergraph.graphs.csr import csr_tensor, pointer_type
from evergraph.graphs.disjoint import disjoint_union
from evergraph.graphs.induced import induced_adjacency
from evergraph.graphs.rows import RowSweep
from evergraph.streams import GraphStream
from evergraph.topology import topologies

PAIRS = torch.tensor([[0, 0, 1, 2, 3, 4, 5, 1], [1, 2, 2, 3, 4, 5, 0, 4]])


def drawn() -> Graph:
    features = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 0, 1, 1, 0, 1])
    return Graph.from_edges(PAIRS, features=features, labels=labels, undirected=True)


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> Graph:
    """The graph as if it had more entries than 31 bits count."""
    monkeypatch.setattr(csr, "MOST_INT32", 3)
    return drawn()


def test_the_type_follows_the_entries() -> None:
    assert pointer_type(2**31 - 1) == torch.int32
    assert pointer_type(2**31) == torch.int64
    assert drawn().indptr.dtype == torch.int32


def test_a_graph_has_long_pointers_and_short_indices(long: Graph) -> None:
    assert long.indptr.dtype == torch.int64
    assert long.indices.dtype == torch.int32
    assert long.neighbours(1).tolist() == [0, 2, 4]


@pytest.mark.parametrize("kernel", ["torch", "numba"])
@pytest.mark.parametrize("self_loops", [False, True])
def test_products_are_the_same(kernel: Any, self_loops: bool, long: Graph) -> None:
    if kernel == "numba":
        pytest.importorskip("numba")
    found = smoother(long, kernel=kernel, self_loops=self_loops).product(long.features)
    short = Graph(*(getattr(long, field.name) for field in fields(Graph)))
    object.__setattr__(short, "indptr", long.indptr.int())
    expected = smoother(short, kernel=kernel, self_loops=self_loops).product(long.features)
    assert found.equal(expected)


WORK: dict[str, Callable[[Graph], Any]] = {
    "reach": lambda graph: reach_sizes(graph, torch.arange(6), hops=2),
    "estimated reach": lambda graph: reach_sizes(
        graph, torch.arange(6), hops=2, method="estimated"
    ),
    "coverage": lambda graph: covered_nodes(graph, torch.tensor([0, 3]), hops=1),
    "homophily": homophily,
    "subgraph": lambda graph: graph.subgraph(torch.tensor([4, 0, 1])).indices,
    "union": lambda graph: disjoint_union([graph, graph]).indices,
    "task": lambda graph: GraphStream(graph).open(0).graph.indices,
    "directed": lambda graph: (
        Graph.from_edges(PAIRS, features=torch.eye(6), labels=graph.labels).to_undirected().indices
    ),
}


@pytest.mark.parametrize("work", WORK)
def test_work_on_a_graph_is_the_same(work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = WORK[work](drawn())
    monkeypatch.setattr(csr, "MOST_INT32", 3)
    found = WORK[work](drawn())
    assert found.equal(expected) if isinstance(found, Tensor) else found == expected


@pytest.mark.parametrize("name", topologies.names())
def test_every_topology_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = topologies.make(name).encode(drawn())
    monkeypatch.setattr(csr, "MOST_INT32", 3)
    assert topologies.make(name).encode(drawn()).allclose(expected, atol=1e-6)


def test_a_matrix_has_one_type_for_both_of_its_arrays(long: Graph) -> None:
    values = torch.ones(long.num_edges)
    matrix = csr_tensor(long.indptr, long.indices, values, (6, 6))
    assert matrix.crow_indices().dtype == matrix.col_indices().dtype == torch.int64
    assert csr_tensor(long.indptr[:2], long.indices[:3], values[:3], (1, 6)).shape == (1, 6)


@pytest.fixture
def huge(tmp_path: Path) -> Smoother:
    """Four nodes, of which the first has 2^31 entries that nobody has written: a sparse file.

    The others: 1 gathers from 2, 2 from 1 and 3, 3 from 2.
    """
    hub = 2**31
    indices = create_array(tmp_path / "indices.npy", (hub + 4,), torch.int32)
    indices[hub:] = torch.tensor([2, 1, 3, 2], dtype=torch.int32)
    indptr = torch.tensor([0, hub, hub + 1, hub + 3, hub + 4])
    ones = torch.ones(4)
    return Smoother(indptr, indices, ones, ones, self_loops=False, mapped=True, kernel="numba")


def test_rows_behind_two_to_the_31_entries(huge: Smoother) -> None:
    pytest.importorskip("numba")
    features = torch.tensor([[1.0], [10.0], [100.0], [1000.0]])
    assert huge.rows(slice(1, 4)).product(features).flatten().tolist() == [100, 1010, 100]
    matrix = huge.rows(slice(1, 4)).matrix
    assert matrix.crow_indices().tolist() == [0, 1, 3, 4]
    assert (matrix @ features).flatten().tolist() == [100, 1010, 100]


def test_cutting_and_reading_behind_two_to_the_31_entries(huge: Smoother) -> None:
    nodes = torch.tensor([1, 2, 3])
    assert RowSweep(huge.indptr, huge.indices).neighbours(nodes).tolist() == [2, 1, 3, 2]
    indptr, indices, _ = induced_adjacency(huge.indptr, huge.indices, nodes)
    assert indptr.tolist() == [0, 1, 3, 4]
    assert indices.tolist() == [1, 0, 2, 1]
    assert indptr.dtype == torch.int32  # what was cut out is small
