"""What scikit-learn's tools and people ask of an estimator, for a model of a growing graph.

Until it is saved, or opened in a folder, the model is kept in memory (``InMemoryLearner``).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph.core.component import Part
from evergraph.core.errors import (
    ConfigurationError,
    InvalidRowsError,
    NothingLearnedError,
    did_you_mean,
)
from evergraph.core.safe_files import Closing
from evergraph.core.targets import OneClass, target_of
from evergraph.datasets.adapters import holds_graph
from evergraph.online import conversion
from evergraph.online.additions import AdditionReader
from evergraph.online.codecs.delta_bytes import delta_to_bytes, digest_of
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder.journal import JOURNAL_FILE, Journal, key_reused
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    acknowledgement,
    make_folder,
    store_columns,
    store_parameters,
)
from evergraph.online.folder.snapshot import publish, write_aside
from evergraph.online.learner import OnlineLearner
from evergraph.online.monitor import Alarm
from evergraph.online.plotting import plot
from evergraph.online.rows import as_targets, is_rows, row_targets, sorted_by_class, target_score
from evergraph.online.view import Explanation, Status, Suggestion
from evergraph.tables.frames import is_a
from evergraph.tables.names import ColumnNames
from evergraph.tables.scheme import Scheme

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Self, Unpack

    from evergraph.online.folder.learner_folder import LearnerFolder


class InMemoryLearner:
    """``LearnerFolder`` without the folder: the same interface, in memory only.

    >>> kept = InMemoryLearner(OnlineLearner())
    >>> kept.submit(Delta(key="first")) == kept.submit(Delta(key="first"))
    True
    """

    def __init__(self, learner: OnlineLearner) -> None:
        self.learner = learner
        self.columns: Scheme | None = None
        # Digest and result of deltas with keys, which a folder drops one day.
        self._keys: dict[str, tuple[bytes, DeltaResult]] = {}

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """What is held while the learner changes."""
        return self.learner.writing

    def submit(self, delta: Delta) -> DeltaResult:
        """Apply a delta, unless one with its key was applied before."""
        if delta.key is None:
            return self._apply(delta)
        digest = digest_of(delta_to_bytes(self.learner.fitting(delta)))
        with self.lock:
            if delta.key not in self._keys:
                self._keys[delta.key] = digest, self._apply(delta)
        known, result = self._keys[delta.key]
        if digest != known:
            raise key_reused(delta.key, result.seq)
        return result

    def _apply(self, delta: Delta) -> DeltaResult:
        with self.lock:
            checked = self.learner.check(delta)
            if len(delta.nodes) and not self.learner.status().features:
                self.columns = delta.scheme
            return self.learner.apply(checked)

    def refresh(self) -> int:
        """Do nothing: there is no other writer."""
        return 0

    def close(self) -> None:
        """Do nothing."""


def save_learner(path: Path, learner: OnlineLearner, columns: Scheme | None) -> None:
    """Write a learner to a new folder, as if it had been there all the time and was purged."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigurationError(f"{path} must be a new or empty folder to save a model in")
    make_folder(path)
    with learner.writing:
        seq, about = learner.status().seq, learner.about() | {"threads": learner.threads}
        store_columns(path, columns)
        if seq:
            publish(write_aside(path, seq, learner.state(), about), seq)
            (path / ACKNOWLEDGED_FILE).write_bytes(acknowledgement(seq))
    with closing(Journal(path / JOURNAL_FILE)) as journal:
        if seq:
            journal.begin_anew(seq, keys=True)
    # Last: a folder with parameters is whole.
    store_parameters(path, learner.parameters)


