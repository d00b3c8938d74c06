"""The one place where sparse matrices are multiplied."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

# A sparse-sparse product costs about 50 times as much per stored value as a sparse-dense one per
# cell (torch CSR, 2 cores, Coauthor-CS), so beyond one value in fifty the dense product wins.
SPARSE_PAYS_BELOW = 0.02


def propagate(
    matrix: Tensor,
    features: Tensor,
    *,
    add: Tensor | None = None,
    scale: float = 1.0,
    add_scale: float = 1.0,
) -> Tensor:
    """Return ``scale · matrix @ features + add_scale · add``  [nodes, dims].

    ``matrix`` is CSR; ``features`` are dense, or CSR, and come back as CSR while so few of their
    entries are non-zero that the sparse product is the faster one.

    >>> swap = torch.tensor([[0., 1.], [1., 0.]]).to_sparse_csr()
    >>> propagate(swap, torch.tensor([[1.], [2.]]), add=torch.tensor([[10.], [10.]]))
    tensor([[12.],
            [11.]])
    """
    if add is None and scale == 1.0 and stays_sparse(features):
        sparse: Tensor = torch.sparse.mm(matrix, features)
        return sparse
    features = densify(features)
    if add is None:
        product = matrix @ features
        return product if scale == 1.0 else product.mul_(scale)
    return torch.addmm(densify(add), matrix, features, beta=add_scale, alpha=scale)


def walk(matrix: Tensor, features: Tensor, *, hops: int) -> Iterator[Tensor]:
    """Yield ``matrix^l @ features`` for l = 1 .. hops, each computed from the one before."""
    for _ in range(hops):
        features = propagate(matrix, features)
        yield features


def stays_sparse(features: Tensor) -> bool:
    """Whether another product is faster with these features left sparse."""
    if features.layout == torch.strided or features.numel() == 0:
        return False
    return bool(features.values().numel() <= SPARSE_PAYS_BELOW * features.numel())


def densify(features: Tensor) -> Tensor:
    """Return the features as a dense matrix (themselves if they are)."""
    return features if features.layout == torch.strided else features.to_dense()


def step_out(
    rows: scipy.sparse.csr_matrix, adjacency: scipy.sparse.csr_matrix
) -> scipy.sparse.csr_matrix:
    """Return which nodes lie at most one step beyond each row's nodes, as a boolean matrix."""
    return rows @ adjacency


def pattern(indptr: Tensor, indices: Tensor) -> scipy.sparse.csr_matrix:
    """Return the adjacency as a boolean matrix with every node its own neighbour."""
    nodes = len(indptr) - 1
    ones = np.ones(len(indices), dtype=bool)
    matrix = scipy.sparse.csr_matrix(
        (ones, indices.cpu().numpy(), indptr.cpu().numpy()), shape=(nodes, nodes)
    )
    return (matrix + scipy.sparse.identity(nodes, dtype=bool, format="csr")).tocsr()
