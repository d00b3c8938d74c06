"""A change of a growing graph (``Delta``), and its result (``DeltaResult``).

Edges of a delta look like pairs, but are stored as two columns (``EdgeColumns``), so that millions
of them are read, checked and written without a Python step for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.closed_form.own_features import NO_WORDS, WordColumns
from evergraph.core.component import ShownRecord
from evergraph.core.errors import InvalidRowsError
from evergraph.core.targets import Label as Label
from evergraph.core.targets import NodeTarget as NodeTarget

if TYPE_CHECKING:
    import pyarrow

    from evergraph.tables.scheme import Scheme

NodeId = str | int
Column: TypeAlias = "Sequence[NodeId] | NDArray[np.int64] | pyarrow.Array"
"""Ids: a sequence of them, int64 [n], or an Arrow array of strings without gaps."""
CHUNK = 4096  # ids processed at a time, so that a second pass finds them in the cache


@dataclass(frozen=True, eq=False)
class Delta:
    """A change of the graph: new nodes and edges, removed edges, new features of known nodes, late
    labels, and nodes to forget, applied in this order.

    It is applied entirely or not at all. Ids are the user's own.

    Attributes:
        nodes: ids of new nodes.
        features: of the new nodes, dense or sparse; a wide sparse array is kept as words, see
            ``sparse_rows``.  float32 [nodes, dims]
        labels: of the new nodes, None if not known (yet): a class; a list for a learner of several
            labels per node; a number for a learner of numbers.
        edges: pairs of ids, known or new in this delta.
        weights: one per edge, or empty: then new edges weigh 1 and known ones keep their weight.
            The last weight of a repeated edge counts; an edge of weight 0 is removed.
        removed_edges: pairs of ids whose edges are removed.
        updated: ids of known nodes whose features change.
        updated_features: their new features.  float32 [updated, dims]
        late: ids of known nodes with their labels.
        forgotten: ids of nodes to remove, with their edges and their influence.
        relations: one per edge, or empty. Two nodes may be joined by several relations. A learner
            has relations from its first nodes on, or none: if edges come later, the first nodes
            must have types, possibly None.
        types: one per new node, None if unknown; or empty.
        refit: whether landmarks, penalties and mixture are then chosen anew and everything is
            learned again, so that the learner is that of one who was given all of it at once.
        words: which of the last columns of features, and of new ones, are words as
            ``packed_words`` has them; it counts for a learner's first nodes, and then for all.
        key: identifies the delta; a delta with a known key is not applied again.
        scheme: by which columns of a table were read as features; None for plain numbers. That of
            a learner's first nodes is kept in its folder, and later ones must equal it.

    >>> Delta(nodes=("a", "b"), features=torch.eye(2), labels=("x", None), edges=(("a", "b"),))
    Delta(2 nodes, 1 edges)
    """

    nodes: Sequence[NodeId] = ()
    features: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    labels: Sequence[NodeTarget | None] = ()
    edges: Sequence[tuple[NodeId, NodeId]] = ()
    late: Sequence[tuple[NodeId, NodeTarget]] = ()
    forgotten: Sequence[NodeId] = ()
    key: str | None = None
    weights: Sequence[float] = ()
    removed_edges: Sequence[tuple[NodeId, NodeId]] = ()
    updated: Sequence[NodeId] = ()
    updated_features: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    relations: Sequence[str] = ()
    types: Sequence[str | None] = ()
    refit: bool = False
    words: WordColumns = NO_WORDS
    scheme: Scheme | None = None

    def __post_init__(self) -> None:
        for name in ("features", "updated_features"):
            if not isinstance(rows := getattr(self, name), Tensor):
                raise InvalidRowsError(
                    f"{name} of a delta must be a tensor, dense or sparse, not "
                    f"{type(rows).__name__}: a classifier reads other arrays"
                )
        for name in ("edges", "removed_edges"):
            columns = edge_columns(edges := getattr(self, name))
            object.__setattr__(self, name, edges if columns is None else columns)

    @property
    def is_sparse(self) -> bool:
        """Whether features are a sparse array, as they were given."""
        both = (self.features, self.updated_features)
        return any(rows.layout != torch.strided for rows in both)

    @property
    def size(self) -> int:
        """How many nodes, edges and late labels it names."""
        return sum(len(getattr(self, name)) for name in PARTS)

    def __repr__(self) -> str:
        counts = {name: len(getattr(self, name)) for name in PARTS}
        facts = [f"{count} {PARTS[name]}" for name, count in counts.items() if count]
        facts += ["refit"] * self.refit
        return f"Delta({', '.join(facts)})"


PARTS = {
    "nodes": "nodes",
    "edges": "edges",
    "removed_edges": "removed edges",
    "updated": "updated",
    "late": "late labels",
    "forgotten": "forgotten",
}
"""Parts of a delta that change something, and what they are called."""


def is_empty(delta: Delta) -> bool:
    """Whether a delta changes nothing."""
    return not delta.refit and not delta.size


@dataclass(frozen=True)
class DeltaResult(ShownRecord):
    """The result of a delta, in numbers that JSON can hold; it is stored with the delta's key.

    Attributes:
        seq: number of deltas applied, including this one.
        new_nodes: number of nodes added.
        classes: number of known classes.
        recomputed: number of embeddings computed, including those of new nodes.
        predicted: number of nodes predicted before their label was learned.
        right: number of correct predictions among these; several labels must all be correct, and
            numbers are not counted.
        counted: number of labelled nodes learned, or learned again because they have moved.

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


