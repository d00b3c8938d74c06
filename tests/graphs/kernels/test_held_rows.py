"""Rows in half numbers: rounded once, summed in whole ones, the same bits in parts."""

from dataclasses import replace

import numba
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.errors import DataError, UnknownNameError
from evergraph.graphs import Graph, normalised, smoother
from evergraph.graphs.kernels import products
from evergraph.graphs.kernels.products import torch_product
from evergraph.graphs.kernels.scaled_rows import ROW_TYPES, RowType, held_rows
from graphs_to_draw import few_each, graph_of, path_pairs, random_graph

HALVES: list[RowType] = ["float16", "bfloat16"]
# Compiling the whole kernel for either kind of half rows takes nine seconds: the gate does it for
# one, and reads the other's bits by themselves.
PAIRS = [
    ("torch", "float16"),
    ("torch", "bfloat16"),
    ("numba", "float16"),
    pytest.param("numba", "bfloat16", marks=pytest.mark.slow),
]
of_halves = pytest.mark.parametrize(("kernel", "held"), PAIRS)
THIRDS = {"float16": 0.333251953125, "bfloat16": 0.333984375}
seeds = st.integers(0, 10_000)


def features_of(graph: Graph, seed: int, width: int) -> Tensor:
    return torch.randn(graph.num_nodes, width, generator=torch.Generator().manual_seed(seed))


def drawn(seed: int, *, weighted: bool = False) -> Graph:
    graph = random_graph(seed, nodes=60, edges=150)
    if not weighted:
        return graph
    generator = torch.Generator().manual_seed(seed)
    return replace(graph, weights=torch.rand(graph.num_edges, generator=generator) + 0.1)


def test_rows_are_rounded_to_the_nearest():
    #  float16 has 11 binary digits and bfloat16 8: 2049 and 257 lie halfway, the even one is taken
    rows = torch.tensor([[2049.0, 257.0, 0.5]])
    one = torch.ones(1)
    assert held_rows(rows, one, torch.float16).tolist() == [[2048.0, 257.0, 0.5]]
    assert held_rows(rows, one, torch.bfloat16).tolist() == [[2048.0, 256.0, 0.5]]
    assert held_rows(rows, one / 2, torch.float32).tolist() == [[1024.5, 128.5, 0.25]]


@of_halves
def test_a_path_by_hand(kernel, held):
    #  0 - 1 - 2: each sums itself and its neighbours, all of which hold a third
    path, third = graph_of(path_pairs(3), 3), THIRDS[held]
    found = smoother(path, scheme="none", kernel=kernel, held=held).product(torch.ones(3, 1) / 3)
    assert found.dtype == torch.float32
    assert found.flatten().tolist() == [2 * third, 3 * third, 2 * third]


@pytest.mark.parametrize("held", HALVES)
def test_half_floats_are_widened_as_they_are_read(held):
    from evergraph.graphs.kernels.numba_sum import load, store

    @numba.njit
    def widen(bits, out):
        store(out, 1, load(bits, 2, 4))

    rows = torch.tensor([9.0, 9.0, 1 / 3, -2.5, 65504.0, 2.0**-14, 9.0]).to(ROW_TYPES[held])
    out = torch.zeros(6)
    widen(products._flat(rows[:, None]).values, out.numpy())
    assert out.tolist() == [0.0, *rows[2:6].float().tolist(), 0.0]


@of_halves
@few_each
@given(seed=seeds, width=st.integers(1, 200), self_loops=st.booleans(), weighted=st.booleans())
def test_only_what_is_gathered_is_rounded(kernel, held, seed, width, self_loops, weighted):
    # With weights all is compiled once more: weights are multiplied as of whole rows.
    graph = drawn(seed, weighted=weighted and kernel == "torch")
    features, add = features_of(graph, seed, width), features_of(graph, seed + 1, width)
    operator = smoother(graph, self_loops=self_loops, kernel=kernel, held=held)
    rows = (features * operator.right[:, None]).to(ROW_TYPES[held]).float()
    plain = normalised(graph, self_loops=self_loops, scheme="none").to_dense()
    expected = 0.7 * operator.left[:, None] * (plain @ rows) + 0.3 * add
    found = operator.product(features, add=add, scale=0.7, add_scale=0.3)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@of_halves
def test_half_features_come_back_as_such(kernel, held):
    graph, kind = drawn(5), ROW_TYPES[held]
    features = features_of(graph, 5, 9).to(kind)
    found = smoother(graph, kernel=kernel).product(features)
    assert found.dtype == kind
    whole = smoother(graph).product(features.float())
    assert found.equal(whole.to(kind))
    assert smoother(graph).holding(features)[1] is features


def test_what_float16_cannot_hold_is_refused():
    path = graph_of(path_pairs(3), 3)
    large = torch.tensor([[1.0], [-70000.0], [1.0]])
    with pytest.raises(DataError, match="at most 65,504 in size for rows 'float16'") as raised:
        smoother(path, scheme="none", held="float16").product(large)
    assert "not 70000" in str(raised.value)
    assert float(smoother(path, scheme="none", held="bfloat16").product(large)[0]) < -69000
    # of a node with 3 entries 70,000 / √3 is held
    assert bool(smoother(path, held="float16").product(large).isfinite().all())
    with pytest.raises(UnknownNameError, match="unknown dtype 'float8'"):
        smoother(path, held="float8")


@pytest.mark.parametrize("asked", ["float32", *HALVES])
def test_rows_are_held_once_for_all_streamed_ranges(asked, monkeypatch):
    graph = drawn(7, weighted=True)
    features, calls = features_of(graph, 7, 20), []
    # It stands in for Triton: both take rows that R has scaled.
    monkeypatch.setattr(products, "_kernel", lambda *_: lambda *a, **b: torch_product(*a, **b))
    monkeypatch.setattr(products, "STREAMED_ENTRIES", 40)
    monkeypatch.setattr(
        products, "held_rows", lambda *given: calls.append(given) or held_rows(*given)
    )
    operator, rows = smoother(graph, held=asked).holding(features)
    out = torch.empty(60, 20)
    products.streamed_product(operator, rows, out, products.Affine(scale=0.5))
    expected = smoother(graph, held=asked).product(features, scale=0.5)
    torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-6)
    assert len(calls) == (asked == "float32")  # half rows were held before
