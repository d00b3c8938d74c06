"""Checks of edges, labels and features, and warnings about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from evergraph.core.errors import DataError, say_ignored
from evergraph.core.mapped import RESIDENT, is_mapped, page_out

UNLABELLED = -1
MOST_NODES = 2**31 - 1  # numbered by int32
MOST_CLASSES = 1 << 24  # an array with a number for each of them takes 128 MB
# For weights within these bounds, and sums of 2^31 of them, the inverses fit into float32.
LEAST_WEIGHT = 1e-18
MOST_WEIGHT = 1e18
WEIGHT_RULE = f"0, for no edge, or a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
# The last three add no information to the others.
READ = ("x", "edge_index", "y", "num_nodes", "ptr", "batch")
TIME = ("time", "node_year")
WEIGHTS = ("edge_weight", "edge_attr")
_VALUES_PER_BLOCK = 1 << 22  # values processed together


def check_whole(name: str, values: Tensor, *, verb: str = "holds") -> None:
    """Raise unless values have an integer type; booleans do not count."""
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise DataError(f"{name} {verb} {values.dtype}: expected integers")


def check_count(nodes: int) -> None:
    """Raise if a graph has more nodes than int32 can number; entries have no limit."""
    if nodes > MOST_NODES:
        raise DataError(f"the graph has {nodes:,} nodes: at most {MOST_NODES:,} are supported")


def check_edges(edge_index: Tensor, nodes: int) -> None:
    """Raise unless every edge joins two existing nodes."""
    check_count(nodes)
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise DataError(f"edge_index has shape {tuple(edge_index.shape)}: expected [2, edges]")
    check_whole("edge_index", edge_index)
    if edge_index.numel() and (int(edge_index.min()) < 0 or int(edge_index.max()) >= nodes):
        wrong = ((edge_index < 0) | (edge_index >= nodes)).any(0).nonzero()[0, 0]
        source, target = edge_index[:, wrong].tolist()
        raise DataError(
            f"edge {int(wrong)} joins {source} and {target}, but nodes are numbered "
            f"0 to {nodes - 1}"
        )


def check_csr(indptr: Tensor, indices: Tensor, columns: int) -> None:
    """Raise unless row pointers ascend from 0 to the end of the entries, which are columns.

    indptr: integer [rows + 1]; indices: integer [entries]; either may be in a file.
    """
    if int(indptr[0]) != 0 or int(indptr[-1]) != len(indices):
        raise DataError(
            f"CSR row pointers run from {int(indptr[0])} to {int(indptr[-1])}: "
            f"expected 0 to {len(indices)}, the number of stored values"
        )
    for start in range(0, len(indptr) - 1, _VALUES_PER_BLOCK):
        block = indptr[start : start + _VALUES_PER_BLOCK + 1]
        falls = block[1:] < block[:-1]
        if bool(falls.any()):
            row = start + int(falls.nonzero()[0, 0])
            raise DataError(f"CSR row pointers fall after row {row}: expected them to ascend")
    for start in range(0, len(indices), _VALUES_PER_BLOCK):
        block = indices[start : start + _VALUES_PER_BLOCK]
        least, most = map(int, block.aminmax())
        if least < 0 or most >= columns:
            place = int(((block < 0) | (block >= columns)).nonzero()[0, 0])
            raise DataError(
                f"CSR column index {int(block[place])} at stored value {start + place}: "
                f"expected 0 to {columns - 1}"
            )
        if is_mapped(indices) and indices.nbytes > RESIDENT:
            page_out(block)


def check_labels(labels: Tensor) -> None:
    """Raise unless labels are classes 0, 1, ..., or -1 for none."""
    check_whole("labels", labels, verb="hold")
    least, most = map(int, labels.aminmax()) if labels.numel() else (0, 0)
    if least < UNLABELLED or most >= MOST_CLASSES:
        node = int(labels.argmin() if least < UNLABELLED else labels.argmax())
        raise DataError(
            f"node {node} has label {int(labels[node])}: expected a class from 0 to "
            f"{MOST_CLASSES - 1:,}, or {UNLABELLED} for none"
        )


def checked_weights(name: str, weights: Tensor, edges: int) -> Tensor:
    """Return edge weights as float32; raise unless there is one per edge and all are valid.

    >>> checked_weights("weight", torch.tensor([1, 2]), 2)
    tensor([1., 2.])
    """
    if weights.shape != (edges,):
        said = f"{name}s have shape {list(weights.shape)}: expected [{edges}], one number per edge"
        raise DataError(said)
    if weights.is_complex():
        raise DataError(f"{name}s hold {weights.dtype}: expected real numbers")
    wrong = unsound_weights(weights)
    if bool(wrong.any()):
        edge = int(wrong.nonzero()[0, 0])
        raise DataError(f"edge {edge} has {name} {weights[edge].item()!r}: expected {WEIGHT_RULE}")
    return weights.float()


def unsound_weights(weights: Tensor) -> Tensor:
    """Return whether weights are negative, not finite, or too small or large to divide by.

    >>> unsound_weights(torch.tensor([0.0, 2.5, -1.0, float("nan"), 1e30]))
    tensor([False, False,  True,  True,  True])
    """
    found: Tensor = ~(((weights >= LEAST_WEIGHT) & (weights <= MOST_WEIGHT)) | (weights == 0))
    return found


def check_real(features: Tensor) -> None:
    """Raise if features are complex, since their imaginary part would be lost."""
    if features.is_complex():
        raise DataError(f"features hold {features.dtype}: expected real numbers")


def check_features(features: Tensor, nodes: int) -> None:
    """Raise unless features are finite numbers, one row per node."""
    if features.dim() != 2 or features.shape[0] != nodes:
        raise DataError(
            f"features have shape {tuple(features.shape)}: expected [{nodes}, dims], a row per node"
        )
    values = features if features.layout == torch.strided else features.values()
    # A sum is finite only if every term is; the exact search runs only if it is not.
    if values.is_floating_point() and not bool(values.sum(dtype=torch.float64).isfinite()):
        bad = (~values.isfinite()).nonzero()
        if len(bad):
            where = f"{'row' if values.dim() == 2 else 'stored value'} {int(bad[0, 0])}"
            said = f"features hold NaN or infinity, first in {where}: expected finite numbers"
            raise DataError(said)


def given_weights(given: Mapping[str, Any]) -> tuple[str, Tensor] | tuple[None, None]:
    """Return the name and values of the edge weights among some attributes.

    They are ``edge_weight``, else ``edge_attr`` if that has one column.

    >>> given_weights({"edge_attr": torch.tensor([[2.0], [3.0]])})
    ('edge_attr', tensor([2., 3.]))
    """
    for name in WEIGHTS:
        if isinstance(found := given.get(name), Tensor):
            single = found.dim() == 1 or found.shape[1:] == (1,)
            if single or name == WEIGHTS[0]:
                return name, found.reshape(-1) if single else found
    return None, None


def say_unread(
    where: object,
    names: Iterable[str],
    *,
    timed: bool = True,
    weights: str | None = None,
    also: Iterable[str] = (),
) -> None:
    """Log which attributes of a ``Data`` object, or of a similar dict, are not used.

    timed: whether times of nodes are used; a growing learner does not use them. weights: the
    attribute with the edge weights, if any; also: others that are read.
    """
    read = (*READ, *(TIME if timed else ()), *([] if weights is None else [weights]), *also)
    used = "x, edge_index, y and time" if timed else "x, edge_index and y"
    if weights is not None:
        used = used.replace("edge_index", f"edge_index, {weights}")
    unread = sorted(name for name in names if name not in read)  # PyG's own order varies
    say_ignored(where, "attribute", unread, f"only {used} are used")