def listed(column: Column) -> list[NodeId]:
    """Return the ids of a column as a list, without a copy if it is one."""
    if isinstance(column, list):
        return column
    if hasattr(column, "to_pylist"):
        return cast("list[NodeId]", column.to_pylist())
    return cast("list[NodeId]", column.tolist()) if hasattr(column, "tolist") else list(column)


def column_of_ids(values: pyarrow.Array) -> Column:
    """Return ids of Arrow as a column: texts as they are, whole numbers in an array of NumPy."""
    return values if values.type in ("string", "large_string") else values.to_numpy()


def chunks(column: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield a column in parts that are small enough for the processor's cache."""
    return (column[start : start + CHUNK] for start in range(0, len(column), CHUNK))


def as_numbers(column: Column) -> NDArray[np.int64] | None:
    """Return ids as an array if all are whole numbers of 64 bits (True is none), else None."""
    if isinstance(column, np.ndarray):
        return column if column.dtype == np.int64 else None
    if not len(column) or type(column[0]) is not int:
        return None
    numbers = np.empty(len(column), dtype=np.int64)
    try:
        for chunk, part in enumerate(chunks(column)):
            if set(map(type, part)) != {int}:
                return None
            numbers[chunk * CHUNK :][: len(part)] = np.array(part, dtype=np.int64)
    except OverflowError:
        return None
    return numbers


@dataclass(frozen=True, eq=False, repr=False)
class EdgeColumns(Sequence[tuple[NodeId, NodeId]]):
    """A sequence of pairs, stored as two columns.

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

    def __getitem__(self, index: Any) -> Any:  # a pair, or columns for a slice
        if isinstance(index, slice):
            return EdgeColumns(self.sources[index], self.targets[index])
        return _plain(self.sources[index]), _plain(self.targets[index])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"EdgeColumns({len(self)} edges)"

    def take(self, rows: NDArray[np.int64]) -> EdgeColumns:
        """Return some of the edges, by index."""
        positions = rows.tolist()
        sides: list[Column] = [
            side.take(rows) if hasattr(side, "take") else [*map(side.__getitem__, positions)]
            for side in self.sides
        ]
        return EdgeColumns(*sides)

    @property
    def sides(self) -> tuple[Column, Column]:
        """Sources and targets."""
        return self.sources, self.targets


def _plain(value: Any) -> NodeId:
    if hasattr(value, "as_py"):
        return cast("NodeId", value.as_py())
    return cast("NodeId", value.item()) if isinstance(value, np.generic) else cast("NodeId", value)


def edge_columns(edges: Sequence[tuple[NodeId, NodeId]]) -> EdgeColumns | None:
    """Return edges as columns; None if some of them are not pairs, for ``check_delta`` to refuse."""
    if isinstance(edges, EdgeColumns):
        return edges
    try:
        if set(map(len, edges)) - {2}:
            return None
    except TypeError:
        return None
    ends = list(chain.from_iterable(edges))
    numbers = as_numbers(ends)
    column = ends if numbers is None else numbers
    return EdgeColumns(column[::2], column[1::2])


def edge_numbers(edges: EdgeColumns) -> Tensor:
    """Return a number for each id, equal for equal ids.  -> int64 [2, edges]

    >>> edge_numbers(EdgeColumns(["a", 7], [7, "b"]))
    tensor([[0, 1],
            [1, 2]])
    """
    if all(isinstance(side, np.ndarray) for side in edges.sides):
        ids_as_numbers = np.unique(np.concatenate(edges.sides), return_inverse=True)[1]
        return torch.from_numpy(ids_as_numbers).reshape(2, -1)
    number: dict[NodeId, int] = {}
    ids = chain.from_iterable(map(listed, edges.sides))
    return torch.tensor([number.setdefault(node, len(number)) for node in ids]).reshape(2, -1)
