"""SciPy's sparse matrices as graphs: an entry (i, j) is an edge from i to j, and its weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.datasets.doors.named import NamedGraph, numbered_labels
from evergraph.datasets.doors.recognising import is_sparse
from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.csr import csr_tensor


def from_scipy(
    adjacency: Any, *, features: Any = None, labels: Any = None, undirected: bool = False
) -> NamedGraph:
    """Return the graph of an adjacency matrix; entries of 0 are no edges.

    Args:
        adjacency: sparse [nodes, nodes]; where all entries are 1, edges have no weights.
        features: a row a node, as an array, a tensor or a sparse matrix; none unless given.
        labels: one a node, numbers or texts, None, NaN or -1 where there is none.
        undirected: whether every edge runs both ways.

    >>> import scipy.sparse
    >>> path = scipy.sparse.csr_array(np.array([[0, 2, 0], [0, 0, 1], [0, 0, 0]]))
    >>> graph = from_scipy(path, features=np.eye(3), labels=["x", "y", None]).graph
    >>> graph, graph.neighbours(1).tolist(), graph.weights.tolist()
    (Graph(nodes=3, edges=2, features=3, classes=2), [0], [2.0, 1.0])
    """
    if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise DataError(f"adjacency has shape {adjacency.shape}: expected [nodes, nodes]")
    nodes = adjacency.shape[0]
    entries = adjacency.tocoo()
    weights = None if bool((entries.data == 1).all()) else torch.from_numpy(_real(entries.data))
    numbers, classes = _labels(labels, nodes)
    graph = Graph.from_edges(
        torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64)),
        features=_features(features, nodes),
        labels=numbers,
        undirected=undirected,
        weights=weights,
    )
    return NamedGraph(graph, None, classes)


def _real(values: Any) -> Any:
    if values.dtype.kind not in "biuf":
        raise DataError(f"adjacency holds {values.dtype}: expected real numbers")
    return values.astype(np.float64)


def _labels(labels: Any, nodes: int) -> tuple[Tensor, tuple[str, ...] | None]:
    if labels is None:
        return torch.full((nodes,), UNLABELLED), None
    listed = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    if len(listed) != nodes:
        raise DataError(f"labels must be as many as nodes, not {len(listed)} for {nodes} nodes")
    return numbered_labels(listed)


def _features(features: Any, nodes: int) -> Tensor:
    """Return features as a tensor, sparse where they were.  -> float32 [nodes, dims]"""
    if features is None:
        return torch.zeros(nodes, 0)
    if isinstance(features, Tensor):
        return features
    if is_sparse(features):
        rows = features.tocsr()
        rows.sum_duplicates()
        parts = (rows.indptr, rows.indices, _real(rows.data))
        indptr, indices, values = (torch.from_numpy(np.array(part)) for part in parts)
        return csr_tensor(indptr, indices, values.float(), tuple(rows.shape))
    try:
        return torch.from_numpy(np.array(features, dtype=np.float32))
    except (TypeError, ValueError) as error:
        raise DataError(f"features must be a matrix of numbers: {error}") from None
