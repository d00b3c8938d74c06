"""The normalised adjacency Â of a growing graph."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from evergraph.graphs.kernels.products import listed_product
from evergraph.graphs.kernels.scaled_rows import room
from evergraph.graphs.propagation import ordered_product
from evergraph.online.arrays import Array, GrowingArray, KeptArrays
from evergraph.online.graph.growing_graph import GrowingGraph


class LiveSmoother(KeptArrays):
    """Â = D^-1/2 (A + sI) D^-1/2 of a growing graph, multiplied some rows at a time.

    A holds the weights of edges, D the sums of the rows of A + sI.

    A row is summed in the order of its neighbours' positions, so that its bits depend neither on
    the storage of the graph nor on the rows it is computed with. For the same reason the choice of
    the kernel depends on the size of the whole graph only.  self_loops: whether s is 1, else 0

    >>> pair, smoother = GrowingGraph(num_features=1), LiveSmoother()
    >>> change = pair.add(torch.tensor([[1.], [3.]]), torch.tensor([[0], [1]]))
    >>> smoother.refresh(pair, change.new)
    >>> smoother.product(pair, torch.tensor([1]), pair.features)
    tensor([[2.0000]])
    """

    def __init__(self, *, self_loops: bool = True) -> None:
        self.self_loops = self_loops
        self._scalings = GrowingArray()  # the diagonal of D^-1/2
        self.kept = {"scalings": self._scalings}

    def refresh(self, graph: GrowingGraph, nodes: Tensor) -> None:
        """Update the scalings of nodes that are new or whose in-neighbours changed."""
        self._scalings.follow(graph.num_nodes)
        self._scalings.write(nodes, self._scalings_of(graph, nodes.numpy()))

    def _scalings_of(self, graph: GrowingGraph, nodes: Array) -> Tensor:
        """Return D^-1/2 of some nodes.  int64 [n] -> float32 [n]"""
        degrees = counts = graph.into.lengths(nodes)
        if graph.weighted:
            # One by one in the order of entries, so that bits do not depend on the other rows.
            owners = np.repeat(np.arange(len(nodes)), counts)
            degrees = np.bincount(owners, graph.into.weights(nodes), minlength=len(nodes))
        degrees = degrees + int(self.self_loops)
        # In float64 and by sqrt, which rounds correctly on every machine; a power need not.
        inverse = 1 / np.sqrt(np.where(degrees > 0, degrees, 1))
        return torch.from_numpy(np.where(degrees > 0, inverse, 0.0).astype(np.float32))

    @property
    def scalings(self) -> Array:
        """The diagonal of D^-1/2.  float32 [positions], a view until there are more"""
        return self._scalings.array

    def rows(self, graph: GrowingGraph, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows of Â as CSR.  -> int32 [nodes + 1], int32 [entries], float32 [entries]"""
        starts, columns = graph.rows(nodes)
        weights = graph.weights(nodes) if graph.weighted else None
        if self.self_loops:  # the last entry of its row
            columns = np.insert(columns, starts[1:], nodes.numpy())
            weights = None if weights is None else np.insert(weights, starts[1:], 1)
            starts = starts + np.arange(len(starts))
        values = np.repeat(self._scalings.array[nodes.numpy()], np.diff(starts))
        if weights is not None:
            values = values * weights
        values = values * self._scalings.array[columns]
        starts = starts.astype(np.int32)
        return torch.from_numpy(starts), torch.from_numpy(columns), torch.from_numpy(values)

    def product(self, graph: GrowingGraph, nodes: Tensor, values: Tensor) -> Tensor:
        """Return some rows of Â V.  [positions, d] -> [nodes, d]"""
        if not len(nodes):
            return values[:0]
        if graph.compiled:
            from evergraph.graphs.kernels.numba_sum import ListedRows

            lists, positions = graph.into.lying(), nodes.numpy()
            starts = lists.starts[positions]
            rows = ListedRows(
                starts,
                starts + lists.counts[positions],
                lists.pool,
                self._scalings.array[positions],
                self._scalings.array,
                positions if self.self_loops else positions[:0],
                len(lists.pool) - 1,
                () if lists.weights is None else lists.weights,
            )
            out = room(len(nodes), like=values)
            listed_product(rows, values, out)
            return out
        return ordered_product(*self.rows(graph, nodes), values)
