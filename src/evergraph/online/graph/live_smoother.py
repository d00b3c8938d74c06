"""The normalised adjacency Â of a growing graph: rows of Â V."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.checks import check_choice
from evergraph.graphs.kernels.products import listed_product
from evergraph.graphs.kernels.scaled_rows import room
from evergraph.graphs.normalisation import Normalisation
from evergraph.graphs.propagation import ordered_product
from evergraph.online.graph.growing_array import GrowingArray, KeptArrays
from evergraph.online.graph.growing_graph import GrowingGraph

Array = npt.NDArray[Any]
SCHEMES: tuple[Normalisation, ...] = ("symmetric", "row")
ROUNDING = 2.0**-24  # largest relative error of rounding to float32
# Relative to a row's largest value; above it a row is recomputed. Errors that all have the same
# sign need 64 corrections to reach it.
DRIFT = 64 * ROUNDING


class LiveSmoother(KeptArrays):
    """Â = L (A + sI) R of a growing graph, multiplied some rows at a time.

    A holds the weights of edges, D the sums of the rows of A + sI. symmetric: L and R are D^-1/2;
    row: L is D^-1 and R is I, a mean.

    A row is summed in the order of its neighbours' positions, so that its bits depend neither on
    the storage of the graph nor on the rows it is computed with. For the same reason the choice of
    the kernel depends on the size of the whole graph only.  self_loops: whether s is 1, else 0

    >>> pair, smoother = GrowingGraph(num_features=1), LiveSmoother()
    >>> change = pair.add(torch.tensor([[1.], [3.]]), torch.tensor([[0], [1]]))
    >>> smoother.refresh(pair, change.new)
    >>> smoother.product(pair, torch.tensor([1]), pair.features)
    tensor([[2.0000]])
    """

    def __init__(self, *, self_loops: bool = True, scheme: Normalisation = "symmetric") -> None:
        check_choice("scheme", scheme, SCHEMES)
        self.self_loops = self_loops
        self.scheme = scheme
        self._left = GrowingArray()  # the diagonal of L
        self._right = self._left if scheme == "symmetric" else GrowingArray()  # that of R
        self.kept = {"scalings": self._left}
        # Nodes of the last refresh, and their scalings before it.
        self._refreshed = (np.empty(0, np.int64), np.empty(0, np.float32))

    def refresh(self, graph: GrowingGraph, nodes: Tensor) -> None:
        """Update the scalings of nodes that are new or whose in-neighbours changed."""
        for diagonal in {self._left, self._right}:
            diagonal.extend(graph.num_nodes - len(diagonal))
        if self.scheme != "symmetric":
            self._right.array[nodes.numpy()] = 1
        nodes = nodes.sort().values
        former = self._left.write(nodes, self._factors(graph, nodes.numpy()))
        self._refreshed = nodes.numpy(), former.numpy()

    def _factors(self, graph: GrowingGraph, nodes: Array) -> Tensor:
        """Return L of some nodes.  int64 [n] -> float32 [n]"""
        degrees = counts = graph.into.lengths(nodes)
        if graph.weighted:
            # One by one in the order of entries, so that bits do not depend on the other rows.
            owners = np.repeat(np.arange(len(nodes)), counts)
            degrees = np.bincount(owners, graph.into.weights(nodes), minlength=len(nodes))
        degrees = degrees + int(self.self_loops)
        # In float64 and by sqrt, which rounds correctly on every machine; a power need not.
        some = np.where(degrees > 0, degrees, 1)
        inverse = 1 / (np.sqrt(some) if self.scheme == "symmetric" else some)
        return torch.from_numpy(np.where(degrees > 0, inverse, 0.0).astype(np.float32))

    @property
    def scalings(self) -> Array:
        """The diagonal of L.  float32 [positions], a view until there are more"""
        return self._left.array

    @property
    def columns(self) -> Array:
        """The diagonal of R.  float32 [positions], a view until there are more"""
        return self._right.array

    @property
    def changed(self) -> tuple[Array, Array, Array]:
        """The diagonal of L, the nodes of the last refresh, ascending, and what theirs was."""
        return self._left.array, *self._refreshed

    def left(self, nodes: Array) -> tuple[Array, Array]:
        """Return the factors of ascending rows now and before the last refresh.  2 x float64 [n]"""
        now = self._left.array[nodes].astype(np.float64)
        before = now.copy()
        known, were = self._refreshed  # few
        where = index_in(nodes, known)
        before[where[where >= 0]] = were[where >= 0]
        return now, before

    def right(self, nodes: Array) -> tuple[Array, Array]:
        """Return the factors of columns now and before the last refresh, like ``left``."""
        if self.scheme == "symmetric":
            return self.left(nodes)
        return np.ones(len(nodes)), np.ones(len(nodes))

    def rows(self, graph: GrowingGraph, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows of Â as CSR.  -> int32 [nodes + 1], int32 [entries], float32 [entries]"""
        starts, columns = graph.rows(nodes)
        weights = graph.weights(nodes) if graph.weighted else None
        if self.self_loops:  # the last entry of its row
            columns = np.insert(columns, starts[1:], nodes.numpy())
            weights = None if weights is None else np.insert(weights, starts[1:], 1)
            starts = starts + np.arange(len(starts))
        values = np.repeat(self._left.array[nodes.numpy()], np.diff(starts))
        if weights is not None:
            values = values * weights
        if self.scheme == "symmetric":
            values = values * self._left.array[columns]
        starts = starts.astype(np.int32)
        return torch.from_numpy(starts), torch.from_numpy(columns), torch.from_numpy(values)

    def product(
        self, graph: GrowingGraph, nodes: Tensor, values: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """Return some rows of Â V, in ``out`` if it is given.  [positions, d] -> [nodes, d]"""
        if len(nodes) and graph.compiled:
            from evergraph.graphs.kernels.numba_sum import ListedRows

            lists, positions = graph.into.lying(), nodes.numpy()
            starts = lists.starts[positions]
            rows = ListedRows(
                starts,
                starts + lists.counts[positions],
                lists.pool,
                self._left.array[positions],
                self._right.array,
                positions if self.self_loops else positions[:0],
                len(lists.pool) - 1,
                () if lists.weights is None else lists.weights,
            )
            out = room(len(nodes), like=values) if out is None else out
            listed_product(rows, values, out)
            return out
        found = values[:0]
        if len(nodes):
            found = ordered_product(*self.rows(graph, nodes), values)
        return found if out is None else out.copy_(found)

    def restore(self, state: dict[str, Tensor]) -> None:
        super().restore(state)
        if self.scheme != "symmetric":
            self._right.restore(torch.ones(len(self._left)))


def index_in(known: Array, nodes: Array) -> Array:
    """Return the index of nodes among known ones, which ascend, -1 for others.  int64 [nodes]"""
    where = np.searchsorted(known, nodes)
    there = where < len(known)
    there[there] = known[where[there]] == nodes[there]
    where[~there] = -1
    return where
