"""The learner in scikit-learn's manner."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from evergraph.core.checks import check_choice
from evergraph.core.component import Part
from evergraph.core.errors import ConfigurationError, DataError, did_you_mean
from evergraph.core.file_lock import Closing
from evergraph.core.label_space import KINDS, Kind
from evergraph.core.notices import say
from evergraph.datasets.doors import holds_graph, named_graph
from evergraph.graphs.pyg import is_hetero
from evergraph.online.conversion import (
    as_edges,
    as_features,
    as_ids,
    as_relations,
    as_types,
    as_weights,
    columns_of_nodes,
    delta_of_data,
    delta_of_hetero,
    delta_of_named,
    label_array,
    matrix_like,
    told_like,
)
from evergraph.online.delta import Delta, NodeId, Told
from evergraph.online.folder.columns_file import check_chosen
from evergraph.online.folder.in_memory import InMemoryLearner
from evergraph.online.frames import is_numbered, read_frame
from evergraph.online.heads import heads
from evergraph.online.labels import as_told, told_score
from evergraph.online.learner import PATIENCE, TOLERANCE, OnlineLearner
from evergraph.online.monitor import Alarm, OnAlarm, tell
from evergraph.online.upsert import without_unknown
from evergraph.online.view import Status
from evergraph.online.view.explanation import Explanation
from evergraph.online.view.suggestions import Suggestion
from evergraph.tables import Columns, Encoder, Scheme
from evergraph.tables.choices import columns_of
from evergraph.tables.edges import UNKNOWN_EDGES, say_skipped
from evergraph.tables.frames import column_names, is_pyg, is_table
from evergraph.tables.labels import say_unlabelled
from evergraph.tables.scheme import NodeFeatures
from evergraph.topology import TopologyEncoder, topologies
from evergraph.topology.cached import Scaling
from evergraph.training.trainer import Objective

if TYPE_CHECKING:
    from evergraph.online.folder.learner_folder import LearnerFolder

logger = logging.getLogger(__name__)
ARRAY = (
    "an array has no names: it is matched by position and taken as it is, not scaled as the "
    "columns of a table are"
)


class ContinualNodeClassifier(Part, Closing):
    """Classifies the nodes of a graph that grows, and is updated instead of retrained.

    Nodes have the user's own ids, text or integers. They arrive with ``partial_fit``, with
    or without labels; labels may come later (``label``), and new classes and edges between old and
    new nodes at any time. Answers have the type of the question: NumPy, pandas or torch.

    Args:
        topology: the f_topo, as a name or an object; by default the head's own choice: features
            beside those two hops away for ``auto``, ``SGC`` over 2 hops for others.
        head: what learns from embeddings, by name: ``auto``, ``analytic``, ``replay`` or
            ``method``; for labels and numbers ``auto`` is ``targets``, the only one.
        width: how many random features (of a view) or hidden units the head has; by default its
            own choice.
        head_options: other parameters of the head, by name.
        objective: what should be right: ``balanced``, of every class as many in a hundred, or
            ``plain``, of all nodes; ``auto`` alone has the choice, and is balanced unless given.
        scaling: ``unit`` divides every embedding by its length, ``none`` leaves it.
        undirected: whether every edge runs both ways.
        seed: for everything that is drawn at random.
        columns: how the columns of DataFrames are read where it is not to be guessed: kinds by
            name, or ``Columns``. The first DataFrame decides, later ones are read alike.
        targets: what nodes are said to be: one ``class``, several ``labels`` (a list a node), or
            ``numbers`` (a number a node).
        tolerance: by which share of its length the vector of a labelled node may move before it is
            counted again; 0: by nothing.
        patience: how many deltas, or batches of them, scores may be behind what was counted; 1:
            never.
        on_alarm: called with the ``Alarm`` that a delta raises, once, after the delta is learned
            and, in a folder, on the disk.
        memory_limit: the most that the process is to hold, in bytes or as text such as ``2GB``:
            features, embeddings and all else that is wide then lies in files. No prediction
            depends on it.
        scratch: where these files go; the system's folder for such things unless given.

    Attributes:
        classes_: classes, or labels, met, in order of arrival: the columns of ``predict_proba``.
        applied_: what the last delta did.
        reading_: how each column of the last DataFrame was read, one row a column; empty where
            they were plain numbers.

    >>> import torch
    >>> model = ContinualNodeClassifier(width=64)
    >>> model = model.partial_fit(["a", "b", "c"], torch.eye(3), ["x", "y", None], [("a", "c")])
    >>> model.predict(["c"])
    array(['x'], dtype='<U1')

    Several labels a node, and a number:

    >>> model = ContinualNodeClassifier(width=64, targets="labels")
    >>> model = model.partial_fit(["a", "b", "c"], torch.eye(3), [["x", "y"], ["y"], None],
    ...                           [("a", "c")])
    >>> model.predict(["a", "b"]), model.classes_.tolist(), model.predict_proba(["c"]).shape
    ([['x', 'y'], ['y']], ['x', 'y'], (1, 2))
    >>> model = ContinualNodeClassifier(width=64, targets="numbers")
    >>> model = model.partial_fit(["a", "b"], torch.eye(2), [1.5, 3.0])
    >>> model.predict(["a", "b"]).round(1)
    array([1.5, 3. ], dtype=float32)
    """

    def __init__(
        self,
        *,
        topology: TopologyEncoder | str | None = None,
        head: str = "auto",
        width: int | None = None,
        head_options: Mapping[str, Any] | None = None,
        objective: Objective | None = None,
        scaling: Scaling = "unit",
        undirected: bool = True,
        seed: int = 0,
        columns: Columns | Mapping[str, str | Encoder] | None = None,
        targets: Kind = "class",
        tolerance: float = TOLERANCE,
        patience: int = PATIENCE,
        on_alarm: OnAlarm | None = None,
        memory_limit: int | str | None = None,
        scratch: Path | str | None = None,
    ) -> None:
        self.topology = topology
        self.head = head
        self.width = width
        self.head_options = head_options
        self.objective = objective
        self.scaling: Scaling = scaling
        self.undirected = undirected
        self.seed = seed
        self.columns = columns
        self.targets: Kind = targets
        self.tolerance = tolerance
        self.patience = patience
        self.on_alarm = on_alarm
        self.memory_limit = memory_limit
        self.scratch = scratch
        self.reading_: list[dict[str, str]] = []
        self._told_positions = False  # whether it was said that names are not looked at
        self._kept: InMemoryLearner | LearnerFolder | None = None

    @classmethod
    def open(
        cls, path: Path | str, *, readonly: bool = False, **parameters: Any
    ) -> ContinualNodeClassifier:
        """Open the classifier that lives in a folder, or begin one there.

        Every delta is on the disk before a call returns. A folder that is there already needs no
        parameters; those that are given must be as the folder's.

        readonly: ask only; another process may be writing, see ``refresh``.
        """
        from evergraph.online.folder.learner_folder import LearnerFolder

        model = cls(**parameters)
        given = _as_given(model._made().parameters, parameters)
        chosen = columns_of(model.columns)
        model._kept = LearnerFolder.of(
            path,
            given,
            readonly=readonly,
            encoders=chosen.encoders,
            memory_limit=model.memory_limit,
            scratch=model.scratch,
        )
        if not readonly and model.learner_.status().features:
            check_chosen(path, model._kept.columns, chosen)
        kind = model.learner_.head.kind
        if parameters.get("targets", kind) != kind:
            model.close()
            raise ConfigurationError(
                f"{path}: targets cannot be {model.targets!r}: they are {kind!r} since the first"
            )
        model._describe(model.learner_)
        return model

    def _describe(self, learner: OnlineLearner) -> None:
        """Set the parameters to those that a learner was made with."""
        options = {k: v for k, v in learner.parameters["head"].items() if k != "name"}
        self.topology, self.head = learner.topology, learner.head.name
        self.width, self.head_options = options.pop("width", None), options
        self.objective = options.pop("objective", None)
        self.scaling, self.undirected = learner.scaling, learner.undirected
        self.seed, self.targets = learner.seed, learner.head.kind
        self.tolerance, self.patience = learner.tolerance, learner.patience

    @property
    def learner_(self) -> OnlineLearner:
        """The learner behind it."""
        if self._kept is None:
            self._kept = InMemoryLearner(self._made())
        return self._kept.learner

    def _made(self) -> OnlineLearner:
        check_choice("targets", self.targets, KINDS)
        options = dict(self.head_options or {})
        if self.width is not None:
            options["width"] = self.width
        if self.objective is not None:
            options["objective"] = self.objective
        head = self.head
        if self.targets != "class" and head in ("auto", "targets"):
            head, options["kind"] = "targets", self.targets
        topology = self.topology
        return OnlineLearner(
            topology=topologies.make(topology) if isinstance(topology, str) else topology,
            head=heads.make(head, **options),
            targets=self.targets,
            scaling=self.scaling,
            undirected=self.undirected,
            seed=self.seed,
            tolerance=self.tolerance,
            patience=self.patience,
            memory_limit=self.memory_limit,
            scratch=self.scratch,
        )

    def fit(self, *given: Any, **named: Any) -> NoReturn:
        """Raise: a model that grows has no fit that would begin again; see ``partial_fit``."""
        raise ConfigurationError(
            "ContinualNodeClassifier has no fit: call partial_fit(nodes, features, labels, edges), "
            "which adds to what is known; a new ContinualNodeClassifier begins again"
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
        key: str | None = None,
    ) -> ContinualNodeClassifier:
        """Take in new nodes, their labels where known, and edges between any nodes.

        Args:
            nodes: ids of the new nodes; or what holds everything: a PyG ``Data`` or ``HeteroData``
                (its nodes are called ``paper/0`` and so on), a NetworkX graph, a SciPy adjacency
                (with ``features`` and ``labels``), a table of nodes with ``id``, ``label`` (or
                ``labels``, or ``target``), ``type`` and features of any kind (and ``edges`` as a
                table), or (nodes, edges). Empty if only edges come.
            features: one row per node; of a DataFrame, columns of any kind, see ``reading_``.
            labels: one per node; None or NaN where it is not known, in a tensor also -1. Where
                targets are labels, a list of them a node, and where they are numbers, a number.
            edges: pairs of ids, new or known; a tensor [2, edges] of ids as PyG has it.
            edge_weights: one per edge, unless edges are a DataFrame with a column ``weight``.
                Without any, new edges weigh 1 and known ones what they did; weight 0 removes one.
            relations: what each edge stands for, unless edges are a table with a column
                ``relation``. A model has relations from its first nodes on, or none.
            types: what kind of thing each node is, None where it is not known.
            ids: of the rows of a ``Data`` or a SciPy adjacency; 0, 1, 2, ... unless given.
            unknown_edges: what becomes of edges to ids that neither come nor are known: ``refuse``
                raises, ``skip`` leaves them out and says how many.
            key: names the call; a call with the same key counts once.
        """
        check_choice("unknown_edges", unknown_edges, UNKNOWN_EDGES)
        if isinstance(nodes, tuple) and len(nodes) == 2 and is_table(nodes[0]):
            nodes, edges = nodes
        if is_table(nodes):
            if features is not None or labels is not None:
                raise ConfigurationError("features and labels are columns of a table of nodes")
            table = columns_of_nodes(nodes, self.targets)
            if types is not None and table.types is not None:
                raise ConfigurationError("types are given, but nodes have a column 'type' as well")
            if table.told is None and not self.learner_.status().features:
                say_unlabelled("nodes", map(str, column_names(table.features)))
            nodes, features, labels = table.ids, table.features, table.told
            types = table.types if types is None else types
        if is_pyg(nodes):
            make = delta_of_hetero if is_hetero(nodes) else delta_of_data
            delta = make(nodes, ids, key, self.targets)
            if edge_weights is not None:
                raise ConfigurationError("edge_weights are part of a Data object: give them there")
        elif holds_graph(nodes):
            given = {"features": features, "labels": labels, "edges": edges}
            given = {name: value for name, value in given.items() if value is not None}
            named = named_graph(nodes, **given)
            delta = delta_of_named(named, ids, key, self.targets)
            self._check_columns(named.graph.columns)
            self._keep_columns(NodeFeatures(delta.features, named.graph.columns), delta)
        elif ids is not None:
            raise ConfigurationError("ids are for a Data object: give nodes alone")
        else:
            new = as_ids(nodes)
            told = as_told(self.targets, labels, len(new))
            read = self._read(features, len(new), told)
            delta = Delta(
                nodes=new,
                features=read.features,
                labels=told,
                edges=as_edges(edges),
                weights=as_weights(edge_weights, edges),
                relations=as_relations(relations, edges),
                types=as_types(types),
                key=key,
            )
            if unknown_edges == "skip":
                delta, skipped = without_unknown(delta, self.learner_.knows_nodes)
                say_skipped("edges", skipped)
            self._keep_columns(read, delta)
        return self._submit(delta)

    def _read(self, features: Any, count: int, labels: Sequence[Told | None]) -> NodeFeatures:
        """Return features as numbers; columns of other kinds are read as the first ones were."""
        begun = self.learner_.status().features > 0
        assert self._kept is not None
        columns = self._kept.columns if begun else columns_of(self.columns)
        free = isinstance(columns, Columns) and not columns.kinds
        if is_table(features) and not (free and is_numbered(features)):
            told = self._told_positions
            self._told_positions = told or columns is None
            return read_frame(features, count, columns, labels, told=told)
        if count and not self._told_positions:
            self._told_positions = True
            if isinstance(columns, Scheme):
                say("features", ARRAY)
            else:
                logger.info("features: %s", ARRAY)
        return NodeFeatures(as_features(features, count), None)

    def _check_columns(self, given: Scheme | None) -> None:
        """Raise if the table of a graph was read in another way than the first table was."""
        if given is None or not self.learner_.status().features:
            return
        assert self._kept is not None
        known = self._kept.columns
        raw = known is None and set(given.kinds.values()) == {"raw"}
        if given != known and not raw:
            raise DataError(
                "the columns of this graph are scaled by its own table: expected those of the "
                "first, so load it with columns=first.columns, or give its tables (nodes, edges)"
            )

    def _keep_columns(self, read: NodeFeatures, delta: Delta) -> None:
        """Keep how columns are read, once it is sure that the first delta fits."""
        self.reading_ = [] if read.scheme is None else read.scheme.rows()
        learner = self.learner_
        assert self._kept is not None
        if len(delta.nodes) and not learner.status().features:
            learner.check(delta)
            self._kept.keep_columns(read.scheme)

    def remove_edges(self, edges: Any, *, key: str | None = None) -> ContinualNodeClassifier:
        """Remove edges; all is then as if they had never been there.

        >>> import torch
        >>> model = ContinualNodeClassifier(width=64)
        >>> model = model.partial_fit(["a", "b"], torch.eye(2), ["x", "y"], [("a", "b")])
        >>> model.remove_edges([("b", "a")]).status().edges
        0
        """
        return self._submit(Delta(removed_edges=as_edges(edges), key=key))

    def update_features(
        self, ids: Any, features: Any, *, key: str | None = None
    ) -> ContinualNodeClassifier:
        """Give known nodes other features; all is then as if they had always had these.

        features: one row per node; of a table, columns as in ``partial_fit``.
        """
        nodes = as_ids(ids, "ids")
        rows = self._read(features, len(nodes), ()).features
        return self._submit(Delta(updated=nodes, updated_features=rows, key=key))

    def label(self, ids: Any, labels: Any, *, key: str | None = None) -> ContinualNodeClassifier:
        """Tell the labels of known nodes; a node that has another gets the new one.

        labels: as in ``partial_fit``, all known.
        """
        nodes = as_ids(ids, "ids")
        pairs = _pairs(nodes, as_told(self.targets, labels, len(nodes)))
        return self._submit(Delta(late=pairs, key=key))

    def forget(self, ids: Any, *, key: str | None = None) -> ContinualNodeClassifier:
        """Remove nodes, their edges and what was learned from them.

        Exact if ``status().exact_forgetting``: as if they had never been there, but for how columns
        of tables are read. Medians, scales and word counts of the first table stay as they are.
        """
        return self._submit(Delta(forgotten=as_ids(ids, "ids"), key=key))

    def _submit(self, delta: Delta) -> ContinualNodeClassifier:
        _ = self.learner_  # there from now on
        assert self._kept is not None
        before = self.learner_.status().seq
        self.applied_ = self._kept.submit(delta)
        if self.on_alarm is not None:
            tell(self.learner_.alarms(), self.on_alarm, after=before)
        return self

    def refresh(self) -> int:
        """Follow the process that writes to a folder opened ``readonly``; return its new deltas."""
        return 0 if self._kept is None else self._kept.refresh()

    @property
    def classes_(self) -> np.ndarray[Any, Any]:
        """Classes, or labels, met, in order of arrival; none where nodes have numbers."""
        return label_array(self.learner_.classes)

    def predict(self, ids: Any) -> Any:
        """Return the most likely class of each node, or a list of its labels, or its number."""
        return told_like(self.targets, ids, self.learner_.predict(as_ids(ids, "ids")))

    def predict_proba(self, ids: Any) -> Any:
        """Return the probability of each class, or label, one column per class.

        -> [ids, classes]; of labels each is a probability by itself, and rows do not add up to 1
        """
        if self.targets == "numbers":
            raise ConfigurationError(
                "predict_proba is for classes and labels, and this has numbers"
            )
        classes, matrix = self.learner_.predict_proba(as_ids(ids, "ids"))
        return matrix_like(ids, matrix, classes)

    def embed(self, ids: Any) -> Any:
        """Return the topology-aware embeddings of nodes.  -> [ids, dims]"""
        return matrix_like(ids, self.learner_.embed(as_ids(ids, "ids")))

    def score(self, ids: Any, labels: Any, *, balanced: bool = False) -> float:
        """Return the share of nodes whose class is predicted; balanced: the mean over classes.

        Where targets are labels, micro F1, and balanced macro F1; where they are numbers, R².
        """
        nodes = as_ids(ids, "ids")
        known = [told for _, told in _pairs(nodes, as_told(self.targets, labels, len(nodes)))]
        return told_score(self.targets, self.learner_.predict(nodes), known, balanced=balanced)

    def explain(self, node: Any, *, top: int = 3, limit: int = 20) -> Explanation:
        """Return which nodes speak for which class; see ``Explanation``."""
        return self.learner_.explain(as_ids([node], "ids")[0], top=top, limit=limit)

    def suggest(self, n: int, *, among: Any = None) -> tuple[Suggestion, ...]:
        """Return unlabelled nodes worth asking a person about, and why; see ``Suggestion``.

        n: how many at most; among: ids of nodes that may be asked about, all unless given.

        >>> import torch
        >>> model = ContinualNodeClassifier(width=64)
        >>> model = model.partial_fit(["a", "b", "c"], torch.eye(3), edges=[("a", "b"), ("a", "c")])
        >>> [found.id for found in model.suggest(1)]  # two others look at it
        ['a']
        """
        return self.learner_.suggest(n, among=None if among is None else as_ids(among, "among"))

    def alarms(self) -> tuple[Alarm, ...]:
        """Return the ``Alarm`` that predictions are worse than they were, while they are."""
        return self.learner_.alarms()

    def status(self) -> Status:
        """Return what is known, in numbers."""
        return self.learner_.status()

    def _repr_html_(self) -> str:
        if self._kept is None:
            return super()._repr_html_()
        return f"<p><code>{escape(repr(self))}</code></p>{self.learner_._repr_html_()}"

    def set_params(self, **parameters: Any) -> ContinualNodeClassifier:
        """Change parameters, before any data has come."""
        known = self.get_params()
        for name, value in parameters.items():
            if name not in known:
                raise ConfigurationError(
                    f"ContinualNodeClassifier has no parameter {name!r}: "
                    f"{did_you_mean(name, known)}it takes {', '.join(known)}"
                )
            if self._kept is not None:
                raise ConfigurationError(f"{name} cannot change once data has come: make a new one")
            setattr(self, name, value)
        return self

    def close(self) -> None:
        """Close the folder, if there is one; another process may open it then."""
        if self._kept is not None:
            self._kept.close()


def _as_given(made: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return of what a learner is made with only what parameters of the classifier have said.

    >>> made = {"topology": {"name": "sgc"}, "head": {"name": "auto", "width": 8}, "seed": 3}
    >>> _as_given(made, {"width": 8, "seed": 3})
    {'head': {'width': 8}, 'seed': 3}
    """
    said = {key: made[key] for key in parameters if key in made and key != "head"}
    options = {*(parameters.get("head_options") or ())}
    options |= {key for key in ("width", "objective") if parameters.get(key) is not None}
    options |= {"name"} if "head" in parameters else set()
    options |= {"name", "kind"} if parameters.get("targets", "class") != "class" else set()
    head = {key: value for key, value in made["head"].items() if key in options}
    given = {"head": head} | said if head else said
    if parameters.get("topology") is None:
        given.pop("topology", None)
    return given


def _pairs(nodes: list[NodeId], labels: list[Told | None]) -> list[tuple[NodeId, Told]]:
    """Return nodes with their labels; raise where one is missing."""
    if None in labels:
        raise DataError(f"label of node {nodes[labels.index(None)]!r} is missing")
    return [(n, label) for n, label in zip(nodes, labels, strict=True) if label is not None]
