"""Tables that a database makes of a query, read batch by batch as those of files are.

sqlite:graph.db            a file of SQLite
duckdb:graph.db            a file of DuckDB; duckdb: alone for queries over Parquet or CSV files
adbc:DRIVER:URI            anything that an ADBC driver speaks to, such as
                           adbc:adbc_driver_postgresql:postgresql://localhost/graph
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from evergraph.core.checks import check_choice
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.extras import installed, require
from evergraph.datasets.download import reason
from evergraph.datasets.files.csv_table import CsvTable
from evergraph.datasets.files.table_columns import plainly_typed
from evergraph.datasets.importing.stored_file import StoredFile

if TYPE_CHECKING:
    import pyarrow

KINDS = ("sqlite", "duckdb", "adbc")
_BYTES_A_VALUE = 16  # of a row that a database gives, about
_AT_ONCE = 1 << 24  # bytes of a batch where all rows are wanted
_SHOWN = 60  # letters of a query in a message


@dataclass(frozen=True)
class Query:
    """What stands in the place of a table's path.

    Attributes:
        kind: of the database, one of ``KINDS``.
        place: its file, or the driver and the address of a server.
        sql: a query that gives the table.
        asked: when; it tells apart two looks at a server, whose changes nobody can see.

    >>> query = Query.of("sqlite:graph.db", "select * from papers;")
    >>> query, str(query), query.file
    (Query(sqlite:graph.db: select * from papers), 'sqlite:graph.db: select * from papers', \
PosixPath('graph.db'))
    """

    kind: str
    place: str
    sql: str
    asked: int = field(default_factory=time.time_ns)

    @classmethod
    def of(cls, source: str, sql: str) -> Query:
        """Return a query to a database as ``--from`` names it."""
        kind, _, place = source.partition(":")
        check_choice("database", kind, KINDS)
        if kind == "adbc" and ":" not in place:
            raise ConfigurationError(f"--from must be adbc:DRIVER:URI for ADBC, not {source!r}")
        if kind == "sqlite" and not place:
            raise ConfigurationError("--from must name a file behind sqlite:, and names none")
        return cls(kind, place, sql.strip().rstrip(";"))

    @property
    def file(self) -> Path | None:
        """The file of the database, None where it has none."""
        return Path(self.place) if self.kind != "adbc" and self.place else None

    @property
    def suffix(self) -> str:
        """As that of the one kind of file whose columns have types, which a query's have too."""
        return ".parquet"

    def __str__(self) -> str:
        # The address of a server may hold a password.
        place = self.place if self.kind != "adbc" else self.place.partition(":")[0]
        sql = " ".join(self.sql.split())
        short = sql if len(sql) <= _SHOWN else f"{sql[: _SHOWN - 3]}..."
        return f"{self.kind}:{place}: {short}"

    def __repr__(self) -> str:
        return f"Query({self})"


Source: TypeAlias = Path | CsvTable | StoredFile | Query
"""Where a table comes from."""


@dataclass(frozen=True)
class Answer:
    """A table on its way: its columns, how many rows if that is known, and the rows."""

    schema: pyarrow.Schema
    total: int | None
    batches: Iterator[pyarrow.RecordBatch]


@contextmanager
def answered(query: Query, *, size: int, skip: int) -> Iterator[Answer]:
    """Ask a database, and hang up in the end.

    size: of a batch, in bytes, about; skip: how many rows to leave out, of a file that has not
    changed since they were read.
    """
    ask = {"sqlite": _sqlite, "duckdb": _duckdb, "adbc": _adbc}[query.kind]
    with ask(query, size, skip) as answer:
        yield answer


def whole_answer(query: Query) -> pyarrow.Table:
    """Return all rows that a database gives."""
    import pyarrow as pa

    with answered(query, size=_AT_ONCE, skip=0) as answer:
        return plainly_typed(pa.Table.from_batches(answer.batches, answer.schema))


