"""The contents of tables of nodes and edges, split into deltas in the order of their rows."""

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

EDGES = 10_000  # in a delta that holds nothing else
KnowsNodes = Callable[[Sequence[NodeId]], Sequence[bool]]
GoneEdges = Callable[[tuple["pyarrow.Array", "pyarrow.Array"], Sequence[NodeId]], EdgesBeyond]
KnowsEdges = Callable[["pyarrow.Array", "pyarrow.Array"], npt.NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class TableDeltas:
    """Deltas of some nodes each, every node with its edges to earlier nodes."""

    nodes: pyarrow.Array  # ids of nodes; those without features must be known.  [nodes]
    labels: pyarrow.Array  # text or int64, or lists of text or numbers; null for none.  [nodes]
    features: Tensor | None  # float32 [nodes, dims], or None if the table has none
    edges: tuple[pyarrow.Array, pyarrow.Array]  # ids of sources and of targets
    forgotten: Sequence[NodeId] = ()  # ids of nodes to forget, last of all
    batch: int = 100  # nodes per delta
    ignored: tuple[str, ...] = ()  # columns of the tables that are not used
    # of each table, for messages: its path, and which of its rows were kept
    places: Mapping[str, tuple[Source | None, npt.NDArray[Any]]] = field(default_factory=dict)
    weights: Tensor | None = None  # of these edges, None if the table has none.  float32 [edges]
    # ids of sources and targets of edges to remove, after everything else was added
    removed: tuple[Column, Column] | tuple[()] = ()
    # which of the nodes are known and get these features; None for none.  bool [nodes]
    updates: npt.NDArray[np.bool_] | None = None
    scheme: Scheme | None = None  # how the columns of nodes were read; None for plain numbers
    # of the edges; None if the table has none.  [edges]
    relations: npt.NDArray[np.object_] | None = None
    # of the nodes; None if the table has none.  [nodes]
    types: npt.NDArray[np.object_] | None = None

    def __post_init__(self) -> None:
        check_integer("batch", self.batch, least=1)

    def without_relations(self) -> TableDeltas:
        """Return the deltas for a learner that does not use relations and types, with a notice."""
        unused = ("edges", RELATION, self.relations), ("nodes", TYPE, self.types)
        for table, name, values in unused:
            path = self.places[table][0]
            why = "this learner does not use it"
            say_ignored(path, "column", [] if values is None else [name], why)
        return replace(self, relations=None, types=None)

    def __len__(self) -> int:
        return self._growing + -(-self._going // EDGES) + -(-len(self.forgotten) // self.batch)

    @property
    def _going(self) -> int:
        """How many edges are to be removed."""
        return len(self.removed[0]) if self.removed else 0

    @property
    def _growing(self) -> int:
        """How many deltas add something."""
        if len(self.nodes):
            return -(-len(self.nodes) // self.batch)
        return -(-len(self.edges[0]) // EDGES)

    @property
    def kind(self) -> Kind:
        """Kind of the targets: classes, several labels, or numbers."""
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
            late = zip(nodes, labels, strict=True)
            return replace(delta, late=tuple(pair for pair in late if pair[1] is not None))
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
        """Return the types of some nodes; all None if only edges show that there are relations."""
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
        """Return a delta with nodes, some of which are known and get new features."""
        old, new = np.flatnonzero(updates).tolist(), np.flatnonzero(~updates).tolist()
        late = ((nodes[row], label) for row in old if (label := labels[row]) is not None)
        return replace(
            delta,
            nodes=tuple(nodes[row] for row in new),
            features=features[new] if new else torch.zeros(0, 0),
            labels=tuple(labels[row] for row in new),
            updated=tuple(nodes[row] for row in old),
            updated_features=features[old],
            late=tuple(late),
        )

    def _edges_by_delta(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return edges in the order in which they can be added, and where each delta's edges end.

        An edge is added with the later of its nodes; ids that are not in the table are assumed to
        be known.
        """
        import pyarrow.compute as pc

        count = len(self.edges[0])
        if not len(self.nodes) or not count:
            return np.arange(count), np.minimum(np.arange(self._growing + 1) * EDGES, count)
        rows = [
            pc.fill_null(pc.index_in(side, value_set=self.nodes), -1).to_numpy(zero_copy_only=False)
            for side in self.edges
        ]
        number = np.maximum(np.maximum(*rows), 0) // self.batch
        order = np.argsort(number, kind="stable")
        return order, np.searchsorted(number[order], np.arange(self._growing + 1))

    def check_known(self, knows: KnowsNodes) -> None:
        """Raise unless every edge joins nodes of the table or known ones; to be called first.

        knows: such as ``OnlineLearner.knows_nodes``.
        """
        new = [] if self.features is None else self._arriving()
        if self.features is None:
            self._check("nodes", "id", self.nodes, knows, new, "known, since it has no features")
        for name, side in zip(ENDS, self.edges, strict=True):
            self._check("edges", name, side, knows, new, "in the table of nodes or known")

    def without_unknown_edges(self, knows: KnowsNodes) -> tuple[TableDeltas, int]:
        """Return the deltas without edges to unknown nodes, and the number of these edges.

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
        """Return deltas after which the learner has exactly the nodes of the table.

        Nodes that stay get the features of the table.

        known: all nodes of the learner; emptying: whether all of them may be forgotten.
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
        """Return deltas after which the learner has exactly the edges of the table.

        gone: such as ``OnlineLearner.edges_beyond``, for edges between nodes that stay.
        """
        found = gone(self.edges, self.forgotten)
        if not emptying:
            _refuse_emptying(self.places["edges"][0], "edge", len(found.sources), found.known)
        return replace(self, removed=(found.sources, found.targets))

    def _arriving(self) -> list[NodeId]:
        """Return the nodes that are added rather than updated."""
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
            first = int(wrong.argmax())
            path, rows = self.places[table]
            raise UnknownNodeError(
                f"{path}: row {int(rows[first]) + 1} has {values[first].as_py()!r} in column "
                f"{name!r}: expected the id of a node that is {rule}"
            )

    def _strange(self, values: pyarrow.Array, knows: KnowsNodes, new: list[NodeId]) -> list[NodeId]:
        """Return the ids of no node; nodes to be forgotten count as unknown."""
        there, gone = frozenset(new), frozenset(self.forgotten)
        others = [value for value in values.unique().to_pylist() if value not in there]
        known = zip(others, knows(others), strict=True)
        return [value for value, is_known in known if not is_known or value in gone]

    def without_known_edges(self, knows: KnowsEdges) -> tuple[TableDeltas, int]:
        """Return the deltas without known edges, and the number of these.

        knows: such as ``OnlineLearner.knows_edges``, which compares all of them at once. Edges with
        weights or relations, which may differ, are compared delta by delta instead.
        """
        if self.weights is not None or self.relations is not None:
            return self, 0
        known = knows(*self.edges)
        return self._with_edges(~known), int(known.sum())


def _refuse_emptying(path: object, what: str, gone: int, known: int) -> None:
    if known and gone == known:
        raise DataError(
            f"{path}: has none of the {known:,} known {what}s, so all of them would be removed: "
            "give --allow-emptying if that is intended"
        )


def among(values: pyarrow.Array, gone: Sequence[NodeId]) -> npt.NDArray[np.bool_]:
    """Return which ids are among others of possibly mixed types.  [n] -> bool [n]"""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = int if pa.types.is_integer(values.type) else str
    alike = pa.array([value for value in gone if type(value) is kind], values.type)
    found: npt.NDArray[np.bool_] = pc.is_in(values, value_set=alike).to_numpy(zero_copy_only=False)
    return found
