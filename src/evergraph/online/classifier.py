"""The live learner with the interface of scikit-learn."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import ConfigurationError, check_choice, say
from evergraph.core.targets import target_kinds, target_of
from evergraph.online import conversion
from evergraph.online.additions import AdditionReader
from evergraph.online.codecs.node_rows import features_with_words
from evergraph.online.delta import Delta, NodeId, NodeTarget
from evergraph.online.estimator import Estimator
from evergraph.online.folder.markers import check_chosen
from evergraph.online.heads import FusedHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.learner_state import PATIENCE, PLAIN, TOLERANCE
from evergraph.online.monitor import OnAlarm, report
from evergraph.online.rows import are_rows_with_targets, as_targets, is_rows
from evergraph.online.view.published import CHANCE
from evergraph.tables import Columns, Encoder
from evergraph.tables.choices import columns_of
from evergraph.tables.edges import UNKNOWN_EDGES
from evergraph.tables.names import ColumnNames
from evergraph.topology import TopologyEncoder
from evergraph.topology.cached import Scaling
from evergraph.training.trainer import Objective

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ContinualNodeClassifier(Estimator):
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
        random_state: another name for ``seed``, as scikit-learn has it; if given, it counts.

    Attributes:
        classes_: known classes or labels: the columns of ``predict_proba``, sorted after ``fit``,
            in order of arrival otherwise.
        n_features_in_, feature_names_in_: number and names of the columns of the first rows.
        applied_: the result of the last delta.
        reading_: how each column of the last DataFrame was read, one row per column; empty for
            plain numbers.

    >>> import torch
    >>> model = ContinualNodeClassifier(width=64)
    >>> model = model.partial_fit(["a", "b", "c"], torch.eye(3), ["x", "y", None], [("a", "c")])
    >>> model.predict(["c"])
    array(['x'], dtype='<U1')

    A table without edges, as in scikit-learn:

    >>> model.fit([[0.0, 1.0], [1.0, 0.0]], ["up", "right"]).predict([[0.1, 0.9]])
    array(['up'], dtype='<U2')
    """

    _chance_said = False  # whether it was said that nothing is better than chance

    def __init__(  # noqa: PLR0913
        self,
        *,
        topology: TopologyEncoder | str | Mapping[str, Any] | None = None,
        head: FusedHead | str | Mapping[str, Any] = "auto",
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
        random_state: Any = None,
    ) -> None:
        self.topology, self.head, self.width = topology, head, width
        self.head_options, self.objective = head_options, objective
        self.scaling: Scaling = scaling
        self.undirected, self.seed, self.columns = undirected, seed, columns
        self.targets = targets
        self.tolerance, self.patience, self.on_alarm = tolerance, patience, on_alarm
        self.random_state = random_state

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
        if model.random_state is not None:
            parameters["seed"] = parameters.pop("random_state")
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

    @classmethod
    def load(cls, path: Path | str) -> ContinualNodeClassifier:
        """Return the model that ``save`` wrote, or that a learner's folder holds, in memory."""
        with cls.open(path, readonly=True) as opened:
            return copy.deepcopy(opened)

    def _made(self) -> OnlineLearner:
        check_choice("targets", self.targets, target_kinds.names())
        options = dict(self.head_options or {})
        for name in ("width", "objective"):
            if getattr(self, name) is not None:
                options[name] = getattr(self, name)
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
            **{name: getattr(self, name) for name in PLAIN} | {"seed": self._drawn_seed},
        )

    def partial_fit(  # noqa: PLR0913
        self,
        nodes: Any = None,
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
        classes: Any = None,
        **names: Unpack[ColumnNames],
    ) -> ContinualNodeClassifier:
        """Add nodes, with labels where known, and edges between any nodes.

        Args:
            nodes: ids of the new nodes, empty to add edges only; without it, the new nodes are
                those of ``edges``, and labels are by id. Or rows of features, with their labels
                next, as in ``fit``. Or an object that holds everything: a PyG ``Data`` or
                ``HeteroData`` (with nodes named ``paper/0`` and so on), a NetworkX graph, a SciPy
                adjacency (with ``features`` and ``labels``), a table of nodes with ``id``,
                ``label`` (or ``labels``, or ``target``), ``type`` and features of any kind (and
                ``edges`` as a table), or a pair (nodes, edges).
            features: one row per node; in a DataFrame, columns of any kind, see ``reading_``.
            labels: one per node, or by id; None or NaN if unknown, in a tensor also -1. If targets
                are labels, a list per node or a matrix of 0 and 1; a number if they are numbers.
            edges: pairs of ids, new or known, or triples with a weight; or a tensor [2, edges] of
                ids as in PyG.
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
            classes: not needed; scikit-learn's tools may give it.
            names: of the columns of tables, as ``id="customer_id"``; ``label``, ``source``,
                ``target`` and ``weight`` likewise.
        """
        check_choice("unknown_edges", unknown_edges, UNKNOWN_EDGES)
        options = {
            "edges": edges,
            "edge_weights": edge_weights,
            "relations": relations,
            "types": types,
            "unknown_edges": unknown_edges,
            "repeated": repeated,
            "key": key,
        }
        # The first rows decide how columns are read: threads that bring them come one by one.
        with nullcontext() if self._begun else self._home.lock:
            if labels is None and are_rows_with_targets(nodes, features):
                return self._learn_rows(nodes, features, **options, **names)
            given = {"nodes": nodes, "features": features, "labels": labels, "ids": ids}
            return self._add(self._reader().delta(**given, **options, **names))

    def _reader(self) -> AdditionReader:
        columns = self._home.columns if self._begun else columns_of(self.columns)
        return AdditionReader(self.learner_, columns, self.targets, type(self).__name__)

    def _add(self, delta: Delta) -> ContinualNodeClassifier:
        self._reading = () if delta.scheme is None else delta.scheme.rows()
        return self._submit(delta)

    def remove_edges(self, edges: Any, *, key: str | None = None) -> ContinualNodeClassifier:
        """Remove edges; embeddings are then as if they had never existed."""
        return self._submit(Delta(removed_edges=conversion.as_edges(edges), key=key))

    def update_features(
        self, ids: Any, features: Any, *, key: str | None = None
    ) -> ContinualNodeClassifier:
        """Replace the features of known nodes, as if they had always had these."""
        nodes = conversion.as_ids(ids, "ids")
        rows = features_with_words(self._reader().read(features, len(nodes)))
        delta = Delta(updated=nodes, updated_features=rows, key=key)
        return self._submit(self.learner_.fitting(delta))

    def label(
        self, ids: Any, labels: Any = None, *, key: str | None = None
    ) -> ContinualNodeClassifier:
        """Label known nodes, all of them, as two lists or by id; a label replaces an earlier one."""
        if labels is None and hasattr(ids, "items"):  # a dictionary, or a Series by its index
            pairs = list(ids.items())
            ids, labels = [node for node, _ in pairs], [label for _, label in pairs]
        return self._submit(Delta(late=self._labelled(ids, labels), key=key))

    def _labelled(self, ids: Any, labels: Any) -> list[tuple[NodeId, NodeTarget]]:
        nodes = conversion.as_ids(ids, "ids")
        targets = as_targets(self.targets, labels, len(nodes))
        conversion.check_labelled(nodes, targets)
        return [(n, label) for n, label in zip(nodes, targets, strict=True) if label is not None]

    def forget(self, ids: Any, *, key: str | None = None) -> ContinualNodeClassifier:
        """Remove nodes, their edges and what was learned from them.

        No trace of them is left, except in how columns are read: medians, scales and word counts
        of the first table stay.
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
        if self.learner_.status().better_than_chance is False and not self._chance_said:
            self._chance_said = True
            say("labels", CHANCE)
        if self.on_alarm is not None:
            report(self.learner_.alarms(), self.on_alarm, after=before)
        return self

    @overload
    def predict(self, X: Tensor, **asked: Any) -> Tensor | NDArray[Any]: ...
    @overload
    def predict(self, X: Sequence[Any] | NDArray[Any], **asked: Any) -> NDArray[Any]: ...
    @overload
    def predict(self, X: Any = None, **asked: Any) -> Any: ...

    def predict(self, X: Any = None, *, rows: Any = None, edges: Any = None, **named: Any) -> Any:
        """Return the most likely class of each node, or a list of its labels, or its number.

        Nothing is added to the model: answers about new nodes are those of adding them, asking, and
        forgetting them.

        Args:
            X: ids of nodes; or features of new nodes, a row each.
            rows: new nodes, as a table with ``id`` or an index, or as rows of features by id.
            edges: between any nodes, as in ``partial_fit``.
            named: what else ``partial_fit`` takes about edges and nodes.
        """
        learner, ids, like = self._asked(X, rows, edges=edges, **named)
        return conversion.targets_like(self.targets, like, learner.predict(ids))

    @overload
    def predict_proba(self, X: Tensor, **asked: Any) -> Tensor: ...
    @overload
    def predict_proba(self, X: Sequence[Any] | NDArray[Any], **asked: Any) -> NDArray[Any]: ...
    @overload
    def predict_proba(self, X: Any = None, **asked: Any) -> Any: ...

    def predict_proba(
        self, X: Any = None, *, rows: Any = None, edges: Any = None, **named: Any
    ) -> Any:
        """Return the probability of each class, or label, one column per class; see ``predict``.

        -> [ids, classes]; labels have independent probabilities, so rows do not add up to 1
        """
        target = target_of(self.targets)
        if not target.has_probabilities:
            raise ConfigurationError(f"predict_proba needs classes or labels, not {target.plural}")
        learner, ids, like = self._asked(X, rows, edges=edges, **named)
        classes, matrix = learner.predict_proba(ids)
        return conversion.matrix_like(like, matrix, classes)

    def _asked(
        self, X: Any, rows: Any, *, edges: Any = None, **named: Any
    ) -> tuple[OnlineLearner, list[NodeId], Any]:
        self._check_learned()
        if rows is None and is_rows(X):
            X, rows = None, X
        like = X if rows is None else rows
        ids = None if X is None else conversion.asked_ids(X)
        if rows is None and edges is None:
            return self.learner_, conversion.asked_ids(X), X
        delta = self._reader().question(ids, rows, edges=edges, **named)
        asked = list(delta.nodes) if ids is None else ids
        if edges is None and self.learner_.holds(delta.nodes, delta.features):
            return self.learner_, asked, like
        return self.learner_.after(delta), asked, like

    @overload
    def embed(self, ids: Tensor) -> Tensor: ...
    @overload
    def embed(self, ids: Sequence[Any] | NDArray[Any]) -> NDArray[Any]: ...
    @overload
    def embed(self, ids: Any) -> Any: ...

    def embed(self, ids: Any) -> Any:
        """Return the topology-aware embeddings of nodes.  -> [ids, dims]"""
        return conversion.matrix_like(ids, self.learner_.embed(conversion.as_ids(ids, "ids")))
