"""Rows that a node of a growing graph has by itself: its degree and feature length, its words."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.own_features import SHAPE_WIDTH, shape_rows
from evergraph.online.graph.growing_array import Array, GrowingArray, VectorPart
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph

ROWS_PER_BLOCK = 512  # of features, which may be wide


class LiveRows(VectorPart):
    """Base of parts of a vector that are kept as they are."""

    def __init__(self, dims: int) -> None:
        self.dims = dims
        self._rows = GrowingArray(dims)
        self.kept = {"rows": self._rows}

    def rows(self, nodes: Array) -> Array:
        return self._rows.array.take(nodes, axis=0)


class LiveShape(LiveRows):
    """The shape of every node, see ``shape_of``, updated where edges or features change.

    measured: whether the plain length of a node's features stands beside it.

    >>> graph, shape = GrowingGraph(num_features=1), LiveShape()
    >>> shape.update(graph, graph.add(torch.ones(2, 1), torch.tensor([[0], [1]])))
    tensor([0, 1])
    >>> bool((shape.of(torch.tensor([0])) == shape.of(torch.tensor([1]))).all())
    True
    """

    def __init__(self, *, measured: bool = False) -> None:
        super().__init__(SHAPE_WIDTH + measured)

    def update(self, graph: GrowingGraph, change: GraphChange) -> Tensor:
        """Follow a change of the graph, right after it was made; return the nodes it concerns."""
        self._rows.extend(graph.num_nodes - len(self._rows))
        self._rows.write(change.removed, 0)
        nodes: Tensor = torch.cat([change.new, change.touched, change.renewed]).unique()
        for some in nodes.split(ROWS_PER_BLOCK):
            degrees = torch.from_numpy(np.diff(graph.rows(some)[0]))
            lengths = torch.linalg.vector_norm(graph.features[some], dim=1, dtype=torch.float64)
            rows = torch.cat([shape_rows(degrees, lengths), lengths.float()[:, None]], dim=1)
            self._rows.write(some, rows[:, : self.dims])
        return nodes


class LiveWords(LiveRows):
    """The words of every node as they were given, see ``packed_words``.

    >>> words = LiveWords(2)
    >>> words.add(torch.tensor([[1.0, 7.0]]))
    >>> words.renew(torch.tensor([0]), torch.tensor([[1.0, 8.0]]))
    tensor([0])
    >>> words.of(torch.tensor([0]))
    tensor([[1., 8.]])
    """

    def add(self, rows: Tensor) -> None:
        """Add nodes.  float32 [new, width]"""
        self._rows.extend(len(rows))
        self._rows.tensor[len(self._rows) - len(rows) :] = rows

    def renew(self, nodes: Tensor, rows: Tensor) -> Tensor:
        """Replace the words of nodes; return those whose words differ.  [n], [n, width]"""
        former = self._rows.write(nodes, rows)
        return nodes[(former != rows).any(1)]

    def follow(self, change: GraphChange) -> None:
        """Erase the words of removed nodes."""
        self._rows.write(change.removed, 0)
