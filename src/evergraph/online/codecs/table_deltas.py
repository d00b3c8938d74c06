"""The contents of tables of nodes and edges, split into deltas in the order of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.core.errors import DataError, UnknownNodeError
from evergraph.core.notices import say_ignored
from evergraph.graphs.repeats import combined, say_repeated
from evergraph.online.delta import Column, Delta, EdgeColumns, NodeId, edge_numbers, listed
from evergraph.online.upsert import EdgesBeyond
from evergraph.online.words import word_columns
from evergraph.tables.arrow import pa, pc
from evergraph.tables.columns import RELATION, TYPE
from evergraph.tables.names import ENDS
from evergraph.tables.scheme import Scheme
from evergraph.tables.sources import Source, naming

EDGES = 10_000  # in a delta that holds nothing else
KnowsNodes = Callable[[Sequence[NodeId]], Sequence[bool]]
GoneEdges = Callable[[tuple["pa.Array", "pa.Array"], Sequence[NodeId]], EdgesBeyond]


@dataclass(frozen=True, eq=False)
class TableDeltas:
    """Deltas of some nodes each, every node with its edges to earlier nodes."""

    nodes: pa.Array  # ids; those without features must be known.  [nodes]
    labels: pa.Array  # text or int64, or lists of text or numbers; null for none.  [nodes]
    features: Tensor | None  # float32 [nodes, dims], or None if the table has none
    edges: tuple[pa.Array, pa.Array]  # ids of sources and of targets
    forgotten: Sequence[NodeId] = ()  # ids of nodes to forget, last of all
    batch: int = 100  # nodes per delta
    ignored: tuple[str, ...] = ()  # columns of the tables that are not used
    # Of each table, for messages: its path, and which of its rows were kept.
    places: Mapping[str, tuple[Source | None, npt.NDArray[Any]]] = field(default_factory=dict)
    weights: Tensor | None = None  # float32 [edges]
    # Ids of sources and targets of edges to remove, after everything else was added.
    removed: tuple[Column, Column] | tuple[()] = ()
    updates: npt.NDArray[np.bool_] | None = None  # nodes that are known and get these features
    scheme: Scheme | None = None  # how the columns of nodes were read; None for plain numbers
    relations: npt.NDArray[np.object_] | None = None  # [edges]
    types: npt.NDArray[np.object_] | None = None  # [nodes]

    def __post_init__(self) -> None:
        check_integer("batch", self.batch, least=1)

    def without_relations(self) -> TableDeltas:
        """Return the deltas for a learner that does not use relations and types, with a notice."""
        unused = ("edges", RELATION, self.relations), ("nodes", TYPE, self.types)
        for table, name, values in unused:
            names = [] if values is None else [name]
            say_ignored(self.places[table][0], "column", names, "this learner does not use it")
        return replace(self, relations=None, types=None)

    @property
    def _growing(self) -> int:  # deltas that add something
        if len(self.nodes):
            return -(-len(self.nodes) // self.batch)
        return -(-len(self.edges[0]) // EDGES)

    def __len__(self) -> int:
        going = len(self.removed[0]) if self.removed else 0
        return self._growing + -(-going // EDGES) + -(-len(self.forgotten) // self.batch)

    @property
    def kind(self) -> str:
        """Kind of the targets: classes, several labels, or numbers."""
        if pa.types.is_list(self.labels.type):
            return "labels"
        return "numbers" if pa.types.is_floating(self.labels.type) else "class"

    def __iter__(self) -> Iterator[Delta]:
        # Edges in the order in which they can be added, and where each delta's edges end. An edge
        # is added with the later of its nodes; ids that are not in the table are assumed to be
        # known.
        count = len(self.edges[0])
        order, ends = np.arange(count), np.minimum(np.arange(self._growing + 1) * EDGES, count)
        if len(self.nodes) and count:
            found = [pc.index_in(side, value_set=self.nodes) for side in self.edges]
            rows = [pc.fill_null(each, -1).to_numpy(zero_copy_only=False) for each in found]
            of = np.maximum(np.maximum(*rows), 0) // self.batch
            order = np.argsort(of, kind="stable")
            ends = np.searchsorted(of[order], np.arange(self._growing + 1))
        for number in range(self._growing):
            part = slice(number * self.batch, (number + 1) * self.batch)
            yield self._delta(part, order[ends[number] : ends[number + 1]])
        for start in range(0, len(self.removed[0]) if self.removed else 0, EDGES):
            gone = (listed(side[start : start + EDGES]) for side in self.removed)
            yield Delta(removed_edges=tuple(zip(*gone, strict=True)))
        for start in range(0, len(self.forgotten), self.batch):
            yield Delta(forgotten=tuple(self.forgotten[start : start + self.batch]))

    def _delta(self, rows: slice, edges: npt.NDArray[Any]) -> Delta:
        joined = [side.take(edges).to_pylist() for side in self.edges]
        nodes, labels = self.nodes[rows].to_pylist(), self.labels[rows].to_pylist()
        # Labels of known nodes are late: those to update, or all without features.
        updates = np.zeros(len(nodes), dtype=bool) if self.updates is None else self.updates[rows]
        old = range(len(nodes)) if self.features is None else np.flatnonzero(updates).tolist()
        parts: dict[str, Any] = {}
        if self.features is not None:
            new, features = np.flatnonzero(~updates).tolist(), self.features[rows]
            parts = {
                "nodes": tuple(nodes[row] for row in new),
                "features": features[new] if new else torch.zeros(0, 0),
                "labels": tuple(labels[row] for row in new),
                "updated": tuple(nodes[row] for row in old),
                "updated_features": features[old] if old else torch.zeros(0, 0),
                "words": word_columns(self.scheme),
            }
            if self.types is not None:
                parts["types"] = tuple(self.types[rows][new])
            elif self.relations is not None:  # edges show that there are relations
                parts["types"] = (None,) * len(new)
        return Delta(
            edges=tuple(zip(*joined, strict=True)),
            weights=() if self.weights is None else tuple(self.weights[edges].tolist()),
            relations=() if self.relations is None else tuple(self.relations[edges]),
            late=tuple((nodes[row], label) for row in old if (label := labels[row]) is not None),
            **parts,
        )

    def of_featureless(self, knows: KnowsNodes) -> TableDeltas:
        """Return the deltas of a graph whose nodes have no features, which has no scheme.

        Without a table of nodes, the new ones are those of the edges. knows: as in ``check_known``
        """
        nodes, labels = self.nodes, self.labels
        if self.places["nodes"][0] is None:
            ends = pa.concat_arrays(self.edges).unique()
            nodes = ends.filter(pa.array(self._strange(ends, knows), pa.bool_()))
            labels = pa.nulls(len(nodes), labels.type)
        return replace(self, nodes=nodes, labels=labels, features=torch.zeros(len(nodes), 0))

    def check_known(self, knows: KnowsNodes) -> None:
        """Raise unless every edge joins nodes of the table or known ones; to be called first."""
        rule = "in the table of nodes or known"
        parts = [("edges", *part, rule) for part in zip(ENDS, self.edges, strict=True)]
        if self.features is None:
            parts.insert(0, ("nodes", "id", self.nodes, "known, since it has no features"))
        for table, name, values, rule in parts:
            wrong = self._strange(values, knows)
            if wrong.any():
                first = int(wrong.argmax())
                path, rows = self.places[table]
                theirs = {v: k for k, v in getattr(path, "names", {}).items()}.get(name, name)
                raise UnknownNodeError(
                    f"{path}: row {int(rows[first]) + 1} has {values[first].as_py()!r} in column "
                    f"{theirs!r}: expected the id of a node that is {rule}"
                )

    def _strange(self, values: pa.Array, knows: KnowsNodes) -> npt.NDArray[np.bool_]:
        """Return which ids are of no node; nodes to be forgotten count as unknown."""
        there: set[NodeId] = set()
        if self.features is not None:  # those that are added rather than updated
            ids = self.nodes.to_pylist()
            there = {*(ids if self.updates is None else compress(ids, ~self.updates))}
        others = [value for value in values.unique().to_pylist() if value not in there]
        known, gone = zip(others, knows(others), strict=True), frozenset(self.forgotten)
        return among(values, [each for each, is_known in known if not is_known or each in gone])

    def without_unknown_edges(self, knows: KnowsNodes) -> tuple[TableDeltas, int]:
        """Return the deltas without edges to unknown nodes, and the number of these edges."""
        lost = self._strange(self.edges[0], knows) | self._strange(self.edges[1], knows)
        return self._with_edges(~lost), int(lost.sum())

    def without_repeats(self, repeated: str, *, both_ways: bool) -> TableDeltas:
        """Return the deltas with each edge once, and report how many rows repeat one."""
        path = self.places["edges"][0]
        kinds = None
        if self.relations is not None:
            kinds = torch.from_numpy(np.unique(self.relations, return_inverse=True)[1])
        with naming(path):
            numbers = edge_numbers(EdgeColumns(*self.edges))
            found = combined(numbers, self.weights, kinds, repeated=repeated, both_ways=both_ways)
            weights = found.checked_weights()
        say_repeated(path, found.repeats, len(self.edges[0]), repeated)
        kept = np.isin(np.arange(len(self.edges[0])), found.rows)
        return replace(self._with_edges(kept), weights=weights)

    def _with_edges(self, kept: npt.NDArray[np.bool_]) -> TableDeltas:
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

        known: all nodes of the learner; emptying: whether all of them may be forgotten.
        """
        ids, old = self.nodes.to_pylist(), frozenset(known)
        there = frozenset(ids)
        gone = [node for node in known if node not in there]
        self._check_emptying("node", len(gone), len(known), allowed=emptying)
        updates = self.updates
        if self.features is not None:
            updates = np.array([node in old for node in ids], dtype=bool)
        forgotten = tuple(dict.fromkeys((*self.forgotten, *gone)))
        return replace(self, forgotten=forgotten, updates=updates)

    def without_other_edges(self, gone: GoneEdges, *, emptying: bool = False) -> TableDeltas:
        """Return deltas after which the learner has exactly the edges of the table.

        gone: returns known edges, between nodes that stay, that are not among the given ones.
        """
        found = gone(self.edges, self.forgotten)
        self._check_emptying("edge", len(found.sources), found.known, allowed=emptying)
        return replace(self, removed=(found.sources, found.targets))

    def _check_emptying(self, what: str, gone: int, known: int, *, allowed: bool) -> None:
        if known and gone == known and not allowed:
            raise DataError(
                f"{self.places[f'{what}s'][0]}: has none of the {known:,} known {what}s, so all of "
                "them would be removed: give --allow-emptying if that is intended"
            )


def among(values: pa.Array, gone: Sequence[NodeId]) -> npt.NDArray[np.bool_]:
    """Return which ids are among others of possibly mixed types.  [n] -> bool [n]"""
    kind = int if pa.types.is_integer(values.type) else str
    alike = pa.array([value for value in gone if type(value) is kind], values.type)
    found: npt.NDArray[np.bool_] = pc.is_in(values, value_set=alike).to_numpy(zero_copy_only=False)
    return found
