"""What tables of nodes and edges bring, as deltas in the order of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.core.errors import DataError, UnknownNodeError
from evergraph.core.label_space import Kind
from evergraph.core.notices import say_ignored
from evergraph.online.delta import Column, Delta, Label, NodeId, listed
from evergraph.online.upsert import EdgesBeyond
from evergraph.tables.columns import RELATION, TYPE
from evergraph.tables.edges import ENDS
from evergraph.tables.scheme import Scheme
from evergraph.tables.sources import Source

if TYPE_CHECKING:
    import pyarrow

EDGES = 10_000  # in a delta that brings nothing else
KnowsNodes = Callable[[Sequence[NodeId]], Sequence[bool]]
GoneEdges = Callable[[tuple["pyarrow.Array", "pyarrow.Array"], Sequence[NodeId]], EdgesBeyond]
KnowsEdges = Callable[["pyarrow.Array", "pyarrow.Array"], npt.NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class TableDeltas:
    """Some nodes at a time, each with the edges that join it to nodes before it.

    Attributes:
        nodes: ids of nodes; those without features must be known.  [nodes]
        labels: text or int64, or lists of text or numbers, null where there is none.  [nodes]
        features: float32 [nodes, dims], or None where the table has none
        edges: the ids that edges join, both columns.
        weights: of these edges, None where the table has none.  float32 [edges]
        removed: the ids of edges that go, both columns, after all that comes.
        updates: which of the nodes are known and get these features; None: none.  bool [nodes]
        forgotten: ids of nodes to forget, after all else.
        batch: how many nodes a delta has.
        ignored: columns of the tables that are not used.
        places: of the tables, for messages: the path, and which of its rows were kept.
        scheme: how the columns of nodes were read; None where they are plain numbers.
        relations: what each edge stands for; None where the table has none.  [edges]
        types: what kind of thing each node is; None where the table has none.  [nodes]
    """

    nodes: pyarrow.Array
    labels: pyarrow.Array
    features: Tensor | None
    edges: tuple[pyarrow.Array, pyarrow.Array]
    forgotten: Sequence[NodeId] = ()
    batch: int = 100
    ignored: tuple[str, ...] = ()
    places: Mapping[str, tuple[Source | None, npt.NDArray[Any]]] = field(default_factory=dict)
    weights: Tensor | None = None
    removed: tuple[Column, Column] | tuple[()] = ()
    updates: npt.NDArray[np.bool_] | None = None
    scheme: Scheme | None = None
    relations: npt.NDArray[np.object_] | None = None
    types: npt.NDArray[np.object_] | None = None

    def __post_init__(self) -> None:
        check_integer("batch", self.batch, least=1)

    def without_relations(self) -> TableDeltas:
        """Return the deltas for a learner that does not look at relations and types; say so."""
        told = ("edges", RELATION, self.relations), ("nodes", TYPE, self.types)
        for table, name, values in told:
            path = self.places[table][0]
            why = "this learner does not look at it"
            say_ignored(path, "column", [] if values is None else [name], why)
        return replace(self, relations=None, types=None)

    def __len__(self) -> int:
        return self._growing + -(-self._going // EDGES) + -(-len(self.forgotten) // self.batch)

    @property
    def _going(self) -> int:
        """How many edges are to go."""
        return len(self.removed[0]) if self.removed else 0

    @property
    def _growing(self) -> int:
        """How many deltas bring something."""
        if len(self.nodes):
            return -(-len(self.nodes) // self.batch)
        return -(-len(self.edges[0]) // EDGES)

    @property
    def kind(self) -> Kind:
        """What nodes are said to be: classes, several labels, or numbers."""
        import pyarrow as pa

        if pa.types.is_list(self.labels.type):
            return "labels"
        return "numbers" if pa.types.is_floating(self.labels.type) else "class"

    def __iter__(self) -> Iterator[Delta]:
        order, ends = self._edges_by_delta()
        for number in range(self._growing):
            rows = slice(number * self.batch, (number + 1) * self.batch)
            yield self._delta(rows, order[ends[number] : ends[number + 1]])
        for start in range(0, self._going, EDGES):
            part = slice(start, start + EDGES)
            gone = (listed(side[part]) for side in self.removed)
            yield Delta(removed_edges=tuple(zip(*gone, strict=True)))
        for start in range(0, len(self.forgotten), self.batch):
            yield Delta(forgotten=tuple(self.forgotten[start : start + self.batch]))

    def _delta(self, rows: slice, edges: npt.NDArray[Any]) -> Delta:
        joined = [side.take(edges).to_pylist() for side in self.edges]
        nodes, labels = self.nodes[rows].to_pylist(), self.labels[rows].to_pylist()
        weights = () if self.weights is None else tuple(self.weights[edges].tolist())
        named = () if self.relations is None else tuple(self.relations[edges])
        delta = Delta(edges=tuple(zip(*joined, strict=True)), weights=weights, relations=named)
        if self.features is None:
            told = zip(nodes, labels, strict=True)
            return replace(delta, late=tuple(pair for pair in told if pair[1] is not None))
        types = self._types(rows)
        if self.updates is None or not self.updates[rows].any():
            return replace(
                delta,
                nodes=tuple(nodes),
                features=self.features[rows],
                labels=tuple(labels),
                types=types,
            )
        changes = self._with_updates(delta, nodes, labels, self.features[rows], self.updates[rows])
        kept = np.flatnonzero(~self.updates[rows]).tolist()
        return replace(changes, types=tuple(types[row] for row in kept) if types else ())

    def _types(self, rows: slice) -> tuple[str | None, ...]:
        """Return the types of some nodes; none known, where only edges tell that there are any."""
        if self.types is not None:
            return tuple(self.types[rows])
        return () if self.relations is None else (None,) * len(self.nodes[rows])

    @staticmethod
    def _with_updates(
        delta: Delta,
        nodes: list[NodeId],
        labels: list[Label | None],
        features: Tensor,
        updates: npt.NDArray[np.bool_],
    ) -> Delta:
        """Return a delta with nodes of which some are known and get other features."""
        old, new = np.flatnonzero(updates).tolist(), np.flatnonzero(~updates).tolist()
        told = ((nodes[row], label) for row in old if (label := labels[row]) is not None)
        return replace(
            delta,
            nodes=tuple(nodes[row] for row in new),
            features=features[new] if new else torch.zeros(0, 0),
            labels=tuple(labels[row] for row in new),
            updated=tuple(nodes[row] for row in old),
            updated_features=features[old],
            late=tuple(told),
        )

    def _edges_by_delta(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return edges in the order in which they can come, and where each delta's end.

        An edge comes with the later of its nodes; ids that are not in the table are taken to be
        known already.
        """
        import pyarrow.compute as pc

        count = len(self.edges[0])
        if not len(self.nodes) or not count:
            return np.arange(count), np.minimum(np.arange(self._growing + 1) * EDGES, count)
        places = [
            pc.fill_null(pc.index_in(side, value_set=self.nodes), -1).to_numpy(zero_copy_only=False)
            for side in self.edges
        ]
        number = np.maximum(np.maximum(*places), 0) // self.batch
        order = np.argsort(number, kind="stable")
        return order, np.searchsorted(number[order], np.arange(self._growing + 1))

    def check_known(self, knows: KnowsNodes) -> None:
        """Raise unless every edge joins nodes of the table or known ones, before any is taken in.

        knows: such as ``OnlineLearner.knows_nodes``.
        """
        new = [] if self.features is None else self._arriving()
        if self.features is None:
            self._check("nodes", "id", self.nodes, knows, new, "known, since it has no features")
        for name, side in zip(ENDS, self.edges, strict=True):
            self._check("edges", name, side, knows, new, "in the table of nodes or known")

    def without_unknown_edges(self, knows: KnowsNodes) -> tuple[TableDeltas, int]:
        """Return the deltas without edges to nodes that are not there, and how many these are.

        knows: as in ``check_known``.
        """
        new = [] if self.features is None else self._arriving()
        lost = [among(side, self._strange(side, knows, new)) for side in self.edges]
        there = ~(lost[0] | lost[1])
        return self._with_edges(there), int((~there).sum())

    def _with_edges(self, kept: npt.NDArray[np.bool_]) -> TableDeltas:
        """Return the deltas with some of the edges to add.  kept: bool [edges]"""
        import pyarrow as pa

        source, target = (side.filter(pa.array(kept)) for side in self.edges)
        path, rows = self.places["edges"]
        return replace(
            self,
            edges=(source, target),
            weights=None if self.weights is None else self.weights[torch.from_numpy(kept)],
            relations=None if self.relations is None else self.relations[kept],
            places={**self.places, "edges": (path, rows[kept])},
        )

    def without_others(self, known: Sequence[NodeId], *, emptying: bool = False) -> TableDeltas:
        """Return deltas after which there are the nodes of the table and no others.

        Of those that stay, features become those of the table.

        known: all nodes of the learner; emptying: whether that may be all of them.
        """
        path, there = self.places["nodes"][0], frozenset(self.nodes.to_pylist())
        gone = [node for node in known if node not in there]
        if not emptying:
            _refuse_emptying(path, "node", len(gone), len(known))
        updates = self.updates
        if self.features is not None:
            old = frozenset(known)
            updates = np.array([node in old for node in self.nodes.to_pylist()], dtype=bool)
        forgotten = tuple(dict.fromkeys((*self.forgotten, *gone)))
        return replace(self, forgotten=forgotten, updates=updates)

    def without_other_edges(self, gone: GoneEdges, *, emptying: bool = False) -> TableDeltas:
        """Return deltas after which there are the edges of the table and no others.

        gone: such as ``OnlineLearner.edges_beyond``, asked for those between nodes that stay.
        """
        found = gone(self.edges, self.forgotten)
        if not emptying:
            _refuse_emptying(self.places["edges"][0], "edge", len(found.sources), found.known)
        return replace(self, removed=(found.sources, found.targets))

    def _arriving(self) -> list[NodeId]:
        """Return the nodes that come, unless they are known."""
        ids: list[NodeId] = self.nodes.to_pylist()
        if self.updates is None:
            return ids
        return [node for node, known in zip(ids, self.updates, strict=True) if not known]

    def _check(
        self,
        table: str,
        name: str,
        values: pyarrow.Array,
        knows: KnowsNodes,
        new: list[NodeId],
        rule: str,
    ) -> None:
        wrong = among(values, self._strange(values, knows, new))
        if wrong.any():
            place = int(wrong.argmax())
            path, rows = self.places[table]
            raise UnknownNodeError(
                f"{path}: row {int(rows[place]) + 1} has {values[place].as_py()!r} in column "
                f"{name!r}: expected the id of a node that is {rule}"
            )

    def _strange(self, values: pyarrow.Array, knows: KnowsNodes, new: list[NodeId]) -> list[NodeId]:
        """Return which ids are those of no node; what is to be forgotten is none any more."""
        there, gone = frozenset(new), frozenset(self.forgotten)
        asked = [value for value in values.unique().to_pylist() if value not in there]
        known = zip(asked, knows(asked), strict=True)
        return [value for value, is_known in known if not is_known or value in gone]

    def without_known_edges(self, knows: KnowsEdges) -> tuple[TableDeltas, int]:
        """Return the deltas without edges that are known, and how many these are.

        knows: such as ``OnlineLearner.knows_edges``, which looks at all of them at once. Where
        edges have weights or relations, which may be others, each delta is looked at when its turn
        comes.
        """
        if self.weights is not None or self.relations is not None:
            return self, 0
        known = knows(*self.edges)
        return self._with_edges(~known), int(known.sum())


def _refuse_emptying(path: object, what: str, gone: int, known: int) -> None:
    if known and gone == known:
        raise DataError(
            f"{path}: has none of the {known:,} {what}s that are known, so all of them would go: "
            "give --allow-emptying if that is meant"
        )


def among(values: pyarrow.Array, gone: Sequence[NodeId]) -> npt.NDArray[np.bool_]:
    """Return which ids are among some that may be of another kind.  [n] -> bool [n]"""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = int if pa.types.is_integer(values.type) else str
    alike = pa.array([value for value in gone if type(value) is kind], values.type)
    found: npt.NDArray[np.bool_] = pc.is_in(values, value_set=alike).to_numpy(zero_copy_only=False)
    return found
