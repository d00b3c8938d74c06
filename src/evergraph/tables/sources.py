"""Sources of a table: a CSV file with its dialect, object storage, or a database query.

sqlite:graph.db            a file of SQLite
duckdb:graph.db            a file of DuckDB; duckdb: alone for queries over Parquet or CSV files
adbc:DRIVER:URI            any database with an ADBC driver, such as
                           adbc:adbc_driver_postgresql:postgresql://localhost/graph
"""

from __future__ import annotations

import codecs
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from evergraph.core.errors import ConfigurationError, DataError, check_choice
from evergraph.core.packages import installed, require
from evergraph.tables.arrow import csv, pa, pc
from evergraph.tables.names import Names, delimiter_hint, worded

DECIMALS = (".", ",")
_COMMA_NUMBER = r"^\s*([-+]?\d*),(\d+(?:[eE][-+]?\d+)?)\s*$"
KINDS = ("sqlite", "duckdb", "adbc")
_BYTES_A_VALUE = 16  # estimated size of a value in a database result
_CHARACTERS_AT_ONCE = 1 << 20  # characters read at once
_MAX_QUERY_SHOWN = 60  # characters of a query in a message
QueryResult: TypeAlias = "tuple[pa.Schema, int | None, Iterator[pa.RecordBatch]]"
"""A streamed query result: its schema, the number of rows if known, and the batches."""


@contextmanager
def naming(path: object) -> Iterator[None]:
    """Prefix the message of any DataError with the file's name, in the user's names of columns.

    >>> with naming(Path("a.npz")):
    ...     raise DataError("has no 'y'")
    Traceback (most recent call last):
    evergraph.core.errors.DataError: a.npz: has no 'y'
    """
    try:
        with worded(path.names if isinstance(path, Renamed) else {}):
            yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def reason(error: BaseException) -> str:
    """Return the first line of an error's message, or its class if the message is empty."""
    return str(error).strip("<> ").partition("\n")[0] or type(error).__name__


@dataclass(frozen=True)
class CsvTable:
    """A CSV file with its dialect, used in place of a path.

    >>> str(CsvTable(Path("nodes.csv"), delimiter=";"))
    'nodes.csv'
    >>> CsvTable(Path("nodes.csv"), delimiter="::")
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: delimiter must be one ASCII character, not '::'
    """

    path: Path  # path of the file
    # a single character between columns; ``tab`` and ``\\t`` are a tab, as is a comma in a .tsv
    delimiter: str = ","
    # ``.`` or ``,``; with ``,`` a value such as 3,5 is a number in every column except ids, labels
    # and times
    decimal: str = "."
    encoding: str = "utf-8"  # any that Python knows, such as ``latin-1``

    def __post_init__(self) -> None:
        tabs = self.delimiter == "," and self.path.name.endswith((".tsv", ".tsv.gz"))
        if tabs or self.delimiter in ("tab", "\\t"):
            object.__setattr__(self, "delimiter", "\t")
        if len(self.delimiter) != 1 or not self.delimiter.isascii():
            sentence = f"delimiter must be one ASCII character, not {self.delimiter!r}"
            raise ConfigurationError(sentence)
        check_choice("decimal", self.decimal, DECIMALS)
        try:
            object.__setattr__(self, "encoding", codecs.lookup(self.encoding).name)
        except LookupError:
            raise ConfigurationError(
                f"encoding must be one that Python knows, such as latin-1, not {self.encoding!r}"
            ) from None
        if self.path.suffix == ".parquet":
            sentence = f"delimiter, decimal and encoding apply to CSV files; {self.path} is not one"
            raise ConfigurationError(sentence)

    @property
    def suffix(self) -> str:
        """The suffix of its name."""
        return self.path.suffix

    @property
    def written(self) -> str:
        """The dialect, or an empty text for the default dialect."""
        if self == CsvTable(self.path):
            return ""
        encoding = "" if self.encoding == "utf-8" else f", encoding {self.encoding}"
        return f" (delimiter {self.delimiter!r}, decimal {self.decimal!r}{encoding})"

    def __str__(self) -> str:
        return str(self.path)

    def options(self, **convert: Any) -> dict[str, Any]:
        """Return the options for pyarrow.  convert: other conversion options"""
        return {
            "parse_options": csv.ParseOptions(delimiter=self.delimiter),
            "convert_options": csv.ConvertOptions(decimal_point=self.decimal, **convert),
        }

    def hint(self) -> str:
        """Return a hint at another encoding or delimiter, or an empty text."""
        with suppress(OSError), self.path.open(encoding=self.encoding) as file:
            try:
                first = file.readline()
                while file.read(_CHARACTERS_AT_ONCE):
                    pass
            except UnicodeDecodeError:
                with self.path.open("rb") as raw:
                    wide = raw.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
                encoding = "utf-16" if wide else "latin-1"
                return f"; it is not {self.encoding}: is it written with --encoding {encoding}?"
            return delimiter_hint(first.rstrip().split(self.delimiter))
        return ""

    def with_points(self, table: pa.Table, apart: tuple[str, ...]) -> pa.Table:
        """Return a table with decimal points in texts that are numbers.

        apart: columns to leave unchanged.

        >>> import pyarrow as pa
        >>> german = CsvTable(Path("n.csv"), decimal=",")
        >>> german.with_points(pa.table({"f": ["-3,5", "a, b"]}), ())["f"].to_pylist()
        ['-3.5', 'a, b']
        """
        if self.decimal == ".":
            return table
        for place, each in enumerate(table.schema):
            if each.name not in apart and pa.types.is_string(each.type):
                texts = pc.replace_substring_regex(table[each.name], _COMMA_NUMBER, r"\1.\2")
                table = table.set_column(place, each, texts)
        return table


