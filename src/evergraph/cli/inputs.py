"""Inputs of commands: tables and their columns, lists of ids, lines of standard input."""

from __future__ import annotations

import atexit
import csv
import inspect
import io
import os
import re
import select
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer

from evergraph.core.component import declared_parts
from evergraph.core.errors import ConfigurationError, DataError, check_choice

if TYPE_CHECKING:
    from evergraph.tables.choices import Columns
    from evergraph.tables.names import ColumnNames
    from evergraph.tables.sources import Source

ColumnKinds = Annotated[
    list[str],
    typer.Option(
        "--column",
        metavar="NAME=KIND",
        help=f"{', '.join(declared_parts('tables', 'column_kinds'))}, or your own encoder "
        "(default: guess).",
    ),
]
Gaps = Annotated[
    str, typer.Option(help="Missing values: flag (add an indicator) or refuse (reject the table).")
]
Database = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="sqlite:FILE, duckdb:FILE or adbc:DRIVER:URI instead of files (default: none).",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="FORMAT", help="What a pipe or - holds: csv or parquet (default: csv)."
    ),
]
UnknownEdges = Annotated[
    str,
    typer.Option(
        help="Edges to unknown nodes: refuse (reject the table) or skip (and count them)."
    ),
]
Repeated = Annotated[
    str | None,
    typer.Option(
        help="Edges listed several times: last (weight counts), sum, mean, count or refuse "
        "(default: last)."
    ),
]
SECONDS_PER_WAIT = 0.1  # seconds to wait for a line before None is yielded
MAX_LINE_BYTES = 1 << 26  # bytes of a line
_UNITS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0}


def _column(name: str, what: str) -> Any:
    return typer.Option(f"--{name}", metavar="COLUMN", help=f"Column {what} (default: {name}).")


@dataclass(frozen=True)
class ColumnOptions:
    """The user's names of columns."""

    id_column: Annotated[str | None, _column("id", "of node ids")] = None
    label_column: Annotated[str | None, _column("label", "of labels")] = None
    source_column: Annotated[str | None, _column("source", "where edges begin")] = None
    target_column: Annotated[str | None, _column("target", "where edges end")] = None
    weight_column: Annotated[str | None, _column("weight", "of edge weights")] = None

    @property
    def names(self) -> ColumnNames:
        """The names that were given, by ours."""
        names = ("id", "label", "source", "target", "weight")
        typed = {name: getattr(self, f"{name}_column") for name in names}
        return cast("ColumnNames", {name: column for name, column in typed.items() if column})


