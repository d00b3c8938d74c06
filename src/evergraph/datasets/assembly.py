"""From the arrays of a file to a Graph: the checks that every format shares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.graphs import Graph
from evergraph.graphs.csr import csr_tensor


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the file's name before the message of any DataError.

    >>> with naming(Path("a.npz")):
    ...     raise DataError("has no 'y'")
    Traceback (most recent call last):
    evergraph.core.errors.DataError: a.npz: has no 'y'
    """
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def assemble(
    *, edge_index: Tensor, features: Tensor | None, labels: Tensor, time: Tensor | None
) -> Graph:
    """Return the graph of a file's arrays; without features they are 0 wide.

    edge_index: integer [2, edges]; features: [nodes, dims], dense or CSR; labels: integer [nodes];
    time: integer [nodes].
    """
    check_integers("y", labels)
    nodes = labels.numel()
    if features is None:
        features = torch.zeros(nodes, 0)
    if time is not None:
        check_integers("time", time)
    return Graph.from_edges(edge_index, features=features, labels=labels, time=time)


def check_integers(name: str, values: Tensor) -> None:
    """Raise unless there is one integer for each node."""
    if values.dim() != 1:
        raise DataError(f"{name} has shape {list(values.shape)}: expected [nodes]")
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise DataError(f"{name} holds {values.dtype}: expected integers")


def checked_csr(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a float32 CSR matrix of parts that come from a file, once they are known to be sound.

    indptr: integer [rows + 1]; indices, values: [stored].
    """
    rows, columns = shape
    if rows < 0 or columns < 0:
        raise DataError(f"CSR features have shape {list(shape)}: expected [nodes, dims]")
    if indptr.shape != (rows + 1,) or indices.dim() != 1 or values.shape != indices.shape:
        raise DataError(
            f"CSR features have {indptr.numel()} row pointers, {indices.numel()} column indices "
            f"and {values.numel()} values: expected {rows + 1}, and as many values as indices"
        )
    if int(indptr[0]) != 0 or int(indptr[-1]) != len(indices):
        raise DataError(
            f"CSR row pointers run from {int(indptr[0])} to {int(indptr[-1])}: "
            f"expected 0 to {len(indices)}, the number of stored values"
        )
    if bool((indptr.diff() < 0).any()):
        row = int((indptr.diff() < 0).nonzero()[0, 0])
        raise DataError(f"CSR row pointers fall after row {row}: expected them to ascend")
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= columns):
        place = int(((indices < 0) | (indices >= columns)).nonzero()[0, 0])
        raise DataError(
            f"CSR column index {int(indices[place])} at stored value {place}: "
            f"expected 0 to {columns - 1}"
        )
    return csr_tensor(indptr.int(), indices.int(), values.float(), shape)
