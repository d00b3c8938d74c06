"""Â by hand, against Â written out, in blocks of columns and in ranges of rows."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.errors import ConfigurationError, DataError, UnknownNameError
from evergraph.graphs import Graph, Smoother, normalised, propagate, smoother
from evergraph.graphs.kernels import scaled_rows
from evergraph.graphs.kernels.scaled_rows import graph_scalings
from evergraph.topology import SGC, topologies
from graphs_to_draw import few_each, graph_of, path_pairs

MODULE = import_module("evergraph.graphs.propagation")  # the function has its name
KERNELS = ["torch", "numba"]
seeds = st.integers(0, 10_000)
schemes = st.sampled_from(["symmetric", "row", "none"])


def random_graph(seed: int, nodes: int = 90) -> Graph:
    """Directed, with a hub (node 0 gathers from most) and nodes without neighbours."""
    generator = torch.Generator().manual_seed(seed)
    some = torch.randint(nodes, (2, 3 * nodes), generator=generator)
    hub = torch.stack([torch.arange(nodes), torch.zeros(nodes, dtype=torch.int64)])
    pairs = torch.cat([some[:, some[1] % 3 != 1], hub], 1)
    labels = torch.zeros(nodes, dtype=torch.int64)
    return Graph.from_edges(pairs, features=torch.eye(nodes), labels=labels)


def random_features(seed: int, nodes: int, width: int) -> Tensor:
    return torch.randn(nodes, width, generator=torch.Generator().manual_seed(seed))


#  0 - 1 - 2   and 3 apart
PATH = graph_of(path_pairs(3), 4)
X = torch.tensor([[6.0, 60.0], [12.0, 120.0], [18.0, 180.0], [5.0, 50.0]])


@pytest.mark.parametrize("kernel", KERNELS)
@few_each
@given(seed=seeds, width=st.integers(1, 300), scheme=schemes, self_loops=st.booleans())
def test_every_width_equals_the_matrix_written_out(kernel, seed, width, scheme, self_loops):
    graph = random_graph(seed)
    features, add = (random_features(s, graph.num_nodes, width) for s in (seed, seed + 1))
    kept = features.clone(), add.clone()
    dense = normalised(graph, self_loops=self_loops, scheme=scheme).to_dense()
    operator = smoother(graph, self_loops=self_loops, scheme=scheme, kernel=kernel)
    close = torch.testing.assert_close
    close(operator.product(features), dense @ features, atol=1e-5, rtol=1e-5)
    mixed = operator.product(features, add=add, scale=0.9, add_scale=-0.1)
    close(mixed, 0.9 * dense @ features - 0.1 * add, atol=1e-5, rtol=1e-5)
    assert features.equal(kept[0])
    assert add.equal(kept[1])


# Compiling the kernel for either kind of half rows takes seconds: the gate does it for one.
@pytest.mark.parametrize(
    "held", ["float32", "float16", pytest.param("bfloat16", marks=pytest.mark.slow)]
)
@few_each
@given(seed=seeds, width=st.integers(1, 300), data=st.data())
def test_blocks_of_columns_and_rows_give_the_same_bits(held, seed, width, data):
    graph = random_graph(seed)
    nodes = graph.num_nodes
    features, add = (random_features(s, nodes, width) for s in (seed, seed + 1))
    operator = smoother(graph, kernel="numba", held=held)
    whole = operator.product(features, add=add, scale=0.7, add_scale=0.3)
    column, row = data.draw(st.integers(0, width)), data.draw(st.integers(0, nodes))
    out = torch.full_like(whole, torch.nan)
    for columns in (slice(0, column), slice(column, width)):
        for rows in (slice(0, row), slice(row, nodes)):
            part = operator.rows(rows).product(
                features[:, columns],
                add=add[rows, columns],
                scale=0.7,
                add_scale=0.3,
                out=out[rows, columns],
            )
            assert part.data_ptr() == out[rows, columns].data_ptr()
    assert out.equal(whole)


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_stands_in_the_buffer_and_beside_it_does_not_matter(kernel):
    graph, features = random_graph(5), random_features(5, 90, 21)
    operator = smoother(graph, kernel=kernel)
    wide = torch.full((90, 40), torch.nan)
    assert propagate(operator, features, out=wide[:, 7:28]) is not None
    torch.testing.assert_close(wide[:, 7:28], operator.product(features))
    assert bool(wide[:, :7].isnan().all() and wide[:, 28:].isnan().all())
    # Features need not lie row by row.
    operator = smoother(PATH, scheme="none", kernel=kernel)
    turned = X.t().contiguous().t()
    assert operator.product(turned, add=turned).equal(operator.product(X, add=X))
    assert smoother(graph_of([], 0), kernel=kernel).product(torch.ones(0, 3)).shape == (0, 3)
    assert smoother(PATH, kernel=kernel).product(torch.ones(4, 0)).shape == (4, 0)
    lonely = smoother(graph_of([], 3), kernel=kernel)
    assert lonely.product(torch.eye(3)).equal(torch.eye(3))


def test_own_features_are_not_read_without_self_loops_and_doubles_are_multiplied_too():
    features = X.clone()
    features[3] = torch.nan  # nobody's neighbour
    rows = smoother(PATH, self_loops=False, scheme="none", kernel="numba").product(features)
    assert rows[:, 0].tolist() == [12, 24, 12, 0]
    exact = smoother(PATH, scheme="none", kernel="numba")
    assert exact.product(X).dtype == torch.float32
    doubles = replace(exact, left=exact.left.double(), right=exact.right.double())
    assert doubles.product(X.double()).tolist() == exact.product(X).tolist()


def test_shapes_that_do_not_fit_are_refused():
    operator = smoother(PATH)
    with pytest.raises(DataError, match=r"features must have shape \(4, 2\) here, not \(3, 2\)"):
        operator.product(X[:3])
    with pytest.raises(DataError, match=r"add must have shape \(4, 2\)"):
        operator.product(X, add=X[:, :1])
    with pytest.raises(DataError, match=r"out must have shape \(2, 2\)"):
        operator.rows(slice(0, 2)).product(X, out=torch.empty(4, 2))


def test_an_unknown_kernel_lists_those_that_exist(monkeypatch):
    with pytest.raises(UnknownNameError, match="choose one of numba, torch, triton"):
        smoother(PATH, kernel="mkl")
    monkeypatch.setattr(MODULE, "triton_works", lambda: False)
    with pytest.raises(ConfigurationError, match="kernel 'triton' needs Triton and a GPU"):
        smoother(PATH, kernel="triton")


def with_kernel(kernel: str) -> Callable[..., Smoother]:
    return lambda graph, **options: smoother(graph, kernel=kernel, **options)


@pytest.mark.parametrize("name", topologies.names())
def test_every_topology_agrees_on_both_kernels(name, monkeypatch):
    graph = random_graph(11).with_features(random_features(11, 90, 40))
    found = {}
    for kernel in KERNELS:
        monkeypatch.setattr("evergraph.topology.base.smoother", with_kernel(kernel))
        found[kernel] = topologies.make(name).encode(graph)
    torch.testing.assert_close(found["numba"], found["torch"], atol=1e-5, rtol=1e-5)


def test_encoding_never_writes_the_matrix_out(monkeypatch):
    monkeypatch.setattr("evergraph.topology.base.smoother", with_kernel("numba"))
    monkeypatch.setattr(Smoother, "matrix", None)  # a product with it would raise
    assert SGC(hops=2).encode(random_graph(13)).shape == (90, 90)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_as_on_a_cpu():
    graph, features = random_graph(15), random_features(15, 90, 33)
    expected = smoother(graph).product(features, add=features, scale=0.5)
    operator = smoother(graph.to("cuda"))
    assert operator.kernel == "torch"
    found = operator.product(features.cuda(), add=features.cuda(), scale=0.5)
    torch.testing.assert_close(found.cpu(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("scheme", ["symmetric", "row", "none"])
@pytest.mark.parametrize("self_loops", [False, True])
def test_scalings_are_the_same_some_rows_at_a_time(scheme, self_loops, monkeypatch):
    graph = random_graph(3)
    whole = graph_scalings(graph, self_loops=self_loops, scheme=scheme)
    monkeypatch.setattr(scaled_rows, "BLOCK_NODES", 16)
    parts = graph_scalings(graph, self_loops=self_loops, scheme=scheme)
    assert all(one.equal(other) for one, other in zip(whole, parts, strict=True))
