"""Edges as two columns of ids, whose pairs are made only for those who ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from evergraph.online.delta import Delta, NodeId

if TYPE_CHECKING:
    import pyarrow

CHUNK = 4096
D = TypeVar("D", bound=Delta)
Column: TypeAlias = "Sequence[NodeId] | NDArray[np.int64] | pyarrow.Array"
"""Ids: a sequence of them, int64 [n], or an Arrow array of strings without gaps."""


def listed(column: Column) -> list[NodeId]:
    """Return the ids of a column as a list, itself where it is one.

    >>> listed(np.array([3, 5]))
    [3, 5]
    """
    if isinstance(column, list):
        return column
    if hasattr(column, "to_pylist"):
        return cast("list[NodeId]", column.to_pylist())
    return cast("list[NodeId]", column.tolist()) if hasattr(column, "tolist") else list(column)


def chunks(column: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield a column in parts so small that what is looked at twice is still in the cache."""
    return (column[start : start + CHUNK] for start in range(0, len(column), CHUNK))


def as_numbers(column: Column) -> NDArray[np.int64] | None:
    """Return ids that are all whole numbers of 64 bits as an array, None where some are not.

    >>> as_numbers([3, 5]), as_numbers([3, True])
    (array([3, 5]), None)
    """
    if isinstance(column, np.ndarray):
        return column if column.dtype == np.int64 else None
    if not len(column) or type(column[0]) is not int:
        return None
    found = np.empty(len(column), dtype=np.int64)
    try:
        for place, part in enumerate(chunks(column)):
            if set(map(type, part)) != {int}:
                return None
            found[place * CHUNK :][: len(part)] = np.array(part, dtype=np.int64)
    except OverflowError:
        return None
    return found


@dataclass(frozen=True, eq=False, repr=False)
class EdgeColumns(Sequence[tuple[NodeId, NodeId]]):
    """Edges that are read as a sequence of pairs and kept as two columns.

    Attributes:
        sources: ids of the nodes that edges begin at.
        targets: ids of those that they end at, as many.

    >>> edges = EdgeColumns(["a", "b"], ["b", "c"])
    >>> edges[1], list(edges), edges == [("a", "b"), ("b", "c")]
    (('b', 'c'), [('a', 'b'), ('b', 'c')], True)
    """

    sources: Column
    targets: Column

    def __len__(self) -> int:
        return len(self.sources)

    def __iter__(self) -> Iterator[tuple[NodeId, NodeId]]:
        return zip(listed(self.sources), listed(self.targets), strict=True)

    @overload
    def __getitem__(self, place: int) -> tuple[NodeId, NodeId]: ...

    @overload
    def __getitem__(self, place: slice) -> EdgeColumns: ...

    def __getitem__(self, place: int | slice) -> tuple[NodeId, NodeId] | EdgeColumns:
        if isinstance(place, slice):
            return EdgeColumns(self.sources[place], self.targets[place])
        return _plain(self.sources[place]), _plain(self.targets[place])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"EdgeColumns({len(self)} edges)"

    def take(self, rows: NDArray[np.int64]) -> EdgeColumns:
        """Return some of the edges, by their places.

        >>> EdgeColumns(["a", "b"], ["b", "c"]).take(np.array([1]))[0]
        ('b', 'c')
        """
        return EdgeColumns(_taken(self.sources, rows), _taken(self.targets, rows))

    @property
    def sides(self) -> tuple[Column, Column]:
        """Sources and targets."""
        return self.sources, self.targets


NO_EDGES = EdgeColumns((), ())


def _taken(column: Column, rows: NDArray[np.int64]) -> Column:
    if isinstance(column, np.ndarray):
        return column[rows]
    return list(map(listed(column).__getitem__, rows.tolist()))


def _plain(value: Any) -> NodeId:
    """Return an id as Python has it, out of an element of an array."""
    if hasattr(value, "as_py"):
        return cast("NodeId", value.as_py())
    return cast("NodeId", value.item()) if isinstance(value, np.generic) else cast("NodeId", value)


def edge_columns(edges: Sequence[tuple[NodeId, NodeId]]) -> EdgeColumns | None:
    """Return edges as columns; None where some of them are no pairs.

    >>> edge_columns([("a", "b"), ("b", "c")]).targets, edge_columns([("a", "b", "c")])
    (['b', 'c'], None)
    """
    if isinstance(edges, EdgeColumns):
        return edges
    if not len(edges):
        return NO_EDGES
    try:
        if set(map(len, edges)) - {2}:
            return None
    except TypeError:
        return None
    ends = list(chain.from_iterable(edges))
    numbers = as_numbers(ends)
    both = ends if numbers is None else numbers
    return EdgeColumns(both[::2], both[1::2])


def in_columns(delta: D) -> D:
    """Return a delta whose edges are columns where they can be: then nobody makes them again.

    >>> in_columns(Delta(edges=(("a", "b"),))).edges
    EdgeColumns(1 edges)
    """
    edges, removed = edge_columns(delta.edges), edge_columns(delta.removed_edges)
    if edges is delta.edges and removed is delta.removed_edges:
        return delta
    return replace(
        delta,
        edges=delta.edges if edges is None else edges,
        removed_edges=delta.removed_edges if removed is None else removed,
    )
