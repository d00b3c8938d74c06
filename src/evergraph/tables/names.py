"""Names that a user's tables have for the columns with a meaning, and hints at such names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypedDict

from evergraph.core.errors import ConfigurationError, DataError, did_you_mean, say_ignored
from evergraph.tables.arrow import pa, pc
from evergraph.tables.columns import is_text
from evergraph.tables.labels import meant_as_label, target_names

ENDS = ("source", "target")
OF_NODES = ("id", "label")
OF_EDGES = (*ENDS, "weight")
Names = Mapping[str, str]
"""Our names of columns, by the names that they have in a table."""
# What the two ends of an edge are often called; a further word may follow, as in ``from_id``.
_PAIRS = (
    ("from", "to"),
    ("src", "dst"),
    ("src", "dest"),
    ("u", "v"),
    ("head", "tail"),
    ("start", "end"),
    ("sender", "receiver"),
    ("payer", "payee"),
    ("parent", "child"),
    ("citing", "cited"),
    ("a", "b"),
)
_REPLACED = "\0"  # marks a column whose name another one takes


class ColumnNames(TypedDict, total=False):
    """The user's names of columns, as keywords.

    Attributes:
        id: the column with the ids of nodes.
        label: the column with the target of nodes.
        source: the column with the ids in which edges begin.
        target: the column with the ids in which edges end.
        weight: the column with the weights of edges.
    """

    id: str | None
    label: str | None
    source: str | None
    target: str | None
    weight: str | None


def of_nodes(given: Mapping[str, object], *, label: str = "label") -> dict[str, str]:
    """Return our names by the user's in a table of nodes.  label: what the target is called here

    >>> of_nodes({"id": "customer_id", "source": "payer"})
    {'customer_id': 'id'}
    """
    return _by_theirs(given, {"id": "id", "label": label})


def of_edges(given: Mapping[str, object]) -> dict[str, str]:
    """Return our names by the user's in a table of edges."""
    return _by_theirs(given, {name: name for name in OF_EDGES})


def _by_theirs(given: Mapping[str, object], called: Mapping[str, str]) -> dict[str, str]:
    for name in given:
        if name not in (*OF_NODES, *OF_EDGES):
            known = ", ".join((*OF_NODES, *OF_EDGES))
            hint = did_you_mean(name, (*OF_NODES, *OF_EDGES))
            raise ConfigurationError(f"no parameter {name!r}: {hint}columns are named by {known}")
    named = {ours: str(theirs) for ours, theirs in given.items() if ours in called and theirs}
    if len(set(named.values())) < len(named):
        raise ConfigurationError(f"columns must be named once each, not {named}")
    return {theirs: called[ours] for ours, theirs in named.items()}


def in_our_words(columns: Sequence[str], names: Names) -> list[str]:
    """Return our names of columns, in their order; see ``without_replaced``.

    >>> in_our_words(["customer_id", "age"], {"customer_id": "id"})
    ['id', 'age']
    """
    for theirs, ours in names.items():
        if theirs not in columns:
            raise DataError(
                f"has no column {theirs!r}, which was named as {ours!r}: "
                f"{did_you_mean(theirs, columns)}it has {', '.join(columns)}"
            )
    taken = set(names.values())
    return [
        names[name] if name in names else _REPLACED * (name in taken) + name for name in columns
    ]


def without_replaced(columns: Iterable[str]) -> list[str]:
    """Return the columns whose name no other column has taken."""
    return [name for name in columns if not name.startswith(_REPLACED)]


def renamed(table: pa.Table, names: Names) -> pa.Table:
    """Return a table under our names, without columns whose name another one takes."""
    if not names:
        return table
    table = table.rename_columns(in_our_words(table.column_names, names))
    return table.select(without_replaced(table.column_names))


@contextmanager
def worded(names: Names) -> Iterator[None]:
    """Let any DataError about a column call it as the user does.

    Readers know columns by our names alone, so that this is the one place which knows both.

    >>> with worded({"payee": "target"}):
    ...     raise DataError("row 2 has no value in column 'target': expected one")
    Traceback (most recent call last):
    evergraph.core.errors.DataError: row 2 has no value in column 'payee': expected one
    """
    try:
        yield
    except DataError as error:
        sentence = str(error)
        for theirs, ours in names.items():
            named = re.compile(rf"(\bcolumn '|\brow \d+ has |\brepeats ){ours}\b")
            sentence = named.sub(r"\g<1>" + theirs.replace("\\", r"\\"), sentence)
        if sentence == str(error):
            raise
        raise DataError(sentence) from error