def as_csv(path: Path | CsvTable) -> CsvTable:
    """Return a CSV with its dialect; a bare path has the default dialect."""
    return path if isinstance(path, CsvTable) else CsvTable(path)


@dataclass(frozen=True)
class StoredFile:
    """A Parquet file by its address: s3://, gs://, abfss://, hdfs:// or file://.

    Arrow's file systems read it: only the needed row groups, and each once. Credentials come from
    the storage's usual settings, such as AWS_PROFILE.

    >>> StoredFile("s3://bucket/papers/nodes.parquet").suffix
    '.parquet'
    """

    address: str

    def __post_init__(self) -> None:
        if self.suffix != ".parquet":
            raise DataError(
                f"{self.address}: only .parquet is read from object storage: download the file"
            )

    @property
    def suffix(self) -> str:
        """The suffix of its name."""
        return Path(self.address).suffix

    def open(self) -> Any:
        """Open it for reading with random access."""
        system, path = self._system_and_path()
        return system.open_input_file(path)

    def state(self) -> tuple[int, int]:
        """Return its size in bytes and modification time in nanoseconds."""
        system, path = self._system_and_path()
        about = system.get_file_info(path)
        if not about.is_file:
            raise DataError(f"{self.address}: no such file")
        return about.size, about.mtime_ns

    def _system_and_path(self) -> tuple[Any, str]:
        require("pyarrow", extra="tables", why=f"reading {self.address}")
        from pyarrow import fs

        try:
            system_and_path: tuple[Any, str] = fs.FileSystem.from_uri(self.address)
        except (ValueError, OSError) as error:
            raise DataError(f"{self.address}: cannot be reached ({reason(error)})") from error
        return system_and_path

    def __str__(self) -> str:
        return self.address


def table_at(text: str) -> Path | StoredFile:
    """Return a file by its path, or by its address in object storage.

    >>> table_at("edges.csv"), table_at("s3://b/e.parquet")
    (PosixPath('edges.csv'), StoredFile(address='s3://b/e.parquet'))
    """
    return StoredFile(text) if "://" in text else Path(text)


@dataclass(frozen=True)
class Query:
    """A database query, used in place of a table's path.

    Attributes:
        kind: kind of database, one of ``KINDS``.
        place: its file, or the driver and the address of a server.
        sql: the query whose result is the table.
        asked: time of creation; it distinguishes two reads of a server, whose changes are unknown.

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
        """Return a query to a database given in the syntax of ``--from``."""
        kind, _, place = source.partition(":")
        check_choice("database", kind, KINDS)
        if kind == "adbc" and ":" not in place:
            raise ConfigurationError(f"--from must be adbc:DRIVER:URI for ADBC, not {source!r}")
        if kind == "sqlite" and not place:
            raise ConfigurationError("--from must name a file after sqlite:, such as sqlite:a.db")
        return cls(kind, place, sql.strip().rstrip(";"))

    @property
    def file(self) -> Path | None:
        """The database file, or None if there is none."""
        return Path(self.place) if self.kind != "adbc" and self.place else None

    @property
    def suffix(self) -> str:
        """The suffix of Parquet, since a query's columns have types too."""
        return ".parquet"

    def __str__(self) -> str:
        # The address of a server may hold a password.
        place = self.place if self.kind != "adbc" else self.place.partition(":")[0]
        sql = " ".join(self.sql.split())
        short = sql if len(sql) <= _MAX_QUERY_SHOWN else f"{sql[: _MAX_QUERY_SHOWN - 3]}..."
        return f"{self.kind}:{place}: {short}"

    def __repr__(self) -> str:
        return f"Query({self})"

    def answered(self, size: int) -> AbstractContextManager[QueryResult]:
        """Run it, and close the connection afterwards.  size: approximate bytes per batch"""
        return {"sqlite": _sqlite, "duckdb": _duckdb, "adbc": _adbc}[self.kind](self, size)


