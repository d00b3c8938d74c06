"""The normalised adjacency of a growing graph, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from evergraph.online.graph.frozen_graph import FrozenGraph
from evergraph.online.graph.growing_array import FormerRows, FrozenRows, GrowingArray
from evergraph.online.graph.growing_graph import GrowingGraph

Array = npt.NDArray[Any]
SCHEMES: tuple[Normalisation, ...] = ("symmetric", "row", "none")


class LiveSmoother:
    """Â = L (A + sI) R of a growing graph, multiplied some rows at a time.

    A holds the weights of edges, D the sums of the rows of A + sI. symmetric: L and R are D^-1/2;
    row: L is D^-1 and R is I, a mean; none: both are I, a sum.

    A row is summed in the order of its neighbours' positions, so that its bits depend neither on
    the storage of the graph nor on the rows it is computed with. For the same reason the choice of
    the kernel depends on the size of the whole graph only.

    Args:
        self_loops: whether s is 1, else 0.
        scheme: symmetric, row or none.

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
        self._scalings = GrowingArray()  # the diagonal of L
        self._ones = GrowingArray()  # the diagonal of R if it is not L; else empty
        # Nodes of the last refresh, and their scalings before it.
        self._refreshed = (np.empty(0, np.int64), np.empty(0, np.float32))
        self._former = FormerRows()  # of the scalings

    def refresh(self, graph: GrowingGraph, nodes: Tensor) -> None:
        """Update the scalings of nodes that are new or whose in-neighbours changed."""
        self._scalings.extend(graph.num_nodes - len(self._scalings))
        if self.scheme != "symmetric":
            self._ones.extend(graph.num_nodes - len(self._ones))
            self._ones.array[nodes.numpy()] = 1
        nodes = nodes.sort().values
        before = self._scalings.array[nodes.numpy()]
        self._former.note(nodes.numpy(), before)
        degrees = (graph.strengths(nodes) if graph.weighted else graph.degrees(nodes)).numpy()
        self._scalings.array[nodes.numpy()] = self._scaled(degrees + int(self.self_loops))
        self._refreshed = nodes.numpy(), before

    def _scaled(self, degrees: Array) -> Array:
        there = degrees > 0
        if self.scheme == "none":
            return np.ones(len(degrees))
        # In float64 and by sqrt, which rounds correctly on every machine; a power need not.
        some = np.where(there, degrees, 1)
        inverse = 1 / (np.sqrt(some) if self.scheme == "symmetric" else some)
        return np.where(there, inverse, 0.0)

    @property
    def scalings(self) -> Array:
        """The diagonal of L.  float32 [positions], a view until there are more"""
        return self._scalings.array

    def left(self, nodes: Array) -> tuple[Array, Array]:
        """Return the factors of rows now and before the last refresh.

        int64 [n], ascending -> 2 x float64 [n]
        """
        now = self._scalings.array[nodes].astype(np.float64)
        before = now.copy()
        known, were = self._refreshed
        if len(known):
            where = np.minimum(np.searchsorted(known, nodes), len(known) - 1)
            found = known[where] == nodes
            before[found] = were[where[found]]
        return now, before

    def right(self, nodes: Array) -> tuple[Array, Array]:
        """Return the factors of columns now and before the last refresh, like ``left``."""
        if self.scheme == "symmetric":
            return self.left(nodes)
        return np.ones(len(nodes)), np.ones(len(nodes))

    @property
    def _rights(self) -> GrowingArray:
        return self._scalings if self.scheme == "symmetric" else self._ones

    def rows(self, graph: GrowingGraph, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows of Â as CSR.  -> int32 [nodes + 1], int32 [entries], float32 [entries]"""
        left, right = self._scalings.tensor, self._rights.tensor
        return _rows(
            graph, nodes, lambda of: left[of], lambda of: right[of], self_loops=self.self_loops
        )

    def frozen(self) -> FrozenSmoother:
        """Return the current Â, readable while it changes."""
        scalings = FrozenRows(self._scalings, self._former.now, len(self._scalings))
        return FrozenSmoother(scalings, self.self_loops, self.scheme == "symmetric")

    def product(
        self, graph: GrowingGraph, nodes: Tensor, values: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """Return some rows of Â V, in ``out`` if it is given.

        values: float32 [graph's positions, dims] -> [nodes, dims]
        """
        if len(nodes) and graph.compiled:
            out = room(len(nodes), like=values) if out is None else out
            self._compiled_product(graph, nodes.numpy(), values, out)
            return out
        found = ordered_product(*self.rows(graph, nodes), values) if len(nodes) else values[:0]
        return found if out is None else out.copy_(found)

    def _compiled_product(
        self, graph: GrowingGraph, nodes: Array, values: Tensor, out: Tensor
    ) -> None:
        from evergraph.graphs.kernels.numba_sum import ListedRows

        lists = graph.gathering
        starts = lists.starts[nodes]
        rows = ListedRows(
            starts,
            starts + lists.counts[nodes],
            lists.pool,
            self._scalings.array[nodes],
            self._rights.array,
            nodes if self.self_loops else nodes[:0],
            -1,
            () if lists.weights is None else lists.weights,
        )
        listed_product(rows, values, out)

    def state(self) -> dict[str, Tensor]:
        """Return the scalings."""
        return {"scalings": self._scalings.state()}

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield the arrays that are as long as the graph."""
        yield self._scalings

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self._scalings.restore(state["scalings"])
        if self.scheme != "symmetric":
            self._ones.restore(torch.ones(len(self._scalings)))


@dataclass(frozen=True, eq=False)
class FrozenSmoother:
    """Rows of Â at one moment; see ``LiveSmoother``.

    Attributes:
        scalings: the diagonal of L.
        self_loops: whether s is 1, else 0.
        symmetric: whether R is L, else I.
    """

    scalings: FrozenRows
    self_loops: bool
    symmetric: bool

    def rows(self, graph: FrozenGraph, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows of Â as CSR.  -> int32 [nodes + 1], int32 [entries], float32 [entries]"""
        right = self._left if self.symmetric else lambda of: torch.ones(len(of))
        return _rows(graph, nodes, self._left, right, self_loops=self.self_loops)

    def _left(self, nodes: Tensor) -> Tensor:
        return torch.from_numpy(self.scalings.of(nodes.numpy()))


def _rows(
    graph: GrowingGraph | FrozenGraph,
    nodes: Tensor,
    left: Callable[[Tensor], Tensor],
    right: Callable[[Tensor], Tensor],
    *,
    self_loops: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows of L (A + sI) R; left, right: diagonals of L and R at some positions."""
    starts, columns = graph.rows(nodes)
    weights = graph.weights(nodes) if graph.weighted else None
    if self_loops:  # the last entry of its row
        columns = np.insert(columns, starts[1:], nodes.numpy())
        weights = None if weights is None else np.insert(weights, starts[1:], 1)
        starts = starts + np.arange(len(starts))
    indices = torch.from_numpy(columns)
    values = torch.from_numpy(np.repeat(left(nodes).numpy(), np.diff(starts)))
    if weights is not None:
        values = values * torch.from_numpy(weights)
    return torch.from_numpy(starts.astype(np.int32)), indices, values * right(indices)
