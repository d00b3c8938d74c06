"""The one place where sparse matrices are multiplied."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy
import torch
from torch import Tensor

from evergraph.graphs.csr import as_scipy, csr_tensor, densify, pointer_type, pointers_of
from evergraph.graphs.kernels import room
from evergraph.graphs.rows import RowSweep
from evergraph.graphs.smoother import Smoother

# A sparse-sparse product costs about 50 times as much per stored value as a sparse-dense one per
# cell (torch CSR, 2 cores, Coauthor-CS), so beyond one value in fifty the dense product wins.
SPARSE_PAYS_BELOW = 0.02


def propagate(
    matrix: Tensor | Smoother,
    features: Tensor,
    *,
    add: Tensor | None = None,
    scale: float = 1.0,
    add_scale: float = 1.0,
    out: Tensor | None = None,
) -> Tensor:
    """Return ``scale · matrix @ features + add_scale · add``  [nodes, dims].

    ``matrix`` is CSR or a ``Smoother``; ``features`` are dense, or CSR, and come back as CSR while
    so few of their entries are non-zero that the sparse product is the faster one. ``out`` is
    where a dense result goes, neither features nor add; new memory unless given.

    >>> swap = torch.tensor([[0., 1.], [1., 0.]]).to_sparse_csr()
    >>> propagate(swap, torch.tensor([[1.], [2.]]), add=torch.tensor([[10.], [10.]]))
    tensor([[12.],
            [11.]])
    """
    if add is None and out is None and scale == 1.0 and stays_sparse(features):
        return sparse_product(matrix.matrix if isinstance(matrix, Smoother) else matrix, features)
    features, add = densify(features), None if add is None else densify(add)
    if isinstance(matrix, Smoother):
        return matrix.product(features, add=add, scale=scale, add_scale=add_scale, out=out)
    if out is None:
        # Into a buffer of our own: ``matrix @ features`` fills and then copies a second one, which
        # costs as much as the product.
        out = room(matrix.shape[0], like=features)
    if add is None:  # with beta = 0 what stood in the buffer is never read
        return torch.addmm(out, matrix, features, beta=0, alpha=scale, out=out)
    return torch.addmm(add, matrix, features, beta=add_scale, alpha=scale, out=out)


def sparse_product(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of two CSR matrices, as CSR.

    On a CPU torch has it from MKL alone, which builds for ARM come without: SciPy multiplies there.

    >>> turn = torch.tensor([[0., 1.], [2., 0.]]).to_sparse_csr()
    >>> sparse_product(turn, turn).to_dense()
    tensor([[2., 0.],
            [0., 2.]])
    """
    if left.device.type != "cpu" or torch.backends.mkl.is_available():
        product: Tensor = torch.sparse.mm(left, right)
        return product
    found = as_scipy(left) @ as_scipy(right)
    found.sort_indices()
    indptr, indices, values = map(torch.from_numpy, (found.indptr, found.indices, found.data))
    return csr_tensor(indptr, indices, values, found.shape)


def ordered_product(indptr: Tensor, indices: Tensor, weights: Tensor, features: Tensor) -> Tensor:
    """Return a CSR matrix times features, every row's entries added one by one in their order.

    So a row of the result has the same bits whatever other rows the matrix has; on a CPU.

    indptr: [rows + 1]; indices: int32 [entries]; weights: float32 [entries]; features:
    float32 [columns, dims]; -> float32 [rows, dims]

    >>> ordered_product(torch.tensor([0, 2]).int(), torch.tensor([0, 1]).int(),
    ...                 torch.tensor([1., 10.]), torch.tensor([[2.], [3.]]))
    tensor([[32.]])
    """
    parts = (weights.numpy(), indices.numpy(), indptr.numpy())
    shape = (len(indptr) - 1, len(features))
    return torch.from_numpy(scipy.sparse.csr_matrix(parts, shape=shape) @ features.numpy())


def walk(matrix: Tensor | Smoother, features: Tensor, *, hops: int) -> Iterator[Tensor]:
    """Yield ``matrix^l @ features`` for l = 1 .. hops, each computed from the one before."""
    for _ in range(hops):
        features = propagate(matrix, features)
        yield features


def sample_product(pattern: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return ⟨left_i, right_j⟩ at the entries (i, j) of a CSR matrix.  [m, d], [n, d] -> [entries]

    >>> corner = torch.tensor([[0., 1.], [0., 0.]]).to_sparse_csr()
    >>> sample_product(corner, torch.tensor([[2.], [9.]]), torch.tensor([[9.], [5.]]))
    tensor([10.])
    """
    if not pattern.values().numel():
        return pattern.values().clone()
    products: Tensor = torch.sparse.sampled_addmm(pattern, left, right.t(), beta=0.0).values()
    return products


def stays_sparse(features: Tensor) -> bool:
    """Whether another product is faster with these features left sparse."""
    if features.layout == torch.strided or features.numel() == 0:
        return False
    return bool(features.values().numel() <= SPARSE_PAYS_BELOW * features.numel())


def step_out(
    rows: scipy.sparse.csr_matrix, adjacency: scipy.sparse.csr_matrix
) -> scipy.sparse.csr_matrix:
    """Return which nodes lie at most one step beyond each row's nodes, as a boolean matrix."""
    return rows @ adjacency


def pattern(adjacency: RowSweep, rows: Tensor) -> scipy.sparse.csr_matrix:
    """Return some rows of an adjacency, each with its own node in it, as a boolean matrix.

    Other rows are empty: columns and rows are numbered as in the graph.

    rows: int64 [m], ascending, none twice; -> [nodes, nodes]

    >>> import torch
    >>> path = RowSweep(torch.tensor([0, 1, 3, 4]), torch.tensor([1, 0, 2, 1]).int())
    >>> pattern(path, torch.tensor([0, 1])).toarray().astype(int)
    array([[1, 1, 0],
           [1, 1, 1],
           [0, 0, 0]])
    """
    rows = rows.to(adjacency.indices.device)
    nodes = len(adjacency.indptr) - 1
    lengths, own = torch.zeros(2, nodes, dtype=torch.int64, device=rows.device)
    lengths[rows], own[rows] = adjacency.lengths(rows), 1
    near = adjacency.indices if len(rows) == nodes else adjacency.neighbours(rows)
    return _boolean(lengths, near) + _boolean(own, rows)


def _boolean(lengths: Tensor, columns: Tensor) -> scipy.sparse.csr_matrix:
    """Return a square matrix of ones, of which each row has so many."""
    kind = pointer_type(max(len(columns), len(lengths)))
    indptr, indices = pointers_of(lengths).to(kind), columns.to(kind)
    parts = (np.ones(len(columns), dtype=bool), indices.cpu().numpy(), indptr.cpu().numpy())
    return scipy.sparse.csr_matrix(parts, shape=(len(lengths), len(lengths)))
