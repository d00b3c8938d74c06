"""Features of different widths brought to one, so that graphs of different domains can be joined.

``svd``: X ~ U S Vᵀ, and what is kept is X V_k = U_k S_k [nodes, width], the k strongest directions
of a graph's own features. Inner products of nodes are exact where X has no more than ``width``
directions. ``projection``: X R with R [dims, width] of entries ±1/sqrt(width) drawn at random, the
same for the same number of columns. Inner products are kept to about |x| |y| sqrt(2 / width)
(Johnson and Lindenstrauss; Achlioptas 2003), whatever the features are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from evergraph.core.checks import check_choice, check_integer
from evergraph.core.seeding import seeded
from evergraph.graphs.csr import as_csr, densify, take_rows

Align = Literal["svd", "projection"]
ALIGNS: tuple[str, ...] = get_args(Align)

# Up to here all directions at once, from the products of columns, are cheaper than the strongest
# few one after the other.
MOST_COLUMNS = 2048
CELLS = 1 << 24  # looked at together


def aligned(features: Tensor, *, width: int, align: Align = "svd", seed: int = 0) -> Tensor:
    """Return features of another width.  [nodes, dims] -> float32 [nodes, width]

    Args:
        features: dense or ``torch.sparse_csr``.
        width: how wide they get; where there are fewer directions, the last columns are 0.
        align: ``svd`` or ``projection``, see above.
        seed: of the projection.

    >>> square = torch.tensor([[3.0, 4.0, 0.0], [6.0, 8.0, 0.0]])  # one direction
    >>> aligned(square, width=2).abs().round(decimals=4)
    tensor([[ 5.,  0.],
            [10.,  0.]])
    """
    check_integer("width", width, least=1)
    check_choice("align", align, ALIGNS)
    dims = features.shape[1]
    if align == "projection":
        return _product(features, projection(dims, width, seed=seed))
    kept = min(width, *features.shape)
    found = torch.zeros(features.shape[0], width)
    if kept:
        found[:, :kept] = _product(features, directions(features, kept))
    return found


def projection(dims: int, width: int, *, seed: int) -> Tensor:
    """Return the matrix that projects ``dims`` columns.  -> float32 [dims, width]"""
    drawn = torch.randint(2, (dims, width), generator=seeded(seed, "projection", dims, width))
    signs: Tensor = (2 * drawn - 1).float()
    return signs / math.sqrt(width)


def directions(features: Tensor, count: int) -> Tensor:
    """Return the strongest directions of features, each with its largest entry above 0.

    Without that rule the sign of a direction is any, and would change with the library.

    [nodes, dims] -> float32 [dims, count]
    """
    if features.shape[1] <= MOST_COLUMNS:
        found = _all_directions(features)[:, :count]
    elif count == min(features.shape):  # so few nodes that all of them fit
        found = torch.linalg.svd(densify(features).double(), full_matrices=False).Vh.t()
    else:
        found = _strongest(features, count)
    largest = found.abs().argmax(0)
    signs = found[largest, torch.arange(count)].sign()
    return (found * torch.where(signs == 0, torch.ones_like(signs), signs)).float()


def _all_directions(features: Tensor) -> Tensor:
    """Return the eigenvectors of XᵀX, of the largest eigenvalue first.  -> float64 [dims, dims]"""
    products = torch.zeros(features.shape[1], features.shape[1], dtype=torch.float64)
    for block in _blocks(features):
        rows = block.double()
        products += rows.t() @ rows
    found: Tensor = torch.linalg.eigh(products).eigenvectors
    return found.flip(1)


def _strongest(features: Tensor, count: int) -> Tensor:
    """Return the right singular vectors of the largest values.  -> float64 [dims, count]"""
    import scipy.sparse
    import scipy.sparse.linalg  # solvers, which few need

    sparse = as_csr(features)
    parts = (sparse.values(), sparse.col_indices(), sparse.crow_indices())
    values, columns, rows = (part.numpy() for part in parts)
    matrix = scipy.sparse.csr_matrix((values.astype(np.float64), columns, rows), features.shape)
    start = np.ones(min(features.shape))  # not drawn: the same directions every time
    _, strength, vectors = scipy.sparse.linalg.svds(matrix, k=count, v0=start)
    return torch.from_numpy(vectors[np.argsort(-strength)].T.copy())


def _product(features: Tensor, matrix: Tensor) -> Tensor:
    """Return features times a matrix, some rows at a time.  -> float32 [nodes, width]"""
    return torch.cat([block @ matrix for block in _blocks(features)] or [matrix[:0]])


def _blocks(features: Tensor) -> Iterator[Tensor]:
    """Yield features as dense blocks of rows."""
    nodes, dims = features.shape
    step = max(1, CELLS // max(dims, 1))
    for start in range(0, nodes, step):
        rows = torch.arange(start, min(start + step, nodes))
        dense = features.layout == torch.strided
        yield features[start : start + step] if dense else densify(take_rows(features, rows))
