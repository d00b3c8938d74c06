"""Sparse products equal dense ones, whatever the layout."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.graphs import normalised, propagate, walk
from evergraph.graphs.propagation import SPARSE_PAYS_BELOW, densify, sample_product, stays_sparse
from graphs_to_draw import graph_of, random_graph, star_pairs

seeds = st.integers(0, 10_000)


def random_matrix(seed: int, nodes: int = 6) -> Tensor:
    graph = random_graph(seed, nodes=nodes, edges=2 * nodes, undirected=False)
    return normalised(graph, self_loops=seed % 2 == 0)


def random_features(seed: int, nodes: int = 6, dims: int = 4) -> Tensor:
    return torch.randn(nodes, dims, generator=torch.Generator().manual_seed(seed))


def thin(stored: int, *, rows: int = 10, columns: int = 10) -> Tensor:
    """A matrix with ``stored`` ones, down the diagonal."""
    matrix = torch.zeros(rows, columns)
    matrix[range(stored), range(stored)] = 1.0
    return matrix.to_sparse_csr()


def test_a_product_by_hand():
    matrix = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]).to_sparse_csr()
    features = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    assert propagate(matrix, features).tolist() == [[4, 40], [4, 40], [0, 0]]
    assert propagate(matrix, features, scale=0.5).tolist() == [[2, 20], [2, 20], [0, 0]]
    # 0.5 * product + 2 * features
    mixed = propagate(matrix, features, add=features, scale=0.5, add_scale=2.0)
    assert mixed.tolist() == [[4, 40], [6, 60], [6, 60]]
    assert propagate(matrix, features, add=features).tolist() == [[5, 50], [6, 60], [3, 30]]


@given(seed=seeds, scale=st.floats(-2, 2), add_scale=st.floats(-2, 2), sparse=st.booleans())
def test_propagate_equals_the_dense_formula_and_leaves_inputs_alone(seed, scale, add_scale, sparse):
    matrix, X, Y = random_matrix(seed), random_features(seed), random_features(seed + 1)
    A = matrix.to_dense()
    features, add = (X.to_sparse_csr(), Y.to_sparse_csr()) if sparse else (X.clone(), Y.clone())
    close = torch.testing.assert_close
    close(densify(propagate(matrix, features)), A @ X)
    close(propagate(matrix, features, scale=scale), scale * A @ X)
    close(
        propagate(matrix, features, add=add, scale=scale, add_scale=add_scale),
        scale * A @ X + add_scale * Y,
    )
    assert densify(features).equal(X)
    assert densify(add).equal(Y)
    assert matrix.to_dense().equal(A)


@given(seed=seeds, hops=st.integers(0, 4), sparse=st.booleans())
def test_a_walk_yields_every_power(seed, hops, sparse):
    matrix, X = random_matrix(seed), random_features(seed)
    A = matrix.to_dense()
    steps = list(walk(matrix, X.to_sparse_csr() if sparse else X, hops=hops))
    assert len(steps) == hops
    for power, step in enumerate(steps, start=1):
        torch.testing.assert_close(densify(step), torch.linalg.matrix_power(A, power) @ X)


@pytest.mark.parametrize(
    ("stored", "layout"), [(0, torch.sparse_csr), (2, torch.sparse_csr), (3, torch.strided)]
)
def test_features_stay_sparse_up_to_one_value_in_fifty(stored, layout):
    assert SPARSE_PAYS_BELOW == 0.02  # so 2 of 100 cells still pay
    matrix, features = random_matrix(4, nodes=10), thin(stored)
    assert stays_sparse(features) is (layout == torch.sparse_csr)
    product = propagate(matrix, features)
    assert product.layout == layout
    torch.testing.assert_close(densify(product), matrix.to_dense() @ features.to_dense())


def test_a_walk_turns_dense_once_the_features_have_filled_up():
    # a star of 20 nodes around 0, one value at a leaf: it reaches the middle, then everyone
    matrix = normalised(graph_of(star_pairs(19), 20), self_loops=False, scheme="none")
    leaf = torch.zeros(20, 3)
    leaf[1, 0] = 1.0
    steps = list(walk(matrix, leaf.to_sparse_csr(), hops=3))
    assert [step.layout for step in steps] == [torch.sparse_csr, torch.sparse_csr, torch.strided]
    # 1 of 60 cells pays; 19 of 60 do not
    assert [float(densify(step)[:, 0].sum()) for step in steps] == [1, 19, 19]


def test_a_pattern_without_entries_has_no_inner_products():
    nothing = torch.zeros(2, 3).to_sparse_csr()
    assert sample_product(nothing, torch.ones(2, 4), torch.ones(3, 4)).shape == (0,)


def test_sparse_features_are_multiplied_without_mkl_too(monkeypatch):
    matrix = torch.tensor([[0.0, 2.0], [1.0, 1.0]]).to_sparse_csr()
    features = torch.zeros(2, 100)
    features[0, 7], features[1, 9] = 3.0, 5.0
    for present in {torch.backends.mkl.is_available(), False}:  # builds for ARM have none
        monkeypatch.setattr(torch.backends.mkl, "is_available", lambda there=present: there)
        product = propagate(matrix, features.to_sparse_csr())
        assert product.layout == torch.sparse_csr
        assert product.to_dense().nonzero().tolist() == [[0, 9], [1, 7], [1, 9]]
        assert product.values().tolist() == [10.0, 3.0, 5.0]
