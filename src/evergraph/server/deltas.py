"""Bodies as deltas of one learner: parsed, bounded, and encoded by its scheme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from evergraph.core.errors import DataError, say
from evergraph.core.packages import installed
from evergraph.graphs.validation import say_repeated
from evergraph.online.codecs.tables import features_with_words, read_rows, word_columns
from evergraph.online.delta import is_empty
from evergraph.online.folder.markers import check_chosen
from evergraph.online.upsert import without_repeats
from evergraph.server.arrow import ArrowReader
from evergraph.server.bodies import DELTAS, parse
from evergraph.server.http import ARROW, RefusedError, check_named
from evergraph.tables.choices import Columns
from evergraph.tables.frames import table_of_rows
from evergraph.tables.names import OF_NODES, of_nodes, renamed, worded
from evergraph.tables.nodes import feature_names
from evergraph.tables.scheme import Scheme

if TYPE_CHECKING:
    from evergraph.online.delta import Delta
    from evergraph.online.folder.learner_folder import LearnerFolder

Read = tuple["Delta", Scheme | None]
RAW = (
    "the learner scales and encodes named columns, and these numbers are used as they are: send "
    "rows to have them encoded"
)


@dataclass(frozen=True)
class ColumnsOfBody:
    """What a request says about the columns of its body."""

    names: Mapping[str, str] = field(default_factory=dict)  # the user's names of columns, by ours
    columns: Columns | None = None  # how they are read, if the learner has no columns yet


class DeltaReader:
    """Reads the deltas that are sent to a learner, each of which may name ``most`` nodes."""

    def __init__(self, folder: LearnerFolder, *, most: int) -> None:
        self._folder = folder
        self._most = most
        self._said: set[str] = set()  # notices that were given, once each

    def read(
        self,
        body: bytes,
        *,
        model: str,
        kind: str,
        repeated: str = "last",
        own_columns: ColumnsOfBody | None = None,
    ) -> Read:
        """Return the delta in a body, and the scheme by which its columns were read, if any.

        model: a key of ``DELTAS``; kind: media type; repeated: for edges that it lists several
        times; own_columns: about its columns.
        """
        delta, scheme = self._read(
            body, model=model, kind=kind, own_columns=own_columns or ColumnsOfBody()
        )
        rows, both_ways = len(delta.edges), self._folder.learner.undirected
        delta, again = without_repeats(delta, repeated, both_ways=both_ways)
        if again and repeated not in self._said:
            self._said.add(repeated)
            say_repeated("a delta", again, rows, repeated)
        return delta, scheme

    def _read(self, body: bytes, *, model: str, kind: str, own_columns: ColumnsOfBody) -> Read:
        rows: Sequence[Mapping[str, Any]] = ()
        scheme: Scheme | None = None
        if kind == ARROW:
            reader = ArrowReader(
                columns=self._reading(own_columns.columns),
                kind=self._folder.learner.head.target.name,
                names=own_columns.names,
                nodes=self._most,
                said=self._said,
            )
            delta, scheme = reader.read(body)
        else:
            parsed = parse(DELTAS[model], body)
            delta, rows = parsed.delta(), getattr(parsed, "rows", ())
        if is_empty(delta) and not rows:
            raise RefusedError(
                422, "a delta must add, change or remove something, and this is empty"
            )
        named = map(len, (delta.nodes, delta.late, delta.forgotten, delta.updated, rows))
        check_named("delta", max(named), self._most)
        if rows:
            return self._with_rows(delta, rows, own_columns)
        raw = kind != ARROW and (len(delta.features) or len(delta.updated_features))
        if raw and RAW not in self._said and self._folder.columns is not None:
            self._said.add(RAW)
            say("features", RAW)
        return delta, scheme

    def _with_rows(
        self, delta: Delta, rows: Sequence[Mapping[str, Any]], own_columns: ColumnsOfBody
    ) -> Read:
        if len(delta.nodes) or len(delta.features):
            raise RefusedError(422, "a body must have nodes with features or rows, not both")
        if not installed("pyarrow"):
            raise RefusedError(422, "rows cannot be read: pyarrow is not installed in this service")
        columns, kind = self._reading(own_columns.columns), self._folder.learner.head.target
        # A column that is in no row has a gap in each, as one that is in some of them has.
        known = [each.name for each in columns.columns] if isinstance(columns, Scheme) else []
        theirs = of_nodes(own_columns.names)
        called = {name: name for name in OF_NODES} | theirs
        words = {name: called.get(name.strip(), name.strip()) for row in rows for name in row}
        ours = [{words[name]: value for name, value in row.items()} for row in rows]
        table = table_of_rows(ours, known)
        if columns is None and feature_names(table.column_names):
            raise DataError("rows: the learner began with plain numbers: send nodes and features")
        target = {"label": kind.column} if "label" in table.column_names else {}
        with worded(theirs):
            read = read_rows(renamed(table, target), columns, kind.name, where="rows")
        delta = replace(
            delta,
            nodes=read.ids.to_pylist(),
            features=features_with_words(read.features),
            words=word_columns(read.features.scheme),
            labels=read.targets(),
            types=() if read.types is None else read.types.to_pylist(),
        )
        return delta, read.features.scheme

    def _reading(self, choices: Columns | None) -> Columns | Scheme | None:
        """Return how columns are read: as the first were, or by the choices of a first body."""
        if not self._folder.learner.status().features:
            return choices or Columns()
        if choices is not None:
            check_chosen("columns", self._folder.columns, choices)
        return self._folder.columns
