"""Dense features from word counts: TF-IDF, then the leading singular directions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import scipy
import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError
from evergraph.graphs.csr import csr_tensor

# Extra directions beyond those requested; they absorb the error of the last ones.
OVERSAMPLING = 32


def tf_idf(counts: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
    """Weight words by their frequency in a row and rarity among rows.  [rows, words] -> the same

    x_rw = (1 + ln(count_rw)) · (1 + ln((1 + rows) / (1 + df_w))), then every row is scaled to
    length 1. df_w counts the rows that have word w. Rows without a word stay zero. Stored entries
    must be 1 or more.

    >>> counts = scipy.sparse.csr_matrix(np.array([[3.0, 0.0], [0.0, 0.0]]))
    >>> tf_idf(counts).toarray()
    array([[1., 0.],
           [0., 0.]], dtype=float32)
    """
    rows, words = counts.shape
    present = np.bincount(counts.indices, minlength=words)  # df, [words]
    idf = 1.0 + np.log((1.0 + rows) / (1.0 + present))
    weights = (1.0 + np.log(counts.data)) * idf[counts.indices]
    entry_rows = np.repeat(np.arange(rows), np.diff(counts.indptr))
    lengths = np.sqrt(np.bincount(entry_rows, weights=weights**2, minlength=rows))
    scaled = (weights / lengths[entry_rows]).astype(np.float32)
    return scipy.sparse.csr_matrix((scaled, counts.indices, counts.indptr), shape=counts.shape)


def truncated_svd(
    matrix: scipy.sparse.csr_matrix,
    *,
    dims: int,
    generator: torch.Generator,
    power_iterations: int = 4,
) -> Tensor:
    """Return U·S of the ``dims`` largest singular values, largest first.  [n, m] -> [n, dims]

    Randomised subspace iteration (Halko, Martinsson and Tropp 2011, algorithm 4.4) on the side of
    the columns: Q <- orth(Aᵀ A Q), begun with a random Q [m, dims + oversampling]. Then B = A Q
    holds nearly all of A, and with Bᵀ B = W S² Wᵀ the answer is B W = U S; the right singular
    vectors are Q W. Only matrices as tall as A has columns are orthogonalised, which makes it fast
    for many rows. The sign of each direction makes the largest entry of its right singular vector
    positive.

    >>> from evergraph.core.seeding import seeded
    >>> diagonal = scipy.sparse.csr_matrix(np.diag([1.0, 3.0, 2.0]))
    >>> truncated_svd(diagonal, dims=2, generator=seeded(0)).abs().round(decimals=3)
    tensor([[0., 0.],
            [3., 0.],
            [0., 2.]])
    """
    smaller = min(matrix.shape)
    if not 1 <= dims <= smaller:
        raise ConfigurationError(
            f"dims must lie between 1 and {smaller}, the smaller side of the matrix: got {dims}"
        )
    A, At = _torch_csr(matrix), _torch_csr(matrix.T.tocsr())
    width = min(dims + OVERSAMPLING, smaller)
    Q = _orthonormal(torch.randn(matrix.shape[1], width, generator=generator))  # [m, width]
    for _ in range(power_iterations):
        Q = _orthonormal(At @ (A @ Q))
    B = A @ Q  # [n, width]
    with _one_thread():
        vectors = torch.linalg.eigh((B.T @ B).double()).eigenvectors  # ascending
    W = vectors.flip(1)[:, :dims].float()  # [width, dims]
    right = Q @ W
    largest = right.gather(0, right.abs().argmax(0, keepdim=True))[0]
    found: Tensor = B @ (W * torch.where(largest < 0, -1.0, 1.0))
    return found


def _torch_csr(matrix: scipy.sparse.csr_matrix) -> Tensor:
    """Return the matrix for torch, whose float32 products use all cores."""
    parts = (matrix.indptr, matrix.indices, np.asarray(matrix.data, dtype=np.float32))
    indptr, indices, values = map(torch.from_numpy, parts)
    return csr_tensor(indptr, indices, values, matrix.shape)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Restrict a factorisation to one core.

    Factorisations synchronise thousands of times. A second idle core gains little; if another
    process uses the same cores, each barrier waits for it, and 0.2 s become 8 s.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _orthonormal(matrix: Tensor) -> Tensor:
    """Return an orthonormal basis of the columns.  [m, width] -> [m, width]"""
    with _one_thread():
        basis: Tensor = torch.linalg.qr(matrix).Q
    return basis