def say_replaced(where: object, columns: Iterable[str], names: Names) -> None:
    """Warn about columns that are not used since the user named others in their place."""
    given = set(columns)
    for theirs, ours in names.items():
        if ours in given and ours not in names:
            say_ignored(where, "column", [ours], f"{theirs!r} was named in its place")


def is_called_id(name: str) -> bool:
    """Whether the last word of a column name marks an id.

    >>> is_called_id("user_id"), is_called_id("userId"), is_called_id("amount_paid")
    (True, True, False)
    """
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return bool(words) and words[-1].lower() in ("id", "no", "nr", "key", "uuid")


def check_columns(
    found: Sequence[str], needed: Iterable[str], sample: Callable[[], pa.Table] | None = None
) -> None:
    """Raise unless every needed column occurs, and every column only once.

    sample: returns the first rows, by which columns that may be meant are known.
    """
    for name in needed:
        if name not in found:
            table = pa.table({each: pa.nulls(0) for each in found}) if sample is None else sample()
            raise missing_column(name, table)
    for name, count in Counter(found).items():
        if count > 1:
            raise DataError(f"has {count} columns named {name!r}: expected one")


def delimiter_hint(columns: Sequence[str]) -> str:
    """Return a hint if the header looks like a single joined column, or an empty text.

    >>> delimiter_hint(["id;label;size"]), delimiter_hint(["id", "label"])
    ("; is it written with --delimiter ';'?", '')
    """
    signs = [sign for sign in ";\t|" if len(columns) == 1 and sign in columns[0]]
    return f"; is it written with --delimiter {signs[0]!r}?" if signs else ""


def missing_column(name: str, table: pa.Table) -> DataError:
    """Return the error for a table without a column, with the arguments that would name it.

    The command line turns them into its options. table: the first rows.

    >>> missing_column("id", pa.table({"customer": ["c1", "c2"], "age": [40, 40]})).args[0]
    "has no column 'id': it has customer, age; is it id='customer'?"
    >>> missing_column("source", pa.table({"payer": [1], "payee": [2], "amount": [9.5]})).args[0]
    "has no column 'source': it has payer, payee, amount; are they source='payer', target='payee'?"
    """
    hint = delimiter_hint(table.column_names)
    likely = {"id": _likely_id, "label": _likely_label}.get(name, _likely_ends)(table)
    columns = table.column_names
    if name == "id" and likely and not ("label" in columns or target_names(columns)):
        likely |= _likely_label(table.drop_columns([likely["id"]]))
    if likely and not hint:
        named = ", ".join(f"{ours}={theirs!r}" for ours, theirs in likely.items())
        hint = f"; {'are they' if len(likely) > 1 else 'is it'} {named}?"
    listed = ", ".join(table.column_names) or "no columns"
    return DataError(f"has no column {name!r}: it has {listed}{hint}")


def _likely_id(table: pa.Table) -> dict[str, str]:
    """Return the column of ids: one that is called so, or whose values all differ."""
    names = [name for name in table.column_names if _may_be_ids(table.schema.field(name).type)]
    distinct = [
        name
        for name in names
        if table.num_rows > 1 and pc.count_distinct(table[name]).as_py() == table.num_rows
    ]
    called = [name for name in distinct or names if is_called_id(name)]
    likely = called or distinct
    return {"id": likely[0]} if likely else {}


def _likely_label(table: pa.Table) -> dict[str, str]:
    """Return the column of labels: one that is called so, or texts of which there are few."""
    texts = [name for name in table.column_names if is_text(table.schema.field(name).type)]
    few = [
        name for name in texts if 2 <= pc.count_distinct(table[name]).as_py() <= table.num_rows / 4
    ]
    likely = meant_as_label(table.column_names) or few
    return {"label": likely[0]} if likely else {}


def _likely_ends(table: pa.Table) -> dict[str, str]:
    """Return the columns of the two ends: a usual pair of names, or the first two that may be."""
    names = [name for name in table.column_names if _may_be_ids(table.schema.field(name).type)]
    words = {re.split(r"[\W_]", name.lower())[0]: name for name in reversed(names)}
    for pair in _PAIRS:
        if all(word in words for word in pair):
            return {ours: words[word] for ours, word in zip(ENDS, pair, strict=True)}
    missing = [end for end in ENDS if end not in table.column_names]
    others = [name for name in names if name not in OF_EDGES]
    return dict(zip(missing, others, strict=False)) if len(others) >= len(missing) else {}


def _may_be_ids(kind: pa.DataType) -> bool:
    return is_text(kind) or bool(pa.types.is_integer(kind))
