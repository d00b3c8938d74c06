"""The change that tables of nodes and edges describe, split into deltas in the order of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.errors import DataError, UnknownNodeError, check_integer, say_ignored
from evergraph.core.targets import NodeTarget
from evergraph.graphs.validation import say_repeated
from evergraph.online.checking import pairs_of, without_repeats, without_unknown
from evergraph.online.delta import Column, Delta, EdgeColumns, NodeId, listed
from evergraph.tables.arrow import pa, pc
from evergraph.tables.columns import RELATION, TYPE
from evergraph.tables.names import ENDS
from evergraph.tables.sources import Source, naming

EDGES = 10_000  # in a delta that holds nothing else
Rows = npt.NDArray[np.bool_]
KnowsNodes = Callable[[Sequence[NodeId]], Sequence[bool]]
MissingEdges = Callable[[tuple[Column, Column], Sequence[NodeId]], tuple[EdgeColumns, int]]


def node_parts(
    ids: Sequence[NodeId],
    features: Tensor,
    labels: Sequence[NodeTarget | None],
    types: Sequence[str | None] = (),
    updates: Rows | None = None,
) -> dict[str, Any]:
    """Return what a delta has of rows of nodes; updates: rows of known nodes with new features."""
    parts = {"nodes": ids, "features": features, "labels": labels, "types": types}
    if updates is None or not updates.any():
        return parts | {"updated": (), "updated_features": torch.zeros(0, 0), "late": ()}
    new, old = (np.flatnonzero(rows).tolist() for rows in (~updates, updates))
    return {
        "nodes": [ids[row] for row in new],
        "features": features[new],
        "labels": [labels[row] for row in new],
        "types": [types[row] for row in new] if len(types) else (),
        "updated": [ids[row] for row in old],
        "updated_features": features[old],
        "late": [(ids[row], label) for row in old if (label := labels[row]) is not None],
    }


@dataclass(frozen=True, eq=False)
class TableDeltas:
    """Deltas of some nodes each, every node with its edges to earlier nodes."""

    whole: Delta  # all that the tables say
    kind: str = "class"  # of the targets
    batch: int = 100  # nodes per delta
    # Nodes of a table without features, which must be known; their labels are late.
    known: Sequence[NodeId] = ()
    ignored: tuple[str, ...] = ()  # columns of the tables that are not used
    # Of each table, for messages: its path, and which of its rows were kept.
    places: Mapping[str, tuple[Source | None, npt.NDArray[Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_integer("batch", self.batch, least=1)

    def labels(self) -> dict[NodeId, NodeTarget]:
        """Return the labels of those nodes of the table that have one."""
        pairs = chain(zip(self.whole.nodes, self.whole.labels, strict=True), self.whole.late)
        return {node: label for node, label in pairs if label is not None}

    def without_relations(self) -> TableDeltas:
        """Return the deltas for a learner that does not use relations and types, with a notice."""
        unused = ("edges", RELATION, self.whole.relations), ("nodes", TYPE, self.whole.types)
        for table, name, values in unused:
            names = [name] if len(values) else []
            say_ignored(self.places[table][0], "column", names, "this learner does not use it")
        return replace(self, whole=replace(self.whole, relations=(), types=()))

    @property
    def _edges(self) -> EdgeColumns:
        return pairs_of(self.whole)[0]

    @property
    def _growing(self) -> int:  # deltas that add something
        whole = self.whole
        most = max(map(len, (whole.nodes, whole.updated, whole.late)))
        alone = 0 if len(whole.nodes) else -(-len(whole.edges) // EDGES)
        return max(-(-most // self.batch), alone)

    def __len__(self) -> int:
        removing = -(-len(self.whole.removed_edges) // EDGES)
        return self._growing + removing + -(-len(self.whole.forgotten) // self.batch)

    def __iter__(self) -> Iterator[Delta]:
        whole = self.whole
        order, ends = self._edge_order()
        for number in range(self._growing):
            rows = slice(number * self.batch, (number + 1) * self.batch)
            yield self._part(rows, order[ends[number] : ends[number + 1]])
        for start in range(0, len(whole.removed_edges), EDGES):
            yield Delta(removed_edges=whole.removed_edges[start : start + EDGES])
        for start in range(0, len(whole.forgotten), self.batch):
            yield Delta(forgotten=tuple(whole.forgotten[start : start + self.batch]))

    def _edge_order(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return edges in the order in which they can be added, and where each delta's begin.

        An edge is added with the later of its new nodes; other ids are assumed to be known.
        """
        numbers, count = np.arange(self._growing + 1), len(self.whole.edges)
        if not len(self.whole.nodes) or not count:
            return np.arange(count), np.minimum(numbers * EDGES, count)
        sides = [pa.array(side) for side in self._edges.sides]
        new = pa.array(self.whole.nodes, sides[0].type)
        rows_of_ends = [pc.fill_null(pc.index_in(side, value_set=new), -1) for side in sides]
        one, other = (rows.to_numpy(zero_copy_only=False) for rows in rows_of_ends)
        row_of_later_end = np.maximum(one, other)
        batch_of_edge = np.maximum(row_of_later_end, 0) // self.batch
        order = np.argsort(batch_of_edge, kind="stable")
        return order, np.searchsorted(batch_of_edge[order], numbers)

    def _part(self, rows: slice, edges: npt.NDArray[np.int64]) -> Delta:
        whole = self.whole
        nodes, updated = tuple(whole.nodes[rows]), tuple(whole.updated[rows])
        types: Sequence[str | None] = tuple(whole.types[rows])
        chosen = edges.tolist()
        if len(whole.relations) and not len(whole.types):  # edges show that there are relations
            types = (None,) * len(nodes)
        return Delta(
            nodes=nodes,
            features=whole.features[rows] if nodes else torch.zeros(0, 0),
            labels=tuple(whole.labels[rows]),
            types=types,
            edges=self._edges.take(edges),
            weights=tuple(whole.weights[row] for row in chosen if len(whole.weights)),
            relations=tuple(whole.relations[row] for row in chosen if len(whole.relations)),
            updated=updated,
            updated_features=whole.updated_features[rows] if updated else torch.zeros(0, 0),
            late=tuple(whole.late[rows]),
            words=whole.words,
            scheme=whole.scheme,
        )

    def of_featureless(self, knows: KnowsNodes) -> TableDeltas:
        """Return the deltas of a graph whose nodes have no features, which has no scheme.

        Without a table of nodes, the new ones are those of the edges. knows: as in ``check_known``
        """
        nodes = self.known
        if self.places["nodes"][0] is None:
            nodes = self._unknown(_distinct(*self._edges.sides), knows)
        labels = dict(self.whole.late)
        parts = node_parts(nodes, torch.zeros(len(nodes), 0), [labels.get(node) for node in nodes])
        return replace(self, whole=replace(self.whole, **parts), known=())

    def check_known(self, knows: KnowsNodes) -> None:
        """Raise unless every edge joins nodes of the table or known ones; to be called first."""
        sides = zip(ENDS, self._edges.sides, strict=True)
        parts = [
            ("nodes", "id", self.known, "known, since it has no features"),
            *(("edges", *side, "in the table of nodes or known") for side in sides),
        ]
        for table, name, values, rule in parts:
            if unknown := frozenset(self._unknown(_distinct(values), knows)):
                row = next(row for row, node in enumerate(listed(values)) if node in unknown)
                path, rows = self.places[table]
                their_name = {v: k for k, v in getattr(path, "names", {}).items()}.get(name, name)
                raise UnknownNodeError(
                    f"{path}: row {int(rows[row]) + 1} has {listed(values)[row]!r} in column "
                    f"{their_name!r}: expected the id of a node that is {rule}"
                )

    def _unknown(self, nodes: Sequence[NodeId], knows: KnowsNodes) -> list[NodeId]:
        """Return those that are neither added nor known; nodes to be forgotten are not known."""
        added, gone = frozenset(self.whole.nodes), frozenset(self.whole.forgotten)
        others = [node for node in nodes if node not in added]
        known = zip(others, knows(others), strict=True)
        return [node for node, is_known in known if not is_known or node in gone]

    def without_unknown_edges(self, knows: KnowsNodes) -> tuple[TableDeltas, int]:
        """Return the deltas without edges to unknown nodes, and the number of these edges."""

        def are_known(nodes: Sequence[NodeId]) -> Sequence[bool]:
            unknown = frozenset(self._unknown(nodes, knows))
            return [node not in unknown for node in nodes]

        whole, skipped = without_unknown(self.whole, are_known)
        return replace(self, whole=whole), skipped

    def without_repeats(self, repeated: str, *, both_ways: bool) -> TableDeltas:
        """Return the deltas with each edge once, and report how many rows repeat one."""
        path, rows = self.places["edges"][0], len(self.whole.edges)
        with naming(path):
            whole, repeats = without_repeats(self.whole, repeated, both_ways=both_ways)
        say_repeated(path, repeats, rows, repeated)
        return replace(self, whole=whole)

    def without_others(self, known: Sequence[NodeId], *, emptying: bool = False) -> TableDeltas:
        """Return deltas after which the learner has exactly the nodes of the table.

        known: all nodes of the learner; emptying: whether all of them may be forgotten.
        """
        whole, known_ids = self.whole, frozenset(known)
        nodes = [*whole.nodes, *whole.updated]
        in_table = frozenset([*nodes, *self.known])
        missing = [node for node in known if node not in in_table]
        self._check_emptying("node", len(missing), len(known), allowed=emptying)
        if nodes:
            late, types = dict(whole.late), list(whole.types)
            features = [part for part in (whole.features, whole.updated_features) if len(part)]
            parts = node_parts(
                nodes,
                torch.cat(features),
                [*whole.labels, *map(late.get, whole.updated)],
                types + [None] * len(whole.updated) if types else (),
                np.array([node in known_ids for node in nodes], dtype=bool),
            )
            whole = replace(whole, **parts)
        forgotten = tuple(dict.fromkeys((*whole.forgotten, *missing)))
        return replace(self, whole=replace(whole, forgotten=forgotten))

    def without_other_edges(
        self, missing_edges: MissingEdges, *, emptying: bool = False
    ) -> TableDeltas:
        """Return deltas after which the learner has exactly the edges of the table.

        missing_edges: returns known edges, between nodes that stay, that are not among the given ones.
        """
        removed, known = missing_edges(self._edges.sides, self.whole.forgotten)
        self._check_emptying("edge", len(removed), known, allowed=emptying)
        return replace(self, whole=replace(self.whole, removed_edges=removed))

    def _check_emptying(self, what: str, missing: int, known: int, *, allowed: bool) -> None:
        if known and missing == known and not allowed:
            raise DataError(
                f"{self.places[f'{what}s'][0]}: has none of the {known:,} known {what}s, so all of "
                "them would be removed: give --allow-emptying if that is intended"
            )


def _distinct(*columns: Column) -> list[NodeId]:
    """Return each id of columns once, in order of appearance."""
    return list(
        dict.fromkeys(
            chain.from_iterable(pa.array(column).unique().to_pylist() for column in columns)
        )
    )
