"""Nodes and edges as users hold them, read as a delta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from torch import Tensor

from evergraph.core.errors import ConfigurationError, DataError, say, say_once
from evergraph.core.targets import target_of
from evergraph.datasets.adapters import holds_graph, named_graph
from evergraph.graphs.pyg import is_hetero
from evergraph.graphs.validation import say_repeated
from evergraph.online import conversion
from evergraph.online.checking import FEATURELESS, without_repeats, without_unknown
from evergraph.online.codecs.node_rows import features_with_words, read_rows, word_columns
from evergraph.online.conversion import is_numbered, read_frame
from evergraph.online.delta import Delta, NodeId, NodeTarget
from evergraph.online.learner import OnlineLearner
from evergraph.online.rows import as_targets, checked_rows, is_rows, names_of_rows, row_ids
from evergraph.tables import Columns, Scheme
from evergraph.tables.columns import RELATION, WEIGHT
from evergraph.tables.edges import say_skipped
from evergraph.tables.frames import arrow_table, is_pyg, is_sparse, is_table
from evergraph.tables.names import of_edges, of_nodes, renamed, worded
from evergraph.tables.scheme import NodeFeatures
from evergraph.tables.sources import naming

ARRAY = (
    "an array has no column names: its columns are matched by position and not scaled, unlike the "
    "columns of a table"
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Addition:
    """The arguments of ``ContinualNodeClassifier.partial_fit``, as they were given."""

    nodes: Any
    features: Any = None
    labels: Any = None
    edges: Any = None
    edge_weights: Any = None
    relations: Any = None
    types: Any = None
    ids: Any = None
    unknown_edges: str = "refuse"
    repeated: str = "last"
    key: str | None = None
    names: Mapping[str, object] = field(default_factory=dict)  # of columns of tables


_FIELDS = {each.name for each in fields(Addition)}


@dataclass(eq=False)
class AdditionReader:
    """Reads additions to a model."""

    learner: OnlineLearner  # that they are for
    columns: Columns | Scheme | None  # None for plain numbers; choices before the first nodes
    targets: str  # kind of the model's targets
    name: str  # of the model's class, for errors

    @property
    def begun(self) -> bool:
        """Whether the learner has features."""
        return self.learner.status().features > 0

    def delta(self, **arguments: Any) -> Delta:
        """Return an addition as a delta.

        arguments: fields of ``Addition``; any other is a name of a column.
        """
        own = {name: value for name, value in arguments.items() if name in _FIELDS}
        names = {name: value for name, value in arguments.items() if name not in _FIELDS}
        given = Addition(**own, names=names)
        nodes = given.nodes
        if isinstance(nodes, tuple) and len(nodes) == 2 and is_table(nodes[0]):
            given = replace(given, nodes=nodes[0], edges=nodes[1])
        if is_table(given.edges) and (edge_columns := of_edges(given.names)):
            given = replace(given, edges=renamed(arrow_table(given.edges), edge_columns))
        if is_table(given.nodes):
            given = self._of_table(given)
        if is_pyg(given.nodes):
            delta = self._of_pyg(given)
        elif holds_graph(given.nodes):
            delta = self._of_graph(given)
        elif given.ids is not None:
            raise ConfigurationError("ids are for a Data object: give nodes alone")
        else:
            delta = self._of_columns(given)
        if len(delta.nodes) and not delta.features.shape[1] and self.learner.knowledge is None:
            say("nodes", FEATURELESS)
        return self.learner.fitting(delta)

    def rows(self, rows: Any, labels: Sequence[NodeTarget | None], **given: Any) -> Delta:
        """Return what ``checked`` returned as a delta, with its index or the next numbers as ids.

        labels: one per row, or empty; given: fields of ``Addition``
        """
        ids = row_ids(rows, start=self.learner.next_number)
        given = {"nodes": ids, "features": rows, "labels": labels or None} | given
        return self.delta(**given)

    def checked(self, rows: Any) -> Any:
        """Return rows of features as a table or an array; see ``checked_rows``."""
        named = isinstance(self.columns, Scheme)
        width = None if named else self.learner.status().features or None
        return checked_rows(rows, width=width, name=self.name)

    def question(
        self, ids: Sequence[NodeId] | None, rows: Any, *, edges: Any, **given: Any
    ) -> Delta:
        """Return what is to be added to a copy of the learner, without labels.

        ids: of the nodes asked about; rows: new nodes, if there are any
        """
        given = given | {"edges": edges}
        if rows is None:
            known = self.learner.knows_nodes(ids or ())
            new = [node for node, there in zip(ids or (), known, strict=True) if not there]
            return self.delta(nodes=new, **given)
        if isinstance(rows, dict) and not is_sparse(rows):
            return self.delta(nodes=list(rows), features=list(rows.values()), **given)
        if names_of_rows(rows, given.get("id", "id")) or (holds_graph(rows) and not is_rows(rows)):
            return replace(self.delta(nodes=rows, **given), labels=())
        rows = self.checked(rows)
        delta = self.rows(rows, (), **given)
        if edges is not None:
            return delta
        # Numbers of rows by themselves may be those of other nodes, unless they are the same rows.
        nodes = row_ids(rows)
        if not self.learner.holds(nodes, delta.features):
            nodes = [f"row {number} of a question" for number in range(len(nodes))]
        return replace(delta, nodes=nodes)

    def _of_table(self, given: Addition) -> Addition:
        """Return the columns of a table of nodes."""
        if given.features is not None or given.labels is not None:
            raise ConfigurationError("features and labels are columns of a table of nodes")
        table = conversion.table_of_nodes(given.nodes, given.names, self.targets)
        label = target_of(self.targets).column
        with worded(of_nodes(given.names, label=label)), naming("nodes"):
            rows = read_rows(table, self.columns, self.targets, where="nodes")
        if given.types is not None and rows.types is not None:
            raise ConfigurationError("types are given, but nodes have a column 'type' as well")
        types = given.types if rows.types is None else rows.types.to_pylist()
        return replace(
            given,
            nodes=rows.ids.to_pylist(),
            features=rows.features,
            labels=rows.targets(),
            types=types,
        )

    def _of_pyg(self, given: Addition) -> Delta:
        if given.edge_weights is not None:
            raise ConfigurationError("edge_weights are part of a Data object: give them there")
        data = given.nodes
        make = conversion.delta_of_hetero if is_hetero(data) else conversion.delta_of_data
        return make(data, given.ids, given.key, self.targets, given.repeated)

    def _of_graph(self, given: Addition) -> Delta:
        options = {name: getattr(given, name) for name in ("features", "labels", "edges")}
        options = {name: value for name, value in options.items() if value is not None}
        named = named_graph(given.nodes, repeated=given.repeated, **options)
        delta = conversion.delta_of_named(named, given.ids, given.key, self.targets)
        scheme = named.graph.columns
        if self.begun and scheme not in (None, self.columns):
            if self.columns is not None or set(scheme.kinds.values()) != {"raw"}:
                raise DataError(
                    "the columns of this graph are scaled by its own table: expected the scale of "
                    "the first, so load it with columns=first.columns, or give its tables (nodes, "
                    "edges)"
                )
            scheme = None  # plain numbers, as those of the learner
        return replace(delta, scheme=scheme)

    def _of_columns(self, given: Addition) -> Delta:
        edges, weights = conversion.weighted_edges(given.edges, given.edge_weights)
        ends = conversion.as_edges(edges)
        labels: Any = given.labels
        late: list[tuple[NodeId, NodeTarget]] = []
        if given.nodes is None:
            nodes, labels, late = self._of_edges(ends, labels)
        else:
            nodes = conversion.as_ids(given.nodes)
        if isinstance(labels, Mapping):
            labels = [labels.get(node) for node in nodes]
        targets = as_targets(self.targets, labels, len(nodes))
        read = self.read(given.features, len(nodes), targets)
        delta = Delta(
            nodes=nodes,
            features=features_with_words(read),
            words=word_columns(read.scheme),
            scheme=read.scheme,
            labels=targets,
            late=late,
            edges=ends,
            weights=conversion.beside_edges(weights, edges, WEIGHT),
            relations=conversion.beside_edges(given.relations, edges, RELATION),
            types=conversion.as_types(given.types),
            key=given.key,
        )
        if given.unknown_edges == "skip":
            delta, skipped = without_unknown(delta, self.learner.knows_nodes)
            say_skipped("edges", skipped)
        rows = len(delta.edges)
        both_ways = self.learner.undirected and not isinstance(edges, Tensor)
        delta, repeats = without_repeats(delta, given.repeated, both_ways=both_ways)
        say_repeated("edges", repeats, rows, given.repeated)
        return delta

    def _of_edges(
        self, edges: Sequence[tuple[NodeId, NodeId]], labels: Any
    ) -> tuple[list[NodeId], list[Any], list[tuple[NodeId, NodeTarget]]]:
        """Return the new nodes of edges, their labels, and the labels of known nodes."""
        by_id: dict[NodeId, Any] = {} if labels is None else dict(labels.items())
        named = list(dict.fromkeys([*(end for edge in edges for end in edge), *by_id]))
        known = self.learner.knows_nodes(named)
        new = [node for node, there in zip(named, known, strict=True) if not there]
        targets = as_targets(self.targets, [by_id.get(node) for node in named], len(named))
        labelled = list(zip(named, targets, known, strict=True))
        late = [(node, target) for node, target, there in labelled if there and target is not None]
        return new, [target for _, target, there in labelled if not there], late

    def read(
        self, features: Any, count: int, labels: Sequence[NodeTarget | None] = ()
    ) -> NodeFeatures:
        """Return features as numbers; columns of other kinds are read like the first ones."""
        if isinstance(features, NodeFeatures):  # of a table of nodes
            return features
        columns = self.columns
        free = isinstance(columns, Columns) and not columns.kinds
        if is_table(features) and not (free and is_numbered(features)):
            return read_frame(features, count, columns, labels)
        if count and features is not None and isinstance(columns, Scheme):
            say_once("features", ARRAY)
        return NodeFeatures(conversion.as_features(features, count), None)
