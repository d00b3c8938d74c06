"""Degree and feature length of every node of a growing graph."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.shape import SHAPE_WIDTH, shape_rows
from evergraph.online.graph.growing_array import GrowingArray, KeptArrays, StoredPart
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph

ROWS_PER_BLOCK = 512  # of features, which may be wide


class LiveShape(KeptArrays):
    """The shape of every node, see ``shape_of``, updated where edges or features change.

    measured: whether the plain length of a node's features stands beside it.

    >>> graph, shape = GrowingGraph(num_features=1), LiveShape()
    >>> shape.update(graph, graph.add(torch.ones(2, 1), torch.tensor([[0], [1]])))
    tensor([0, 1])
    >>> bool((shape.of(torch.tensor([0])) == shape.of(torch.tensor([1]))).all())
    True
    """

    def __init__(self, *, measured: bool = False) -> None:
        self.dims = SHAPE_WIDTH + measured
        self._rows = GrowingArray(self.dims)
        self.kept = {"rows": self._rows}

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

    def of(self, nodes: Tensor) -> Tensor:
        """Return the shapes of some nodes.  int64 [n] -> float32 [n, dims]"""
        return self._rows.tensor[nodes]

    def stored(self) -> list[StoredPart]:
        """Return all shapes without copying."""
        return [StoredPart(self._rows.array)]
