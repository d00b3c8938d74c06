"""Where a table comes from: a CSV as it is written, object storage, or a query to a database.

sqlite:graph.db            a file of SQLite
duckdb:graph.db            a file of DuckDB; duckdb: alone for queries over Parquet or CSV files
adbc:DRIVER:URI            anything that an ADBC driver speaks to, such as
                           adbc:adbc_driver_postgresql:postgresql://localhost/graph
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from evergraph.core.checks import check_choice
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.extras import installed, require

if TYPE_CHECKING:
    import pyarrow


@contextmanager
def naming(path: object) -> Iterator[None]:
    """Put the file's name before the message of any DataError.

    >>> with naming(Path("a.npz")):
    ...     raise DataError("has no 'y'")
    Traceback (most recent call last):
    evergraph.core.errors.DataError: a.npz: has no 'y'
    """
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def reason(error: BaseException) -> str:
    """Return the first line of an error's message, or its class where it has none."""
    return str(error).strip("<> ").partition("\n")[0] or type(error).__name__


DECIMALS = (".", ",")
_COMMA_NUMBER = r"^\s*([-+]?\d*),(\d+(?:[eE][-+]?\d+)?)\s*$"


@dataclass(frozen=True)
class CsvTable:
    """What stands in the place of a path where a CSV is not written in the usual way.

    Attributes:
        path: of the file.
        delimiter: one sign between columns; ``tab`` and ``\\t`` are a tabulator.
        decimal: ``.`` or ``,``; with ``,`` a value such as 3,5 is a number in every column but
            ids, labels and times.

    >>> str(CsvTable(Path("nodes.csv"), delimiter=";"))
    'nodes.csv'
    >>> CsvTable(Path("nodes.csv"), delimiter="::")
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: delimiter must be one sign, not '::'
    """

    path: Path
    delimiter: str = ","
    decimal: str = "."

    def __post_init__(self) -> None:
        if self.delimiter in ("tab", "\\t"):
            object.__setattr__(self, "delimiter", "\t")
        if len(self.delimiter) != 1 or not self.delimiter.isascii():
            raise ConfigurationError(f"delimiter must be one sign, not {self.delimiter!r}")
        check_choice("decimal", self.decimal, DECIMALS)
        if self.path.suffix == ".parquet":
            raise ConfigurationError(
                f"delimiter and decimal are for a CSV, and {self.path} is none"
            )

    @property
    def suffix(self) -> str:
        """How its name ends."""
        return self.path.suffix

    @property
    def name(self) -> str:
        """What it is called."""
        return self.path.name

    @property
    def written(self) -> str:
        """How it is written, where that is not the usual way; empty where it is."""
        usual = (self.delimiter, self.decimal) == (",", ".")
        return "" if usual else f" (delimiter {self.delimiter!r}, decimal {self.decimal!r})"

    def __str__(self) -> str:
        return str(self.path)

    def options(self, **convert: Any) -> dict[str, Any]:
        """Return how pyarrow is to read it.  convert: other options of conversion"""
        import pyarrow.csv as csv

        return {
            "parse_options": csv.ParseOptions(delimiter=self.delimiter),
            "convert_options": csv.ConvertOptions(decimal_point=self.decimal, **convert),
        }

    def hint(self) -> str:
        """Return what its first line tells of another delimiter; empty if nothing."""
        try:
            with self.path.open(encoding="utf-8", errors="replace") as file:
                return delimiter_hint(file.readline().rstrip().split(self.delimiter))
        except OSError:
            return ""

    def with_points(self, table: pyarrow.Table, apart: tuple[str, ...]) -> pyarrow.Table:
        """Return a table whose texts that are numbers have a point before the fraction.

        apart: columns that stay as they are.

        >>> import pyarrow as pa
        >>> german = CsvTable(Path("n.csv"), decimal=",")
        >>> german.with_points(pa.table({"f": ["-3,5", "a, b"]}), ())["f"].to_pylist()
        ['-3.5', 'a, b']
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.decimal == ".":
            return table
        for place, each in enumerate(table.schema):
            if each.name not in apart and pa.types.is_string(each.type):
                texts = pc.replace_substring_regex(table[each.name], _COMMA_NUMBER, r"\1.\2")
                table = table.set_column(place, each, texts)
        return table


def delimiter_hint(columns: Sequence[str]) -> str:
    """Return a question where all names of columns seem to be one; empty where they do not.

    >>> delimiter_hint(["id;label;size"]), delimiter_hint(["id", "label"])
    ("; is it written with --delimiter ';'?", '')
    """
    found = [sign for sign in ";\t|" if len(columns) == 1 and sign in columns[0]]
    return f"; is it written with --delimiter {found[0]!r}?" if found else ""


def as_csv(path: Path | CsvTable) -> CsvTable:
    """Return a CSV as it is written; a path alone is written in the usual way."""
    return path if isinstance(path, CsvTable) else CsvTable(path)


@dataclass(frozen=True)
class StoredFile:
    """A Parquet file by its address: s3://, gs://, abfss://, hdfs:// or file://.

    Arrow's own file systems read it: only the row groups that are asked for, and none twice.
    Who may read it is what the storage's usual settings say, such as AWS_PROFILE.

    >>> StoredFile("s3://bucket/papers/nodes.parquet").suffix
    '.parquet'
    """

    address: str

    def __post_init__(self) -> None:
        if self.suffix != ".parquet":
            raise DataError(
                f"{self.address}: only .parquet is read from object storage: copy the file here"
            )

    @property
    def suffix(self) -> str:
        """How its name ends."""
        return Path(self.name).suffix

    @property
    def name(self) -> str:
        """What it is called."""
        return self.address.rpartition("/")[2]

    def open(self) -> Any:
        """Return it opened for reading, anywhere in it."""
        system, path = self._found()
        return system.open_input_file(path)

    def state(self) -> tuple[int, int]:
        """Return its size and when it was changed, in nanoseconds."""
        system, path = self._found()
        about = system.get_file_info(path)
        if not about.is_file:
            raise DataError(f"{self.address}: no such file")
        return about.size, about.mtime_ns

    def _found(self) -> tuple[Any, str]:
        require("pyarrow", extra="tables", why=f"reading {self.address}")
        from pyarrow import fs

        try:
            found: tuple[Any, str] = fs.FileSystem.from_uri(self.address)
        except (ValueError, OSError) as error:
            raise DataError(f"{self.address}: cannot be reached ({reason(error)})") from error
        return found

    def __str__(self) -> str:
        return self.address


def table_at(text: str) -> Path | StoredFile:
    """Return a file by its path, or by its address in object storage.

    >>> table_at("edges.csv"), table_at("s3://b/e.parquet")
    (PosixPath('edges.csv'), StoredFile(address='s3://b/e.parquet'))
    """
    return StoredFile(text) if "://" in text else Path(text)


KINDS = ("sqlite", "duckdb", "adbc")
_BYTES_A_VALUE = 16  # of a row that a database gives, about
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
