"""Checks and layout shared by all file formats, from arrays to a Graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.graphs import Graph, Targets
from evergraph.graphs.csr import as_csr, csr_tensor
from evergraph.graphs.targets import Masks
from evergraph.graphs.validation import MOST_NODES, check_csr, check_real, check_whole
from evergraph.tables.columns import column_peaks, say_dominant_column

# CSR stores 8 bytes for every 4-byte value, and its products cost far more per value. Below one
# value in twenty it saves several times the memory; above, a dense matrix is better in both.
SPARSE_BELOW = 0.05


def fitting_layout(features: Tensor) -> Tensor:
    """Return features as CSR if fewer than one value in twenty is non-zero, else dense.

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


def assemble(  # noqa: PLR0913
    path: object,
    *,
    edge_index: Tensor,
    features: Tensor | None,
    labels: Tensor | None = None,
    targets: Targets | None = None,
    time: Tensor | None,
    names: Sequence[str] | None = None,
    weights: Tensor | None = None,
    masks: Masks | None = None,
    repeated: str | None = None,
) -> Graph:
    """Return the graph of a file's arrays; without features the width is 0.

    Warns about a feature column that dominates the others.

    edge_index: integer [2, edges]; features: [nodes, dims], dense or CSR; labels: integer [nodes],
    or targets instead; time: integer [nodes]; path, names: of the file and of the feature columns,
    for messages; weights: [edges]; masks: published splits; repeated: as in ``Graph.from_edges``.
    """
    if labels is not None:
        check_integers("y", labels)
    if targets is not None and features is not None and len(features) != len(targets):
        raise DataError(
            f"y has shape {list(targets.values.shape)}: expected [nodes] or [nodes, targets], and "
            f"there are {len(features)} nodes"
        )
    nodes = labels.numel() if labels is not None else len(targets or ())
    if features is None:
        features = torch.zeros(nodes, 0)
    if time is not None:
        check_integers("time", time)
    graph = Graph.from_edges(
        edge_index,
        features=features,
        labels=labels,
        time=time,
        targets=targets,
        weights=weights,
        masks=masks,
        repeated=repeated,
        where=path,
    )
    say_dominant_column(path, column_peaks(graph.features), names)
    return graph


def check_integers(name: str, values: Tensor) -> None:
    """Raise unless there is one integer per node."""
    if values.dim() != 1:
        raise DataError(f"{name} has shape {list(values.shape)}: expected [nodes]")
    check_whole(name, values)


def checked_csr(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a float32 CSR matrix from the parts in a file; raise unless they are valid.

    indptr: integer [rows + 1]; indices, values: [stored].
    """
    rows, columns = shape
    check_real(values)
    if not (0 <= rows <= MOST_NODES and 0 <= columns <= MOST_NODES):
        raise DataError(f"CSR features have shape {list(shape)}: expected [nodes, dims]")
    if indptr.shape != (rows + 1,) or indices.dim() != 1 or values.shape != indices.shape:
        raise DataError(
            f"CSR features have {indptr.numel()} row pointers, {indices.numel()} column indices "
            f"and {values.numel()} values: expected {rows + 1}, and as many values as indices"
        )
    check_csr(indptr, indices, columns)
    return csr_tensor(indptr, indices, values.float(), shape)