@dataclass(frozen=True)
class TableOptions(ColumnOptions):
    """The user's names of columns, and how a CSV is written."""

    delimiter: Annotated[str, typer.Option(help="Column separator of a CSV, such as ;.")] = ","
    decimal: Annotated[str, typer.Option(help="Decimal mark of a CSV: . or ,")] = "."
    encoding: Annotated[str, typer.Option(help="Encoding of a CSV, such as latin-1.")] = "utf-8"

    def tables(
        self,
        nodes: str | None,
        edges: str | None,
        *,
        database: str | None = None,
        pipe: str | None = None,
    ) -> tuple[Source | None, Source | None]:
        """Return the tables of nodes and of edges: files, pipes, or queries of a database.

        pipe: what a pipe, or - for standard input, holds.

        >>> TableOptions(delimiter=";").tables("n.csv", None)
        (CsvTable(path=PosixPath('n.csv'), delimiter=';', decimal='.', encoding='utf-8'), None)
        """
        from evergraph.tables.names import of_edges, of_nodes
        from evergraph.tables.sources import CsvTable, Query, Renamed, named, table_at

        pipe = pipe or "csv"
        check_choice("--format", pipe, ("csv", "parquet"))
        if nodes == edges == "-":
            raise ConfigurationError("only one table can be read from standard input, not both")
        csv_format = (self.delimiter, self.decimal, self.encoding)
        is_default_format = csv_format == (",", ".", "utf-8")
        sources: list[Source | None] = []
        csv_count = 0
        for text, column_names in ((nodes, of_nodes(self.names)), (edges, of_edges(self.names))):
            if text is None:
                sources.append(None)
                continue
            table: Any = table_at(text) if database is None else Query.of(database, text)
            if database is None and is_pipe(text):
                table = _copied(text, f".{pipe}")
            is_csv = isinstance(table, Path) and table.suffix != ".parquet"
            csv_count += is_csv
            source = CsvTable(table, *csv_format) if is_csv and not is_default_format else table
            if database is None and is_pipe(text):
                source = Renamed(source, called=text)
            sources.append(named(source, column_names))
        if not is_default_format and not csv_count:
            raise ConfigurationError(
                "--delimiter, --decimal and --encoding need a CSV table: none is given"
            )
        return sources[0], sources[1]


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Spread each parameter of a command that is a record of options into these options."""
    hints = get_type_hints(command, include_extras=True)
    records: dict[str, Any] = {n: kind for n, kind in hints.items() if is_dataclass(kind)}
    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        if (record := records.get(parameter.name)) is None:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
            continue
        options = get_type_hints(record, include_extras=True)
        parameters += [
            parameter.replace(
                name=field.name, annotation=options[field.name], default=field.default
            )
            for field in fields(record)
        ]

    @wraps(command)
    def with_options(**values: Any) -> None:
        built = {
            name: record(**{field.name: values.pop(field.name) for field in fields(record)})
            for name, record in records.items()
        }
        command(**values, **built)

    del with_options.__wrapped__
    with_options.__annotations__ = {field.name: field.annotation for field in parameters}
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return with_options


def is_pipe(text: str) -> bool:
    """Whether a table is read from standard input or from a pipe such as ``<(zcat edges.gz)``."""
    return text == "-" or ("://" not in text and Path(text).is_fifo())


def _copied(text: str, suffix: str) -> Path:
    """Return a copy of a pipe in a temporary file: a table is read more than once."""
    with tempfile.NamedTemporaryFile(suffix=suffix, delete=False) as copy:
        atexit.register(Path(copy.name).unlink, missing_ok=True)
        if text == "-":
            shutil.copyfileobj(sys.stdin.buffer, copy)
        else:
            with Path(text).open("rb") as pipe:
                shutil.copyfileobj(pipe, copy)
    return Path(copy.name)


def parse_columns(texts: Sequence[str], *, gaps: str, strict: bool) -> Columns:
    """Parse ``--column`` options."""
    from evergraph.tables.choices import Columns

    for text in texts:
        if "=" not in text:
            raise ConfigurationError(f"--column must be NAME=KIND, not {text!r}")
    kinds = dict(text.rsplit("=", 1) for text in texts)
    return Columns(kinds=kinds, gaps=gaps, strict=strict)


def read_ids(source: str, *, integers: bool) -> list[str | int]:
    """Read ids: the column ``id`` of a Parquet file or CSV, else the first column of every line.

    source: a path, or - for stdin; integers: whether ids in text are whole numbers.
    """
    if source.endswith(".parquet"):
        from evergraph.tables.chunks import read_table
        from evergraph.tables.columns import ids as ids_in
        from evergraph.tables.sources import naming

        with naming(Path(source)):
            ids_read: list[str | int] = ids_in(read_table(Path(source), ("id",)), "id").to_pylist()
            return ids_read
    try:
        if source == "-":
            lines = list(csv.reader(sys.stdin))
        else:
            with Path(source).open(newline="", encoding="utf-8") as file:
                lines = list(csv.reader(file))
    except FileNotFoundError:
        raise DataError(f"{source}: no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{source}: cannot be read as a list of ids ({error})") from None
    header = [name.strip() for name in lines[0]] if lines else []
    has_header = "id" in header
    column = header.index("id") if has_header else 0
    ids: list[str | int] = []
    for row, line in enumerate(lines[has_header:], start=1):
        if len(line) > column and (text := line[column].strip()):
            try:
                ids.append(int(text) if integers else text)
            except ValueError:
                raise DataError(
                    f"{source}: row {row}: with --integers ids must be integers, not {text!r}"
                ) from None
    return ids


def seconds_of(text: str) -> float:
    """Parse the time of ``--every``."""
    match = re.fullmatch(r"(\d+\.?\d*)\s*(ms|s|m|)", text.strip())
    if match is None:
        raise ConfigurationError(f"--every must be a time such as 2s, 500ms or 1m, not {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def arriving_lines() -> Iterator[bytes | None]:
    """Yield the lines of standard input, and None while no line is available.

    Only one read's worth of data is buffered, so a fast writer waits for this reader.
    """
    try:
        descriptor = sys.stdin.fileno()
    except (io.UnsupportedOperation, ValueError):  # stdin replaced by a text stream
        yield from (line.encode() for line in sys.stdin)
        return
    unfinished = b""
    while True:
        ready, _, _ = select.select([descriptor], [], [], SECONDS_PER_WAIT)
        if not ready:
            yield None
            continue
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            break
        *lines, unfinished = (unfinished + chunk).split(b"\n")
        yield from lines
        if len(unfinished) > MAX_LINE_BYTES:
            raise DataError(f"a line of standard input has more than {MAX_LINE_BYTES:,} bytes")
    if unfinished:
        yield unfinished