@dataclass(frozen=True)
class Renamed:
    """A table with the user's names of columns, or another name of its own.

    >>> str(Renamed(Path("people.csv"), {"customer_id": "id"}))
    'people.csv'
    """

    source: Path | CsvTable | StoredFile | Query
    names: Names = field(default_factory=dict)  # our names of columns by the user's
    called: str | None = None  # its name in messages, if it is read from a copy

    @property
    def suffix(self) -> str:
        """The suffix of what is read."""
        return self.source.suffix

    def __str__(self) -> str:
        return self.called or str(self.source)


Source: TypeAlias = Path | CsvTable | StoredFile | Query | Renamed
"""A source of a table."""


def named(source: Source, names: Names) -> Source:
    """Return a table with the user's names of columns; without names as it is."""
    if not names:
        return source
    if isinstance(source, Renamed):
        return Renamed(source.source, names, source.called)
    return Renamed(source, names)


@contextmanager
def _sqlite(query: Query, size: int) -> Iterator[QueryResult]:
    """SQLite types every value separately, so a column gets the widest type among its values."""
    path = Path(query.place)
    if not path.is_file():
        raise DataError("no such file")
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            listed = connection.execute(f"SELECT * FROM ({query.sql}) LIMIT 0").description
            quoted = ['"' + name.replace('"', '""') + '"' for name, *_ in listed]
            widest = ", ".join(
                f"max(CASE typeof({name}) WHEN 'null' THEN 0 WHEN 'integer' THEN 1 "
                "WHEN 'real' THEN 2 WHEN 'text' THEN 3 ELSE 4 END)"
                for name in quoted
            )
            counted = connection.execute(f"SELECT count(*), {widest} FROM ({query.sql})")
            total, *widest_types = counted.fetchone()
            kinds = (pa.null(), pa.int64(), pa.float64(), pa.string(), pa.binary())
            pairs = zip(listed, widest_types, strict=True)
            schema = pa.schema([(about[0], kinds[kind or 0]) for about, kind in pairs])
            rows = max(1, size // (_BYTES_A_VALUE * max(len(schema), 1)))
            answer = connection.execute(f"SELECT * FROM ({query.sql})")

            def batches() -> Iterator[pa.RecordBatch]:
                while block := answer.fetchmany(rows):
                    columns = []
                    for values, kind in zip(zip(*block, strict=True), schema.types, strict=True):
                        texts = pa.types.is_string(kind)  # numbers among texts become texts
                        cells = [str(v) if texts and v is not None else v for v in values]
                        columns.append(pa.array(cells, kind))
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)

            yield schema, total, batches()
    except sqlite3.Error as error:
        raise DataError(f"SQLite reports: {reason(error)}") from error


@contextmanager
def _duckdb(query: Query, size: int) -> Iterator[QueryResult]:
    require("duckdb", extra="sql", why=f"querying {query.kind}:{query.place}")
    import duckdb

    if query.file is not None and not query.file.is_file():
        raise DataError("no such file")
    place = ":memory:" if query.file is None else str(query.file)
    try:
        with closing(duckdb.connect(place, read_only=query.file is not None)) as connection:
            relation: Any = connection.sql(f"SELECT * FROM ({query.sql})")
            rows = max(1, size // (_BYTES_A_VALUE * max(len(relation.columns), 1)))
            reader = arrow_reader(relation, rows)
            yield reader.schema, None, iter(reader)
    except duckdb.Error as error:
        raise DataError(f"DuckDB reports: {reason(error)}") from error


def arrow_reader(relation: Any, rows: int) -> Any:
    """Return a result of DuckDB as Arrow batches of ``rows``; older versions have another name."""
    newer = hasattr(relation, "to_arrow_reader")
    return (relation.to_arrow_reader if newer else relation.fetch_record_batch)(rows)


@contextmanager
def _adbc(query: Query, size: int) -> Iterator[QueryResult]:
    require("adbc_driver_manager", extra="sql", why="querying through ADBC")
    from adbc_driver_manager import dbapi

    driver, _, uri = query.place.partition(":")
    try:
        # With a driver's package if it is installed, else with a driver library by name.
        if driver.startswith("adbc_driver_") and installed(driver):
            opened = import_module(f"{driver}.dbapi").connect(uri)
        else:
            opened = dbapi.connect(driver=driver, db_kwargs={"uri": uri})
        with closing(opened) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(query.sql)
            reader = cursor.fetch_record_batch()
            yield reader.schema, None, iter(reader)
    except dbapi.Error as error:
        raise DataError(f"{driver} reports: {reason(error)}") from error