@contextmanager
def _sqlite(query: Query, size: int, skip: int) -> Iterator[Answer]:
    path = Path(query.place)
    if not path.is_file():
        raise DataError("no such file")
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            schema, total = _sqlite_schema(connection, query.sql)
            rows = max(1, size // (_BYTES_A_VALUE * max(len(schema), 1)))
            found = connection.execute(f"SELECT * FROM ({query.sql}) LIMIT -1 OFFSET ?", (skip,))
            yield Answer(schema, total, _sqlite_batches(found, schema, rows))
    except sqlite3.Error as error:
        raise DataError(f"SQLite says: {reason(error)}") from error


def _sqlite_schema(connection: sqlite3.Connection, sql: str) -> tuple[pyarrow.Schema, int]:
    """Return the type of each column and the number of rows.

    In SQLite every value has a type of its own: a column has the widest of its values'.
    """
    import pyarrow as pa

    listed = connection.execute(f"SELECT * FROM ({sql}) LIMIT 0").description
    names = [column[0] for column in listed]
    widest = ", ".join(
        f"max(CASE typeof({_quoted(name)}) WHEN 'null' THEN 0 WHEN 'integer' THEN 1 "
        "WHEN 'real' THEN 2 WHEN 'text' THEN 3 ELSE 4 END)"
        for name in names
    )
    total, *found = connection.execute(f"SELECT count(*), {widest} FROM ({sql})").fetchone()
    kinds = (pa.null(), pa.int64(), pa.float64(), pa.string(), pa.binary())
    return pa.schema([(n, kinds[k or 0]) for n, k in zip(names, found, strict=True)]), total


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _sqlite_batches(
    cursor: sqlite3.Cursor, schema: pyarrow.Schema, rows: int
) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow as pa

    while found := cursor.fetchmany(rows):
        columns = [
            pa.array([_as(value, kind) for value in values], kind)
            for values, kind in zip(zip(*found, strict=True), schema.types, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _as(value: Any, kind: pyarrow.DataType) -> Any:
    """Return a value as its column has it: numbers among texts are texts, as typed."""
    import pyarrow as pa

    if value is None or not pa.types.is_string(kind):
        return value
    return value if isinstance(value, str) else str(value)


@contextmanager
def _duckdb(query: Query, size: int, skip: int) -> Iterator[Answer]:
    require("duckdb", extra="sql", why=f"asking {query.kind}:{query.place}")
    import duckdb

    if query.file is not None and not query.file.is_file():
        raise DataError("no such file")
    place = ":memory:" if query.file is None else str(query.file)
    try:
        with closing(duckdb.connect(place, read_only=query.file is not None)) as connection:
            found: Any = connection.sql(f"SELECT * FROM ({query.sql}) OFFSET {skip}")
            rows = max(1, size // (_BYTES_A_VALUE * max(len(found.columns), 1)))
            newer = hasattr(found, "to_arrow_reader")  # the other name is deprecated there
            yield _streamed((found.to_arrow_reader if newer else found.fetch_record_batch)(rows))
    except duckdb.Error as error:
        raise DataError(f"DuckDB says: {reason(error)}") from error


@contextmanager
def _adbc(query: Query, size: int, skip: int) -> Iterator[Answer]:
    require("adbc_driver_manager", extra="sql", why="asking through ADBC")
    from adbc_driver_manager import dbapi

    assert not skip, "what a server holds is read from its beginning"
    driver, _, uri = query.place.partition(":")
    try:
        with (
            closing(_connected(driver, uri)) as connection,
            closing(connection.cursor()) as cursor,
        ):
            cursor.execute(query.sql)
            yield _streamed(cursor.fetch_record_batch())
    except dbapi.Error as error:
        raise DataError(f"{driver} says: {reason(error)}") from error


def _connected(driver: str, uri: str) -> Any:
    """Connect by the package of a driver, where that is installed, or by the name of a library."""
    if driver.startswith("adbc_driver_") and installed(driver):
        return import_module(f"{driver}.dbapi").connect(uri)
    from adbc_driver_manager import dbapi

    return dbapi.connect(driver=driver, db_kwargs={"uri": uri})


def _streamed(reader: Any) -> Answer:
    return Answer(reader.schema, None, iter(reader))
