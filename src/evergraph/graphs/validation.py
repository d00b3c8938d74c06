"""What edges, labels and features must be to make a graph, and what of a source is not read."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.notices import say_ignored

UNLABELLED = -1


def check_whole(name: str, values: Tensor, *, verb: str = "holds") -> None:
    """Raise unless values are of an integer type; booleans are none."""
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise DataError(f"{name} {verb} {values.dtype}: expected integers")


def check_edges(edge_index: Tensor, nodes: int) -> None:
    """Raise unless every edge joins two existing nodes."""
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


def check_labels(labels: Tensor) -> None:
    """Raise unless labels are classes 0, 1, ..., or -1 where a node has none."""
    check_whole("labels", labels, verb="hold")
    if labels.numel() and int(labels.min()) < UNLABELLED:
        node = int(labels.argmin())
        raise DataError(
            f"node {node} has label {int(labels[node])}: expected a class from 0 on, or "
            f"{UNLABELLED} for none"
        )


def check_real(features: Tensor) -> None:
    """Raise if features are complex: their imaginary part would be lost."""
    if features.is_complex():
        raise DataError(f"features hold {features.dtype}: expected real numbers")


def check_features(features: Tensor, nodes: int) -> None:
    """Raise unless features are finite numbers, one row per node."""
    if features.dim() != 2 or features.shape[0] != nodes:
        raise DataError(
            f"features have shape {tuple(features.shape)}: expected [{nodes}, dims], a row a node"
        )
    values = features if features.layout == torch.strided else features.values()
    # A sum is finite only if every term is; the exact search runs only when it is not.
    if values.is_floating_point() and not bool(values.sum(dtype=torch.float64).isfinite()):
        bad = (~values.isfinite()).nonzero()
        if len(bad):
            where = (
                f"row {int(bad[0, 0])}" if values.dim() == 2 else f"stored value {int(bad[0, 0])}"
            )
            raise DataError(
                f"features hold NaN or infinity, first in {where}: expected finite numbers"
            )


# The last three say nothing that the others do not.
READ = ("x", "edge_index", "y", "num_nodes", "ptr", "batch")
TIME = ("time", "node_year")


def say_unread(where: object, names: Iterable[str], *, timed: bool = True) -> None:
    """Say which attributes of a ``Data`` object, or of a dict like one, are not used.

    timed: whether it is known when nodes appeared; a learner that grows does not ask.
    """
    read = (*READ, *TIME) if timed else READ
    used = "x, edge_index, y and time" if timed else "x, edge_index and y"
    unread = sorted(name for name in names if name not in read)  # PyG's own order varies
    say_ignored(where, "attribute", unread, f"only {used} are used")
