"""Dense or sparse: whichever layout of the features costs less to work with."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.graphs.csr import as_csr

# CSR stores 8 bytes for every value of 4, and its products cost far more per value: below one
# value in twenty it saves memory several times over, above it a dense matrix is better at both.
SPARSE_BELOW = 0.05


def fitting_layout(features: Tensor) -> Tensor:
    """Return the features as CSR where fewer than one value in twenty is not zero, else dense.

    >>> fitting_layout(torch.eye(40)).layout
    torch.sparse_csr
    >>> fitting_layout(torch.eye(4).to_sparse_csr()).layout
    torch.strided
    """
    if features.numel() == 0:
        return features
    dense = features.layout == torch.strided
    stored = int(features.count_nonzero()) if dense else features.values().numel()
    sparse_pays = stored < SPARSE_BELOW * features.numel()
    if sparse_pays:
        return as_csr(features) if dense else features
    return features if dense else features.to_dense()
