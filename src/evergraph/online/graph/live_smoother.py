"""Rows of the normalised adjacency of a growing graph."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from evergraph.graphs import Smoother
from evergraph.graphs.csr import repeat
from evergraph.graphs.kernels import choose_kernel
from evergraph.graphs.normalisation import with_last, with_self_loops
from evergraph.graphs.propagation import ordered_product
from evergraph.online.graph.growing_array import GrowingArray
from evergraph.online.graph.growing_graph import GrowingGraph


class LiveSmoother:
    """Â = D^-1/2 (A + sI) D^-1/2 of a growing graph, multiplied some rows at a time.

    A holds the weights of edges, D the sums of the rows of A + sI.

    A row's sum is made in the order of its neighbours' positions, its own column last: its bits
    depend neither on how the graph is stored nor on the rows it is computed with. Which kernel
    makes the sums depends on the size of the whole graph, for the same reason.

    Args:
        self_loops: whether s is 1, else 0.

    >>> pair, smoother = GrowingGraph(num_features=1), LiveSmoother()
    >>> change = pair.add(torch.tensor([[1.], [3.]]), torch.tensor([[0], [1]]))
    >>> smoother.refresh(pair, change.new)
    >>> smoother.product(pair, torch.tensor([1]), pair.features)
    tensor([[2.0000]])
    """

    def __init__(self, *, self_loops: bool = True) -> None:
        self.self_loops = self_loops
        self._scalings = GrowingArray()  # the diagonal of D^-1/2

    def refresh(self, graph: GrowingGraph, nodes: Tensor) -> None:
        """Look at the degrees of nodes that are new or gather otherwise than before."""
        self._scalings.extend(graph.num_nodes - len(self._scalings))
        degrees = (graph.strengths(nodes) if graph.weighted else graph.degrees(nodes)).numpy()
        degrees = degrees + int(self.self_loops)
        there = degrees > 0
        # In float64 and by a root, which is rounded correctly: a power need not be.
        scalings = np.where(there, 1 / np.sqrt(np.where(there, degrees, 1)), 0.0)
        self._scalings.array[nodes.numpy()] = scalings

    def rows(self, graph: GrowingGraph, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows of Â as CSR.  -> int32 [nodes + 1], int32 [entries], float32 [entries]"""
        indptr, indices = self._entries(graph, nodes)
        scalings = self._scalings.tensor
        left = repeat(scalings[nodes], indptr.diff())
        if graph.weighted:
            left = left * self._weights(graph, nodes, indptr)
        return indptr, indices, left * scalings[indices]

    def _weights(self, graph: GrowingGraph, nodes: Tensor, indptr: Tensor) -> Tensor:
        """Return the entries of some rows of A + sI.  indptr: of these rows; -> [entries]"""
        weights = torch.from_numpy(graph.weights(nodes))
        return with_last(indptr, weights, torch.ones(len(nodes))) if self.self_loops else weights

    def product(self, graph: GrowingGraph, nodes: Tensor, values: Tensor) -> Tensor:
        """Return some rows of Â V.  values: float32 [graph's positions, dims] -> [nodes, dims]"""
        entries = graph.num_edges + (graph.num_nodes if self.self_loops else 0)
        if choose_kernel(entries=entries) != "numba":
            return ordered_product(*self.rows(graph, nodes), values)
        indptr, indices = self._entries(graph, nodes)
        scalings = self._scalings.tensor
        weights = self._weights(graph, nodes, indptr) if graph.weighted else None
        left = scalings[nodes]
        rows = Smoother(indptr, indices, left, scalings, False, kernel="numba", weights=weights)
        return rows.product(values)

    def _entries(self, graph: GrowingGraph, nodes: Tensor) -> tuple[Tensor, Tensor]:
        starts, columns = graph.rows(nodes)
        indptr, indices = torch.from_numpy(starts.astype(np.int32)), torch.from_numpy(columns)
        if not self.self_loops:
            return indptr, indices
        return with_self_loops(indptr, indices, nodes.int())

    def state(self) -> dict[str, Tensor]:
        """Return what is kept."""
        return {"scalings": self._scalings.state()}

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield the arrays that are as long as the graph."""
        yield self._scalings

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self._scalings.restore(state["scalings"])