class Estimator(Part, Closing):
    """The habits of scikit-learn: begin anew with ``fit``, parameters, scores, copies; and facts.

    Nothing here imports scikit-learn unless it asks for its own tags.
    """

    seed: int
    random_state: Any
    targets: str
    _kept: InMemoryLearner | LearnerFolder | None = None  # from the first data on
    _reading: Sequence[dict[str, str]] = ()

    if TYPE_CHECKING:  # of the model

        def _made(self) -> OnlineLearner: ...
        def _reader(self) -> AdditionReader: ...
        def _add(self, delta: Delta) -> Self: ...
        def _asked(
            self, X: Any, rows: Any, **named: Any
        ) -> tuple[OnlineLearner, list[Any], Any]: ...
        def partial_fit(self, nodes: Any, *given: Any, **named: Any) -> Self: ...
        def predict_proba(self, X: Any = None, **asked: Any) -> Any: ...

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
        return self._kept is not None and self.learner_.status().features > 0

    @property
    def _drawn_seed(self) -> int:
        if self.random_state is None:
            return self.seed
        if hasattr(self.random_state, "randint"):  # NumPy's RandomState
            return int(self.random_state.randint(2**31 - 1))
        return int(self.random_state)

    def fit(self, X: Any = None, y: Any = None, *, edges: Any = None, **named: Any) -> Self:
        """Begin anew and learn rows, nodes of a graph or tables; ``partial_fit`` goes on.

        Args:
            X: a row of features per node: an array, a sparse matrix or a DataFrame, whose index
                then has the ids; otherwise ids are 0, 1, 2, ... Or all that ``partial_fit`` takes
                in one object, without y.
            y: the target of each row; None or NaN if unknown. ``classes_`` are sorted.
            edges: between ids, as in ``partial_fit``; a table without edges needs none.
            named: further arguments of ``partial_fit``.
        """
        if "sample_weight" in named:
            raise InvalidRowsError(
                "sample_weight cannot be given: every labelled node counts alike "
                "(objective='plain'), or every class (objective='balanced')"
            )
        if not isinstance(self._kept, InMemoryLearner | None):
            raise ConfigurationError(
                "fit begins anew, which a model in a folder cannot: use partial_fit, or another "
                "folder"
            )
        for name in ("_kept", "applied_", "_reading", "_chance_said"):
            vars(self).pop(name, None)
        by_node = y is None or isinstance(y, Mapping)
        if by_node and X is not None and (holds_graph(X) or edges is not None):
            return self.partial_fit(X, labels=y, edges=edges, **named)
        if X is None:
            return self.partial_fit(None, labels=y, edges=edges, **named)
        return self._learn_rows(X, y, edges=edges, some=True, **named)

    def _learn_rows(self, X: Any, y: Any, *, some: bool = False, **named: Any) -> Self:
        """Learn rows; some: whether to refuse them if none has a target."""
        reader = self._reader()
        rows = reader.checked(X)
        labels = row_targets(self.targets, y, rows.shape[0], name=reader.name)
        if some and not any(label is not None for label in labels):
            raise InvalidRowsError("Input y contains NaN or None alone: no row has a target")
        delta = reader.rows(rows, labels, **named)
        return self._add(sorted_by_class(delta) if target_of(self.targets).is_class else delta)

    @property
    def classes_(self) -> np.ndarray[Any, Any]:
        """Known classes or labels, in order of arrival; empty for numbers."""
        return OneClass().array(self.learner_.classes)

    @property
    def n_features_in_(self) -> int:
        """How many columns the first rows had."""
        self._check_begun("n_features_in_")
        scheme = self._home.columns
        return self.learner_.status().features if scheme is None else len(scheme.columns)

    @property
    def feature_names_in_(self) -> np.ndarray[Any, Any]:
        """Names of the columns of the first rows, if they had names."""
        self._check_begun("feature_names_in_")
        if (scheme := self._home.columns) is None:
            raise AttributeError("feature_names_in_: the first rows had no column names")
        return np.array([each.name for each in scheme.columns], dtype=object)

    def _check_begun(self, name: str) -> None:
        if not self._begun:
            raise AttributeError(f"{name} is known after fit or partial_fit")

    @property
    def reading_(self) -> list[dict[str, str]]:
        """How each column of the last DataFrame was read; empty for plain numbers."""
        return list(self._reading)

    def predict_log_proba(self, X: Any = None, **asked: Any) -> Any:
        """Return the logarithms of ``predict_proba``, with the same arguments."""
        shares = self.predict_proba(X, **asked).clip(np.finfo(np.float32).tiny)
        return shares.log() if hasattr(shares, "log") else np.log(shares)

    def decision_function(self, X: Any = None, **asked: Any) -> Any:
        """Return a score per class, or how much likelier the second of two classes is, as a log.

        Arguments are those of ``predict_proba``.  -> [n, classes], or [n] for two classes
        """
        scores = self.predict_log_proba(X, **asked)
        if not target_of(self.targets).is_class or scores.shape[1] != 2:
            return scores
        sides = scores.iloc if is_a(scores, "pandas") else scores
        return sides[:, 1] - sides[:, 0]

    def score(self, X: Any, y: Any, *, balanced: bool = False) -> float:
        """Return the accuracy, micro F1 of labels or R² of ids or rows; balanced: over classes."""
        learner, ids, _ = self._asked(X, None)
        if is_rows(X):
            right = row_targets(self.targets, y, len(ids), name=type(self).__name__)
        else:
            right = as_targets(self.targets, y, len(ids))
        conversion.check_labelled(ids, right)
        return target_score(self.targets, learner.predict(ids), right, balanced=balanced)

    def explain(
        self,
        node: Any,
        *,
        top: int = 3,
        limit: int = 20,
        rows: Any = None,
        **names: Unpack[ColumnNames],
    ) -> Explanation:
        """Explain a prediction by at most ``limit`` nodes and columns, for ``top`` classes.

        rows: a table of nodes as ``partial_fit`` had it; its categories and words are then named,
        of which a model keeps hashes only. names: of its columns, as in ``partial_fit``.
        """
        scheme, values = self._home.columns, None
        if rows is not None and scheme is not None:
            values = scheme.values_in(conversion.table_of_nodes(rows, names, self.targets))
        return self.learner_.explain(
            conversion.as_ids([node], "ids")[0],
            top=top,
            limit=limit,
            columns=() if scheme is None else scheme.columns_of_features,
            values=values,
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

    def _check_learned(self) -> None:
        """Raise what scikit-learn expects of an estimator that has learned nothing."""
        if self._begun:
            return
        sentence = f"{type(self).__name__} has no nodes yet: call fit or partial_fit first"
        if (sklearn_exceptions := sys.modules.get("sklearn.exceptions")) is None:
            raise NothingLearnedError(sentence)
        raise type("NotFittedError", (NothingLearnedError, sklearn_exceptions.NotFittedError), {})(
            sentence
        )

    def __sklearn_is_fitted__(self) -> bool:
        return self._begun

    def __sklearn_tags__(self) -> Any:
        from sklearn import utils

        numbers = not target_of(self.targets).is_named
        return utils.Tags(
            estimator_type="regressor" if numbers else "classifier",
            target_tags=utils.TargetTags(required=True),
            classifier_tags=None if numbers else utils.ClassifierTags(),
            regressor_tags=utils.RegressorTags() if numbers else None,
            input_tags=utils.InputTags(sparse=True, allow_nan=False),
        )

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters, also of a part (``topology__hops``); ``fit`` then uses them.

        The parameters of a folder cannot change.
        """
        known = self.get_params(deep=True)
        for name, value in parameters.items():
            if name not in known:
                raise ConfigurationError(
                    f"{type(self).__name__} has no parameter {name!r}: "
                    f"{did_you_mean(name, known)}it takes {', '.join(known)}"
                )
            if not isinstance(self._kept, InMemoryLearner | None):
                raise ConfigurationError(f"{name} cannot change: the model is in a folder")
            own, _, inner = name.partition("__")
            if inner:
                part = getattr(self, own)
                value = type(part)(**part.get_params() | {inner: value})
            setattr(self, own, value)
        return self

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        if not isinstance(self._kept, InMemoryLearner | None):  # a copy of a folder is in memory
            state["_kept"] = InMemoryLearner(self.learner_)
            state["_kept"].columns = self._home.columns
        return state

    def save(self, path: Path | str) -> None:
        """Write the model to a new folder, without pickle: safe to open from strangers.

        ``load`` reads it into memory, and ``open`` and the command line go on with it in place.
        """
        save_learner(Path(path), self.learner_, self._home.columns)

    def refresh(self) -> int:
        """Apply deltas that the writing process has added, if ``readonly``; return how many."""
        return 0 if self._kept is None else self._kept.refresh()

    def close(self) -> None:
        """Close the folder, if there is one, so that another process can open it."""
        if self._kept is not None:
            self._kept.close()
