"""Bodies as deltas of one learner: parsed, bounded, and encoded by its scheme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evergraph.core.errors import DataError
from evergraph.core.extras import installed
from evergraph.core.notices import say
from evergraph.graphs.repeats import say_repeated
from evergraph.online.conversion import read_columns
from evergraph.online.delta import is_empty
from evergraph.online.upsert import without_repeats
from evergraph.server.arrow import read_arrow
from evergraph.server.bodies import DELTAS, Steps, check_named, parse_in_steps
from evergraph.server.http import ARROW, RefusedError
from evergraph.tables.arrow import pa
from evergraph.tables.choices import Columns
from evergraph.tables.frames import table_of_rows
from evergraph.tables.labels import one_label, say_unlabelled
from evergraph.tables.nodes import RESERVED, say_by_position
from evergraph.tables.scheme import Scheme

if TYPE_CHECKING:
    from evergraph.online.delta import Delta
    from evergraph.online.folder.learner_folder import LearnerFolder

Read = tuple["Delta", Scheme | None]
RAW = (
    "the learner scales and encodes named columns, and these numbers are used as they are: send "
    "rows to have them encoded"
)


class DeltaReader:
    """Reads the deltas that are sent to a learner, each of which may name ``most`` nodes."""

    def __init__(self, folder: LearnerFolder, *, most: int) -> None:
        self._folder = folder
        self._most = most
        self._said: set[str] = set()  # notices that were given, once each

    def read(self, body: bytes, *, model: str, kind: str, repeated: str = "last") -> Steps[Read]:
        """Return the delta in a body, and the scheme by which its columns were read, if any.

        Rejected is what is malformed, is empty or names too many nodes. model: a key of ``DELTAS``;
        kind: media type; repeated: for edges that it lists several times.
        """
        delta, scheme = yield from self._read(body, model=model, kind=kind)
        rows, both_ways = len(delta.edges), self._folder.learner.undirected
        delta, again = without_repeats(delta, repeated, both_ways=both_ways)
        if again and repeated not in self._said:
            self._said.add(repeated)
            say_repeated("a delta", again, rows, repeated)
        return delta, scheme

    def _read(self, body: bytes, *, model: str, kind: str) -> Steps[Read]:
        rows: Sequence[Mapping[str, Any]] = ()
        arrow = read_arrow(body) if kind == ARROW else None
        if arrow is not None:
            delta = arrow.delta
        else:
            parsed = yield from parse_in_steps(DELTAS[model], body)
            delta, rows = parsed.delta(), getattr(parsed, "rows", ())
        if is_empty(delta) and not rows:
            raise RefusedError(
                422, "a delta must add, change or remove something, and this is empty"
            )
        named = map(len, (delta.nodes, delta.late, delta.forgotten, delta.updated, rows))
        check_named("delta", max(named), self._most)
        if arrow is not None and arrow.read:
            return delta, _sent_scheme(arrow.scheme, delta)
        if arrow is not None:
            late = [(node, self._late(node, label)) for node, label in delta.late]
            tables = {
                part: pa.table(dict(zip(names, getattr(delta, part).T.numpy(), strict=True)))
                for part, names in arrow.names.items()
            }
            return self._encoded(replace(delta, late=late), tables, "Arrow")
        if rows:
            return self._with_rows(delta, rows)
        raw = len(delta.features) or len(delta.updated_features)
        if raw and RAW not in self._said and self._folder.columns is not None:
            self._said.add(RAW)
            say("features", RAW)
        return delta, None

    def _with_rows(self, delta: Delta, rows: Sequence[Mapping[str, Any]]) -> Read:
        if len(delta.nodes) or len(delta.features):
            raise RefusedError(422, "a body must have nodes with features or rows, not both")
        if not installed("pyarrow"):
            raise RefusedError(422, "rows cannot be read: pyarrow is not installed in this service")
        for number, row in enumerate(rows, start=1):
            if row.get("id") is None:
                raise DataError(f"rows: row {number} has no 'id'")
        rows = [{name.strip(): value for name, value in row.items()} for row in rows]
        scheme = self._folder.columns
        known = [] if scheme is None else [each.name for each in scheme.columns]
        given = (name for row in rows for name in row if name not in RESERVED)
        # A column that is in no row has a gap in each, as one that is in some of them has.
        table = table_of_rows(rows, dict.fromkeys([*known, *given]), as_texts=True)
        nodes = tuple(row["id"] for row in rows)
        labels = tuple(row.get("label") for row in rows)
        return self._encoded(
            replace(delta, nodes=nodes, labels=labels), {"features": table}, "rows"
        )

    def _encoded(self, delta: Delta, tables: Mapping[str, pa.Table], where: str) -> Read:
        """Return a delta with labels and named columns as the learner reads them.

        The first that a learner receives decide how columns are read.  tables: columns by name, of
        ``features`` and ``updated_features``
        """
        delta = replace(delta, labels=tuple(map(self._label, delta.labels)))
        columns: Scheme | Columns | None = Columns()
        if self._folder.learner.status().features:
            columns = self._folder.columns
        if columns is None and where == "rows":
            raise DataError("rows: the learner began with plain numbers: send nodes and features")
        if columns is None:  # columns count by position
            if tables and where not in self._said:
                self._said.add(where)
                say_by_position(where, [*tables])
            return delta, None
        if isinstance(columns, Columns) and tables and all(lab is None for lab in delta.labels):
            say_unlabelled(where, next(iter(tables.values())).column_names)
        scheme, parts = None, dict[str, Any]()
        for part, table in tables.items():
            read = read_columns(table, columns, delta.labels, where=where)
            assert read.scheme is not None
            scheme = columns = read.scheme
            parts[part] = read.features
        return replace(delta, **parts), scheme

    def _label(self, label: Any) -> Any:
        """Return a label of a table, None for a spelling that stands for no class."""
        is_class = self._folder.learner.head.target.is_class and not isinstance(label, list)
        return one_label(label) if is_class else label

    def _late(self, node: object, label: Any) -> Any:
        found = self._label(label)
        if found is None:
            raise DataError(
                f"the label of {node!r} is {label!r}, which stands for none: expected one"
            )
        return found


def _sent_scheme(sent: Mapping[str, Any] | None, delta: Delta) -> Scheme | None:
    """Return the scheme that a client sent with the features that it encoded by it."""
    if sent is None or not len(delta.nodes):
        return None
    scheme = Scheme.from_json(sent)
    if scheme.width != delta.features.shape[1]:
        raise DataError(
            f"columns give {scheme.width} features, and {delta.features.shape[1]} were sent"
        )
    return scheme
