"""The live learner with the interface of scikit-learn."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from torch import Tensor

from evergraph.core.checks import check_choice
from evergraph.core.component import Part
from evergraph.core.errors import ConfigurationError, DataError, did_you_mean
from evergraph.core.file_lock import Closing
from evergraph.core.notices import say
from evergraph.core.targets import OneClass, target_kinds, target_of
from evergraph.datasets.doors import holds_graph, named_graph
from evergraph.graphs.pyg import is_hetero
from evergraph.graphs.repeats import say_repeated
from evergraph.online import conversion
from evergraph.online.codecs.tables import read_rows
from evergraph.online.conversion import is_numbered, read_frame
from evergraph.online.delta import Delta, NodeId, NodeTarget
from evergraph.online.folder.in_memory import InMemoryLearner
from evergraph.online.folder.markers import check_chosen
from evergraph.online.heads import OnlineHead
from evergraph.online.labels import as_targets, target_score
from evergraph.online.learner import OnlineLearner
from evergraph.online.learner_state import PATIENCE, PLAIN, TOLERANCE
from evergraph.online.monitor import Alarm, OnAlarm, report
from evergraph.online.plotting import plot
from evergraph.online.upsert import without_repeats, without_unknown
from evergraph.online.view import Explanation, Status, Suggestion
from evergraph.tables import Columns, Encoder, Scheme
from evergraph.tables.choices import columns_of
from evergraph.tables.columns import RELATION, WEIGHT
from evergraph.tables.edges import UNKNOWN_EDGES, say_skipped
from evergraph.tables.frames import arrow_table, is_pyg, is_table
from evergraph.tables.names import ColumnNames, of_edges, renamed
from evergraph.tables.scheme import NodeFeatures
from evergraph.topology import TopologyEncoder
from evergraph.topology.cached import Scaling
from evergraph.training.trainer import Objective

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Unpack

    from evergraph.online.folder.learner_folder import LearnerFolder

logger = logging.getLogger(__name__)
ARRAY = (
    "an array has no column names: its columns are matched by position and not scaled, unlike the "
    "columns of a table"
)


class ContinualNodeClassifier(Part, Closing):
    """Classifier for the nodes of a growing graph, updated instead of retrained.

    Nodes have the user's own ids, text or integers. They arrive with ``partial_fit``, with or
    without labels; labels may come later (``label``), and new classes and edges between old and new
    nodes at any time. Results have the type of the arguments: NumPy, pandas or torch.

    Args:
        topology: the f_topo, by name, as a table of name and parameters, or as an object; by
            default the head's choice: features and those two hops away for ``auto``, ``SGC`` over 2
            hops for others.
        head: learns from embeddings, given likewise: ``auto`` or ``analytic``; for
            labels and numbers ``auto`` means ``targets``, the only one.
        width: random features (per view) or hidden units of the head; by default its own choice.
        head_options: further parameters of the head, by name.
        objective: ``balanced`` accuracy, in which every class counts alike, or ``plain`` accuracy
            over nodes; only ``auto`` has the choice, and the default is balanced.
        scaling: ``unit`` divides every embedding by its length, ``none`` does not.
        undirected: whether edges are undirected.
        seed: for all random choices.
        columns: how columns of DataFrames are read, if it should not be guessed: kinds by name, or
            ``Columns``. The first DataFrame decides, later ones are read alike.
        targets: of the nodes: one ``class``, several ``labels`` (a list per node), or ``numbers``
            (a number per node).
        tolerance: share of its length by which the vector of a labelled node may move before it is
            learned again; 0 for any move.
        patience: number of deltas, or batches, after which scores are solved at the latest; 1
            solves after every delta.
        on_alarm: called once with the ``Alarm`` that a delta raises, after the delta is learned
            and, in a folder, on disk.

    Attributes:
        classes_: known classes or labels in order of arrival: the columns of ``predict_proba``.
        applied_: the result of the last delta.
        reading_: how each column of the last DataFrame was read, one row per column; empty for
            plain numbers.

    >>> import torch
    >>> model = ContinualNodeClassifier(width=64)
    >>> model = model.partial_fit(["a", "b", "c"], torch.eye(3), ["x", "y", None], [("a", "c")])
    >>> model.predict(["c"])
    array(['x'], dtype='<U1')

    With several labels per node:

    >>> model = ContinualNodeClassifier(width=64, targets="labels")
    >>> model = model.partial_fit(["a", "b"], torch.eye(2), [["x", "y"], ["y"]])
    >>> model.predict(["a", "b"]), model.classes_.tolist()
    ([['x', 'y'], ['y']], ['x', 'y'])
    """

    _kept: InMemoryLearner | LearnerFolder | None = None  # from the first data on

    def __init__(
        self,
        *,
        topology: TopologyEncoder | str | Mapping[str, Any] | None = None,
        head: OnlineHead | str | Mapping[str, Any] = "auto",
        width: int | None = None,
        head_options: Mapping[str, Any] | None = None,
        objective: Objective | None = None,
        scaling: Scaling = "unit",
        undirected: bool = True,
        seed: int = 0,
        columns: Columns | Mapping[str, str | Encoder] | None = None,
        targets: str = "class",
        tolerance: float = TOLERANCE,
        patience: int = PATIENCE,
        on_alarm: OnAlarm | None = None,
    ) -> None:
        self.topology, self.head, self.width = topology, head, width
        self.head_options, self.objective = head_options, objective
        self.scaling: Scaling = scaling
        self.undirected, self.seed, self.columns = undirected, seed, columns
        self.targets = targets
        self.tolerance, self.patience, self.on_alarm = tolerance, patience, on_alarm
        self.reading_: list[dict[str, str]] = []
        self._noted_positions = False  # whether the notice that names are ignored was given

    @classmethod
    def open(
        cls, path: Path | str, *, readonly: bool = False, **parameters: Any
    ) -> ContinualNodeClassifier:
        """Open the classifier of a folder, or create one there.

        Every delta is on disk before a call returns. An existing folder needs no parameters; those
        given must match. readonly: do not write; another process may, see ``refresh``.
        """
        from evergraph.online.folder.learner_folder import LearnerFolder, parameters_of_model

        model = cls(**parameters)
        chosen = columns_of(model.columns)
        model._kept = LearnerFolder.open(
            path,
            parameters_of_model(model._made().parameters, parameters),
            readonly=readonly,
            encoders=chosen.encoders,
        )
        if not readonly and model._begun:
            check_chosen(path, model._kept.columns, chosen)
        learner = model.learner_
        kind = learner.head.kind
        if parameters.get("targets", kind) != kind:
            model.close()
            raise ConfigurationError(
                f"{path}: targets cannot be {model.targets!r}: the folder has {kind!r}"
            )
        # The parameters are those that the learner was made with.
        options = {k: v for k, v in learner.parameters["head"].items() if k != "name"}
        model.topology, model.head = learner.topology, learner.head.name
        model.width, model.objective = options.pop("width", None), options.pop("objective", None)
        model.head_options, model.targets = options, kind
        for name in PLAIN:
            setattr(model, name, getattr(learner, name))
        return model

    @property
    def learner_(self) -> OnlineLearner:
        """The underlying learner."""
        return self._home.learner

    @property
    def _home(self) -> InMemoryLearner | LearnerFolder:
        if self._kept is not None:
            return self._kept
        # Of threads that come here first, all get the same: ``setdefault`` is one step.
        kept: InMemoryLearner = vars(self).setdefault("_kept", InMemoryLearner(self._made()))
        return kept

    @property
    def _begun(self) -> bool:
        return self.learner_.status().features > 0

    def _made(self) -> OnlineLearner:
        check_choice("targets", self.targets, target_kinds.names())
        given = {"width": self.width, "objective": self.objective}
        given = {name: value for name, value in given.items() if value is not None}
        options = {**(self.head_options or {}), **given}
        head = self.head
        if isinstance(head, str | Mapping):
            table = {"name": head} if isinstance(head, str) else dict(head)
            if not target_of(self.targets).is_class and table.get("name") in ("auto", "targets"):
                table |= {"name": "targets", "kind": self.targets}
            head = table | options
        elif options:
            raise ConfigurationError(
                f"{', '.join(options)} cannot be given beside a head that is an object: give them "
                "to the head"
            )
        return OnlineLearner(
            topology=self.topology,
            head=head,
            targets=self.targets,
            **{name: getattr(self, name) for name in PLAIN},
        )

    def fit(self, *given: Any, **named: Any) -> NoReturn:
        """Raise: there is no fit that starts over; see ``partial_fit``."""
        raise ConfigurationError(
            "ContinualNodeClassifier has no fit: call partial_fit(nodes, features, labels, edges), "
            "which adds to what was learned; create a new ContinualNodeClassifier to start over"
        )

    def partial_fit(
        self,
        nodes: Any,
        features: Any = None,
        labels: Any = None,
        edges: Any = None,
        *,
        edge_weights: Any = None,
        relations: Any = None,
        types: Any = None,
        ids: Any = None,
        unknown_edges: str = "refuse",
        repeated: str = "last",
        key: str | None = None,
        **names: Unpack[ColumnNames],
    ) -> ContinualNodeClassifier:
        """Add nodes, with labels where known, and edges between any nodes.

        Args:
            nodes: ids of the new nodes, empty to add edges only. Or an object that holds
                everything: a PyG ``Data`` or ``HeteroData`` (with nodes named ``paper/0`` and so
                on), a NetworkX graph, a SciPy adjacency (with ``features`` and ``labels``), a table
                of nodes with ``id``, ``label`` (or ``labels``, or ``target``), ``type`` and
                features of any kind (and ``edges`` as a table), or a pair (nodes, edges).
            features: one row per node; in a DataFrame, columns of any kind, see ``reading_``.
            labels: one per node; None or NaN if unknown, in a tensor also -1. A list per node if
                targets are labels, a number if they are numbers.
            edges: pairs of ids, new or known; or a tensor [2, edges] of ids as in PyG.
            edge_weights: one per edge, unless edges are a DataFrame with a column ``weight``.
                Without weights, new edges weigh 1 and known ones keep their weight; weight 0
                removes an edge.
            relations: one per edge, unless edges are a table with a column ``relation``. A model
                has relations from its first nodes on, or none.
            types: one per node, None if unknown.
            ids: of the rows of a ``Data`` or a SciPy adjacency; by default 0, 1, 2, ...
            unknown_edges: for edges to ids that are neither new nor known: ``refuse`` raises,
                ``skip`` leaves them out and reports how many.
            repeated: for edges that this call lists several times, also as (b, a) if edges are
                undirected and not an array in the manner of PyG: ``last`` weight counts, or the
                ``sum`` or ``mean`` of the weights, or the ``count`` of the rows, or ``refuse``. An
                edge that is known gets the new weight, whatever the rule.
            key: of the call; a call with a known key is not applied again.
            names: of the columns of tables, as ``id="customer_id"``; ``label``, ``source``,
                ``target`` and ``weight`` likewise.
        """
        check_choice("unknown_edges", unknown_edges, UNKNOWN_EDGES)
        given = nodes, features, labels, edges, edge_weights, relations, types, ids
        # The first rows decide how columns are read: threads that bring them come one by one.
        with nullcontext() if self._begun else self._home.lock:
            skip = unknown_edges == "skip"
            delta = self._delta(*given, names, skip=skip, repeated=repeated, key=key)
            return self._submit(delta)

    def _delta(
        self,
        nodes: Any,
        features: Any,
        labels: Any,
        edges: Any,
        edge_weights: Any,
        relations: Any,
        types: Any,
        ids: Any,
        names: Mapping[str, object],
        *,
        skip: bool,
        repeated: str,
        key: str | None,
    ) -> Delta:
        """Return what ``partial_fit`` was given as a delta, and keep how its columns are read."""
        if isinstance(nodes, tuple) and len(nodes) == 2 and is_table(nodes[0]):
            nodes, edges = nodes
        if is_table(edges) and (theirs := of_edges(names)):
            edges = renamed(arrow_table(edges), theirs)
        read: NodeFeatures | None = None
        if is_table(nodes):
            if features is not None or labels is not None:
                raise ConfigurationError("features and labels are columns of a table of nodes")
            table = conversion.table_of_nodes(nodes, names, self.targets)
            columns, noted = self._reading, self._noted_positions
            told = read_rows(table, columns, self.targets, where="nodes", noted=noted)
            self._noted_positions = noted or columns is None
            if types is not None and told.types is not None:
                raise ConfigurationError("types are told, but nodes have a column 'type' as well")
            types = types if told.types is None else told.types.to_pylist()
            nodes, labels, read = told.ids.to_pylist(), told.targets(), told.features
        if is_pyg(nodes):
            make = conversion.delta_of_hetero if is_hetero(nodes) else conversion.delta_of_data
            delta = make(nodes, ids, key, self.targets, repeated)
            if edge_weights is not None:
                raise ConfigurationError("edge_weights are part of a Data object: give them there")
        elif holds_graph(nodes):
            given = {"features": features, "labels": labels, "edges": edges}
            given = {k: v for k, v in given.items() if v is not None}
            named = named_graph(nodes, repeated=repeated, **given)
            delta = conversion.delta_of_named(named, ids, key, self.targets)
            scheme, known = named.graph.columns, self._home.columns if self._begun else None
            raw = known is None and scheme is not None and set(scheme.kinds.values()) == {"raw"}
            if self._begun and scheme not in (None, known) and not raw:
                raise DataError(
                    "the columns of this graph are scaled by its own table: expected the scale of "
                    "the first, so load it with columns=first.columns, or give its tables (nodes, "
                    "edges)"
                )
            self._keep_columns(scheme, delta)
        elif ids is not None:
            raise ConfigurationError("ids are for a Data object: give nodes alone")
        else:
            new = conversion.as_ids(nodes)
            targets = as_targets(self.targets, labels, len(new))
            read = self._read(features, len(new), targets) if read is None else read
            delta = Delta(
                nodes=new,
                features=read.features,
                labels=targets,
                edges=conversion.as_edges(edges),
                weights=conversion.beside_edges(edge_weights, edges, WEIGHT),
                relations=conversion.beside_edges(relations, edges, RELATION),
                types=conversion.as_types(types),
                key=key,
            )
            if skip:
                delta, skipped = without_unknown(delta, self.learner_.knows_nodes)
                say_skipped("edges", skipped)
            rows, both_ways = len(delta.edges), self.undirected and not isinstance(edges, Tensor)
            delta, again = without_repeats(delta, repeated, both_ways=both_ways)
            say_repeated("edges", again, rows, repeated)
            self._keep_columns(read.scheme, delta)
        return delta

    @property
    def _reading(self) -> Columns | Scheme | None:
        """How columns are read: as the first were, or by the user's choices."""
        return self._home.columns if self._begun else columns_of(self.columns)

    def _read(self, features: Any, count: int, labels: Sequence[NodeTarget | None]) -> NodeFeatures:
        """Return features as numbers; columns of other kinds are read like the first ones."""
        columns = self._reading
        free = isinstance(columns, Columns) and not columns.kinds
        if is_table(features) and not (free and is_numbered(features)):
            noted = self._noted_positions
            self._noted_positions = noted or columns is None
            return read_frame(features, count, columns, labels, noted=noted)
        if count and not self._noted_positions:
            self._noted_positions = True
            if isinstance(columns, Scheme):
                say("features", ARRAY)
            else:
                logger.info("features: %s", ARRAY)
        return NodeFeatures(conversion.as_features(features, count), None)

    def _keep_columns(self, scheme: Scheme | None, delta: Delta) -> None:
        """Store how columns are read, once the first delta is known to be valid."""
        self.reading_ = [] if scheme is None else scheme.rows()
        if len(delta.nodes) and not self._begun:
            self.learner_.check(delta)
            self._home.keep_columns(scheme)

    def remove_edges(self, edges: Any, *, key: str | None = None) -> ContinualNodeClassifier:
        """Remove edges; embeddings are then as if they had never existed."""
        return self._submit(Delta(removed_edges=conversion.as_edges(edges), key=key))

    def update_features(
        self, ids: Any, features: Any, *, key: str | None = None
    ) -> ContinualNodeClassifier:
        """Replace the features of known nodes, as if they had always had these."""
        nodes = conversion.as_ids(ids, "ids")
        rows = self._read(features, len(nodes), ()).features
        return self._submit(Delta(updated=nodes, updated_features=rows, key=key))

    def label(self, ids: Any, labels: Any, *, key: str | None = None) -> ContinualNodeClassifier:
        """Label known nodes, all of them; a label replaces an earlier one."""
        return self._submit(Delta(late=self._labelled(ids, labels), key=key))

    def _labelled(self, ids: Any, labels: Any) -> list[tuple[NodeId, NodeTarget]]:
        nodes = conversion.as_ids(ids, "ids")
        targets = as_targets(self.targets, labels, len(nodes))
        if None in targets:
            raise DataError(f"label of node {nodes[targets.index(None)]!r} is missing")
        return [(n, label) for n, label in zip(nodes, targets, strict=True) if label is not None]

    def forget(self, ids: Any, *, key: str | None = None) -> ContinualNodeClassifier:
        """Remove nodes, their edges and what was learned from them.

        If ``status().exact_forgetting``, no trace of them is left, except in how columns are read:
        medians, scales and word counts of the first table stay.
        """
        return self._submit(Delta(forgotten=conversion.as_ids(ids, "ids"), key=key))

    def refit(self, *, key: str | None = None) -> ContinualNodeClassifier:
        """Choose landmarks, penalties and mixture anew, and learn everything again.

        Afterwards the model is that of one who was given all nodes, edges and labels at once, up to
        rounding, whatever the order in which they came. It takes about as long as that.
        """
        return self._submit(Delta(refit=True, key=key))

    def _submit(self, delta: Delta) -> ContinualNodeClassifier:
        before = self.learner_.status().seq
        self.applied_ = self._home.submit(delta)
        if self.on_alarm is not None:
            report(self.learner_.alarms(), self.on_alarm, after=before)
        return self

    def refresh(self) -> int:
        """Apply deltas that the writing process has added, if ``readonly``; return how many."""
        return 0 if self._kept is None else self._kept.refresh()

    @property
    def classes_(self) -> np.ndarray[Any, Any]:
        """Known classes or labels, in order of arrival; empty for numbers."""
        return OneClass().array(self.learner_.classes)

    def predict(self, ids: Any) -> Any:
        """Return the most likely class of each node, or a list of its labels, or its number."""
        return conversion.targets_like(
            self.targets, ids, self.learner_.predict(conversion.as_ids(ids, "ids"))
        )

    def predict_proba(self, ids: Any) -> Any:
        """Return the probability of each class, or label, one column per class.

        -> [ids, classes]; labels have independent probabilities, so rows do not add up to 1
        """
        target = target_of(self.targets)
        if not target.has_probabilities:
            raise ConfigurationError(f"predict_proba needs classes or labels, not {target.plural}")
        classes, matrix = self.learner_.predict_proba(conversion.as_ids(ids, "ids"))
        return conversion.matrix_like(ids, matrix, classes)

    def embed(self, ids: Any) -> Any:
        """Return the topology-aware embeddings of nodes.  -> [ids, dims]"""
        return conversion.matrix_like(ids, self.learner_.embed(conversion.as_ids(ids, "ids")))

    def score(self, ids: Any, labels: Any, *, balanced: bool = False) -> float:
        """Return the accuracy, micro F1 of labels or R²; balanced: averaged over classes."""
        pairs = self._labelled(ids, labels)
        found = self.learner_.predict([node for node, _ in pairs])
        known = [target for _, target in pairs]
        return target_score(self.targets, found, known, balanced=balanced)

    def explain(self, node: Any, *, top: int = 3, limit: int = 20) -> Explanation:
        """Explain a prediction by at most ``limit`` nodes and columns, for ``top`` classes."""
        scheme = self._home.columns
        return self.learner_.explain(
            conversion.as_ids([node], "ids")[0],
            top=top,
            limit=limit,
            columns=() if scheme is None else scheme.columns_of_features,
        )

    def suggest(self, n: int, *, among: Any = None) -> tuple[Suggestion, ...]:
        """Return at most n unlabelled nodes, of all or ``among`` some, to label next, and why."""
        return self.learner_.suggest(
            n, among=None if among is None else conversion.as_ids(among, "among")
        )

    def alarms(self) -> tuple[Alarm, ...]:
        """Return the accuracy ``Alarm`` while it is raised."""
        return self.learner_.alarms()

    def status(self) -> Status:
        """Return the status in numbers."""
        return self.learner_.status()

    def plot(self) -> Figure:
        """Return a matplotlib figure: accuracy over time, growth, classes, drift and confusion."""
        return plot(self.learner_)

    def _repr_html_(self) -> str:
        if self._kept is None:
            return super()._repr_html_()
        return f"<p><code>{escape(repr(self))}</code></p>{self.learner_._repr_html_()}"

    def set_params(self, **parameters: Any) -> ContinualNodeClassifier:
        """Change parameters, before the first data."""
        known = self.get_params()
        for name, value in parameters.items():
            if name not in known:
                raise ConfigurationError(
                    f"ContinualNodeClassifier has no parameter {name!r}: "
                    f"{did_you_mean(name, known)}it takes {', '.join(known)}"
                )
            if self._kept is not None:
                raise ConfigurationError(f"{name} cannot change after the first data")
            setattr(self, name, value)
        return self

    def close(self) -> None:
        """Close the folder, if there is one, so that another process can open it."""
        if self._kept is not None:
            self._kept.close()
