"""What changes in a growing graph at once, and what a learner says that it did.

Edges of a delta are pairs to whoever looks at them, and two columns underneath (``EdgeColumns``):
millions of them are then read, checked and written without a step of Python for each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.display import ShownRecord
from evergraph.core.label_space import Kind

if TYPE_CHECKING:
    import pyarrow

NodeId = str | int
Label = str | int
Told = Label | Sequence[Label] | float
"""What a node is said to be: one class, several labels, or a number."""
Column: TypeAlias = "Sequence[NodeId] | NDArray[np.int64] | pyarrow.Array"
"""Ids: a sequence of them, int64 [n], or an Arrow array of strings without gaps."""
CHUNK = 4096  # ids that are looked at together: what is looked at twice is still in the cache


@dataclass(frozen=True, eq=False)
class Delta:
    """New nodes and edges, edges that go, features and labels that are others now, and nodes to be
    forgotten, in that order.

    It is applied whole or not at all. Ids are the user's own.

    Attributes:
        nodes: ids of new nodes.
        features: of the new nodes.  float32 [nodes, dims]
        labels: of the new nodes, None where the class is not known (yet). Where a learner has
            several labels a node, a list of them, and where it has numbers, a number.
        edges: pairs of ids, known or new with this delta.
        weights: one per edge, or none at all: new edges weigh 1 then, known ones what they did. An
            edge given twice has the last weight; one of weight 0 goes.
        removed_edges: pairs of ids whose edges go.
        updated: ids of known nodes that get other features.
        updated_features: of these.  float32 [updated, dims]
        late: ids of known nodes and the labels they turn out to have.
        forgotten: ids of nodes that go, with their edges and their influence.
        relations: what each edge stands for, one per edge or none at all. Two nodes may be joined
            by several relations. A learner has relations from its first nodes on, or none: these
            have types, known or None, where their edges come later.
        types: what kind of thing each new node is, one per node (None where it is not known) or
            none at all.
        key: names the delta; a delta whose key was applied before is not applied again.

    >>> Delta(nodes=("a", "b"), features=torch.eye(2), labels=("x", None), edges=(("a", "b"),))
    Delta(2 nodes, 1 edges)
    """

    nodes: Sequence[NodeId] = ()
    features: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    labels: Sequence[Told | None] = ()
    edges: Sequence[tuple[NodeId, NodeId]] = ()
    late: Sequence[tuple[NodeId, Told]] = ()
    forgotten: Sequence[NodeId] = ()
    key: str | None = None
    weights: Sequence[float] = ()
    removed_edges: Sequence[tuple[NodeId, NodeId]] = ()
    updated: Sequence[NodeId] = ()
    updated_features: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    relations: Sequence[str] = ()
    types: Sequence[str | None] = ()

    def __repr__(self) -> str:
        parts: list[tuple[str, Sequence[Any]]] = [("nodes", self.nodes), ("edges", self.edges)]
        parts += [("removed edges", self.removed_edges), ("updated", self.updated)]
        parts += [("late labels", self.late), ("forgotten", self.forgotten)]
        return f"Delta({', '.join(f'{len(part)} {name}' for name, part in parts if len(part))})"


def is_empty(delta: Delta) -> bool:
    """Whether a delta changes nothing."""
    parts = (delta.nodes, delta.edges, delta.removed_edges, delta.updated, delta.late)
    return not any(map(len, (*parts, delta.forgotten)))


@dataclass(frozen=True)
class DeltaResult(ShownRecord):
    """What became of a delta, in numbers that JSON can hold: it is kept beside the delta's key.

    Attributes:
        seq: how many deltas have been applied, this one included.
        new_nodes: how many nodes came with it.
        classes: how many classes are known now.
        recomputed: how many embeddings were computed anew, those of new nodes included.
        predicted: for how many nodes a class was predicted before their label was learned.
        right: how many of these predictions were right; of several labels all of a node's, and of
            numbers none is counted.
        counted: how many labelled nodes were counted, or counted again because they have moved.

    >>> DeltaResult(seq=1, new_nodes=2, classes=1, recomputed=2)
    DeltaResult(seq=1, new_nodes=2, classes=1, recomputed=2, predicted=0, right=0, counted=0)
    """

    seq: int
    new_nodes: int = 0
    classes: int = 0
    recomputed: int = 0
    predicted: int = 0
    right: int = 0
    counted: int = 0


def name_of(kind: Kind, value: Told) -> Label:
    """Return the name that stands for what a node is said to be; the order of labels is no matter.

    >>> name_of("labels", ["law", "art"]), name_of("numbers", 2), name_of("class", "art")
    ('["art", "law"]', '2.0', 'art')
    """
    if kind == "labels":
        assert isinstance(value, list | tuple)
        return json.dumps(sorted(set(value), key=lambda label: (str(label), str(type(label)))))
    return repr(float(value)) if kind == "numbers" else value  # type: ignore[arg-type, return-value]


def meant_by(kind: Kind, name: Label) -> Told:
    """Return what a name stands for.

    >>> meant_by("labels", '["art", "law"]'), meant_by("numbers", "2.0"), meant_by("class", 7)
    (('art', 'law'), 2.0, 7)
    """
    if kind == "labels":
        return tuple(json.loads(str(name)))
    return float(name) if kind == "numbers" else name


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


D = TypeVar("D", bound=Delta)


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
