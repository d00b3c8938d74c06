"""Sparse products, in any layout, and their gradients equal the dense ones."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.graphs import normalised, propagate, walk
from evergraph.graphs.csr import csr_tensor
from evergraph.graphs.operator import SparseOperator
from evergraph.graphs.propagation import SPARSE_PAYS_BELOW, densify, sample_product, stays_sparse
from graphs_to_draw import few_each, graph_of, random_graph, star_pairs

close = torch.testing.assert_close
seeds = st.integers(0, 10_000)
heights = st.integers(0, 5)


def csr(matrix: Tensor, *, backwards: bool = False) -> Tensor:
    """The matrix as CSR with int32 indices, each row's columns ascending or descending."""
    rows, columns = matrix.nonzero(as_tuple=True)
    order = torch.argsort(rows * 100 - columns) if backwards else torch.arange(len(rows))
    counts = torch.bincount(rows, minlength=len(matrix))
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).int()
    columns = columns[order]
    return csr_tensor(indptr, columns.int(), matrix[rows, columns], tuple(matrix.shape))


def drawn(seed: int, m: int, n: int) -> Tensor:
    """A matrix about half of whose entries are zero."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(m, n, generator=generator, dtype=torch.float64)
    return matrix * (torch.rand(m, n, generator=generator) < 0.5)


def noise(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


#  3 x 4 with an empty row and an empty column
HAND = torch.tensor([[0.0, 2.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, -1.0]])
X = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]])


def test_a_product_and_its_gradient_by_hand():
    operator, dense = SparseOperator.of(csr(HAND)), X.clone().requires_grad_()
    product = operator @ dense
    assert product.tolist() == [[8, 80], [0, 0], [-1, -10]]
    (product * torch.tensor([[1.0, 0.0], [5.0, 5.0], [2.0, 1.0]])).sum().backward()
    # node 3 is read by rows 0 and 2: 1·[1, 0] - 1·[2, 1]
    assert dense.grad.tolist() == [[6, 3], [2, 0], [0, 0], [-1, -1]]


def test_other_values_at_the_same_entries_by_hand():
    operator, values = SparseOperator.of(csr(HAND)), torch.tensor([1.0, 2.0, 3.0, 4.0])
    values.requires_grad_()
    product = operator.weighted(values, X)  # [[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 0, 4]] @ X
    assert product.tolist() == [[10, 100], [0, 0], [19, 190]]
    product[:, 0].sum().backward()
    assert values.grad.tolist() == [2, 4, 1, 4]  # what stands at the far end of each entry


def test_the_entries_know_their_rows_and_their_places_in_the_transpose():
    operator = SparseOperator.of(csr(HAND))
    assert operator.shape == (3, 4)
    assert operator.rows.tolist() == [0, 0, 2, 2]
    assert operator.rows is operator.rows
    assert operator.T.rows.tolist() == [0, 1, 3, 3]
    assert operator.order.tolist() == [2, 0, 1, 3]
    assert operator.back.tolist() == [1, 2, 0, 3]
    assert operator.transposed.to_dense().equal(HAND.T)
    assert operator.T.T.matrix is operator.matrix


def dense_forms(matrix: Tensor, operator: SparseOperator) -> dict[str, tuple[Callable, Callable]]:
    """Each operation of an operator, and what it should be."""
    rows, columns = operator.rows, operator.matrix.col_indices().long()

    def with_values(values: Tensor) -> Tensor:
        return torch.zeros_like(matrix).index_put((rows, columns), values)

    return {
        "product": (lambda x: operator @ x, lambda x: matrix @ x),
        "weighted": (operator.weighted, lambda values, x: with_values(values) @ x),
        "sampled": (operator.sampled, lambda left, right: (left @ right.T)[rows, columns]),
        "added": (operator.added, lambda left, right: (left[:, None] + right)[rows, columns]),
    }


OPERATIONS = ("product", "weighted", "sampled", "added")


def arguments(operation: str, operator: SparseOperator, dims: int, seed: int) -> list[Tensor]:
    m, n = operator.shape
    shapes = {
        "product": [(n, dims)],
        "weighted": [(len(operator.order),), (n, dims)],
        "sampled": [(m, dims), (n, dims)],
        "added": [(m,), (n,)],
    }
    return [noise(seed + place, *shape) for place, shape in enumerate(shapes[operation])]


@pytest.mark.parametrize("operation", OPERATIONS)
@few_each
@given(
    seed=seeds,
    m=heights,
    n=heights,
    dims=st.integers(0, 3),
    backwards=st.booleans(),
    turned=st.booleans(),
)
def test_values_gradients_and_their_gradients_equal_the_dense_ones(
    operation, seed, m, n, dims, backwards, turned
):
    matrix = drawn(seed, m, n)
    operator = SparseOperator.of(csr(matrix, backwards=backwards))
    if turned:
        matrix, operator = matrix.T, operator.T
    ours, dense = dense_forms(matrix, operator)[operation]
    inputs = arguments(operation, operator, dims, seed)
    close(ours(*inputs), dense(*inputs))
    probe = noise(seed + 7, *dense(*inputs).shape)
    first = [
        torch.autograd.grad((form(*inputs) * probe).sum(), [*inputs, probe], create_graph=True)
        for form in (ours, dense)
    ]
    close(*first)
    weights = [noise(seed + 11 + place, *part.shape) for place, part in enumerate(first[0])]
    second = [
        torch.autograd.grad(
            sum((w * g).sum() for w, g in zip(weights, grads, strict=True)),
            [*inputs, probe],
            allow_unused=True,
            materialize_grads=True,
        )
        for grads in first
    ]
    close(*second)


def test_gradients_are_only_computed_where_they_are_asked_for():
    operator = SparseOperator.of(csr(HAND))
    values = torch.ones(4, requires_grad=True)
    operator.weighted(values, X).sum().backward()
    assert values.grad is not None
    left = torch.ones(3, 2, requires_grad=True)
    operator.sampled(left, X).sum().backward()
    assert left.grad.tolist() == [[6, 60], [0, 0], [5, 50]]
    assert X.grad is None


def test_empty_rows_are_zero_whatever_stood_in_the_memory_before():
    matrix = torch.zeros(64, 64)
    matrix[0, 0] = 1.0
    for rows in (matrix, torch.zeros(64, 64)):
        operator = SparseOperator.of(csr(rows))
        for _ in range(20):
            torch.full((64, 64), torch.nan)  # freed at once: the next buffer may be this one
            assert (operator @ torch.ones(64, 64)).equal(rows @ torch.ones(64, 64))


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
