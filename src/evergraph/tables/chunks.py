"""Tables of any size, read chunk by chunk or all at once."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evergraph.core.errors import DataError
from evergraph.tables.arrow import csv, pa, parquet, pc
from evergraph.tables.columns import RELATION, TYPE, is_text, plainly_typed, stripped
from evergraph.tables.labels import SPELLINGS
from evergraph.tables.names import (
    ENDS,
    Names,
    check_columns,
    in_our_words,
    renamed,
    say_replaced,
    without_replaced,
)
from evergraph.tables.sources import CsvTable, Query, Renamed, Source, StoredFile, as_csv, reason

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
# Columns of a CSV that are read as text: their kind depends on all rows.
NODE_TEXT = ("id", "label", "labels", "time")
EDGE_TEXT = (*ENDS, RELATION)
_TEXT = (*NODE_TEXT, *EDGE_TEXT, TYPE)
_SAMPLED = 1_000  # rows that show which columns are meant
_AT_ONCE = 1 << 26  # bytes of a chunk if the whole table is read; a CSV is read in one


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table."""

    table: pa.Table  # the rows
    before: int  # number of rows before them
    done: int  # amount of the file read so far, in bytes or rows
    total: int  # size of the file, in the same unit

    @property
    def after(self) -> int:
        """The number of rows up to the end of this chunk."""
        return self.before + int(self.table.num_rows)


@dataclass(frozen=True)
class InputFile:
    """The state of a table when it is read."""

    path: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Source) -> InputFile:
        """Return the state of a file or database file; that of a server differs every time."""
        if isinstance(path, Renamed):
            inner, called = cls.of(path.source), "".join(f" {t}={o}" for t, o in path.names.items())
            return replace(inner, path=f"{inner.path}{called}")
        if isinstance(path, Query):
            # Without a server's address, which may contain a password.
            place = str(path).split(":")[1] if path.file is None else str(path.file.resolve())
            return cls(f"{path.kind}:{place}: {path.sql}", *_state(path))
        if isinstance(path, StoredFile):
            return cls(path.address, *path.state())
        written = path.written if isinstance(path, CsvTable) else ""
        path = path.path if isinstance(path, CsvTable) else path
        if not path.is_file():
            raise DataError(f"{path}: no such file")
        about = path.stat()
        return cls(f"{path.resolve()}{written}", about.st_size, about.st_mtime_ns)


def _state(query: Query) -> tuple[int, int]:
    """Return size and time of a database's files, including a write-ahead log beside it."""
    if query.file is None:
        return 0, query.asked
    if not query.file.is_file():
        raise DataError(f"{query.file}: no such file")
    files = (query.file.with_name(f"{query.file.name}{end}") for end in ("", "-wal", ".wal"))
    states = [path.stat() for path in files if path.is_file()]
    return sum(one.st_size for one in states), max(one.st_mtime_ns for one in states)


def read_chunks(
    path: Source,
    needed: tuple[str, ...],
    *,
    size: int,
    only_needed: bool = False,
    text: Sequence[str] = (),
    numbers: Sequence[str] = (),
    perhaps: Sequence[str] = (),
) -> Iterator[Chunk]:
    """Yield a table in chunks of about ``size`` bytes; the first chunk may have no rows.

    Args:
        path: the file, or a query to a database.
        needed: required columns.
        size: bytes per chunk, of text or of unpacked Parquet.
        only_needed: whether to leave out other columns.
        text: columns that a CSV gives as text, whatever they look like.
        numbers: columns that a CSV gives as numbers, even if the first rows do not show it.
        perhaps: those of ``text`` that may be given as numbers by a chunk in which all are.
    """
    names: Names = {}
    if isinstance(path, Renamed):
        names = path.names
        path = path.source
    if not isinstance(path, Query) and not str(path).endswith(SUFFIXES):
        raise DataError(f"is not a supported table: expected {' or '.join(SUFFIXES)}")
    chosen = list(needed) if only_needed else None
    try:
        if isinstance(path, Query):
            yield from _read_query(path, needed, chosen, size, names)
        elif isinstance(path, StoredFile) or path.suffix == ".parquet":
            yield from _read_parquet(path, needed, chosen, size, names)
        else:
            # A table of nodes may have a column 'source' too, and that is a feature.
            known = EDGE_TEXT if set(ENDS) <= set(needed) else NODE_TEXT
            types = {name: pa.string() for name in (*known, *text)}
            types |= dict.fromkeys(numbers, pa.float64())
            yield from _read_csv(as_csv(path), needed, chosen, size, types, perhaps, names)
    except FileNotFoundError:
        raise DataError("no such file") from None
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        hint = ""
        if isinstance(path, Path | CsvTable) and path.suffix not in (".parquet", ".gz"):
            hint = as_csv(path).hint()
        raise DataError(f"cannot be read as a table ({reason(error)}){hint}") from error


def read_table(path: Source, columns: tuple[str, ...], *, text: Sequence[str] = ()) -> pa.Table:
    """Read a whole table, from a file or a database query, with at least the given columns.

    Ids in a CSV stay text, so that ``007`` and ``7`` are two nodes in both files. Labels and times
    stay text as well until all of them are known, as do the columns in ``text``.
    """
    size = _AT_ONCE if path.suffix == ".parquet" else -1
    pieces = read_chunks(path, columns, size=size, text=text)
    if isinstance(path, Renamed) and columns:  # when it is read for the first time
        say_replaced(path, columns_of(path.source), path.names)
    return pa.concat_tables([piece.table for piece in pieces])


def first_rows(path: Source, *, size: int, rows: int, text: Sequence[str] = ()) -> pa.Table:
    """Return the first rows of a table, at most ``rows``."""
    tables = []
    for piece in read_chunks(path, (), size=size, text=text):
        tables.append(piece.table)
        if piece.after >= rows:
            break
    # A column of integers in the first chunk may have fractions in the next.
    return pa.concat_tables(tables, promote_options="permissive").slice(0, rows)


def columns_of(path: Source, needed: tuple[str, ...] = ()) -> list[str]:
    """Return the column names of a table, read from its beginning; raise if one is missing."""
    names: list[str] = next(read_chunks(path, needed, size=1 << 16)).table.column_names
    return names


def _read_csv(
    source: CsvTable,
    needed: tuple[str, ...],
    chosen: list[str] | None,
    size: int,
    types: Mapping[str, Any],
    perhaps: Sequence[str],
    called: Names,
) -> Iterator[Chunk]:
    """Yield the rows of a CSV file; columns without a type keep that of the first chunk."""
    total = source.path.stat().st_size
    with source.path.open("rb") as file:
        plain: Any = gzip.GzipFile(fileobj=file) if source.suffix == ".gz" else file
        if source.encoding != "utf-8":
            plain = io.TextIOWrapper(plain, source.encoding, newline="")

        def lines() -> bytes:
            """Read at least ``size`` bytes, up to the end of a line; -1 reads the whole file."""
            block: Any = plain.read(size)
            whole: Any = block + plain.readline() if block else block
            return whole.encode() if isinstance(whole, str) else bytes(whole)

        block = lines()
        table = _first(source, block, types, perhaps, called)
        while not table.num_rows and (more := lines()):  # only the header yet
            block += more
            table = _first(source, block, types, perhaps, called)
        names, before = table.column_names, 0
        check_columns(names, needed, sample=lambda: table)
        if chosen is None and called:
            chosen = without_replaced(names)
        # Integers may be followed by fractions.
        types = {
            each.name: pa.float64() if each.type == pa.int64() else each.type
            for each in table.schema
        } | {name: pa.string() for name in perhaps}
        table = table if chosen is None else table.select(chosen)
        while True:
            yield Chunk(table, before, file.tell(), total)
            before += table.num_rows
            while (block := lines()) and not block.strip():
                pass  # only blank lines
            if not block:
                return
            table = _parse(source, block, types, perhaps, names=names, kept=chosen, before=before)


def _first(
    source: CsvTable, block: bytes, types: Mapping[str, Any], perhaps: Sequence[str], called: Names
) -> pa.Table:
    """Return the rows of a block that begins with the header, under our names."""
    table = _parse(source, block, types, perhaps)
    written = table.column_names
    ours = in_our_words([name.strip() for name in written], called)
    if written != ours:
        types = {name: types[our] for name, our in zip(written, ours, strict=True) if our in types}
        table = _parse(source, block, types, ())
    return table.rename_columns(ours)


def _parse(
    source: CsvTable,
    block: bytes,
    types: Mapping[str, Any],
    perhaps: Sequence[str],
    *,
    names: list[str] | None = None,
    kept: list[str] | None = None,
    before: int = 0,
) -> pa.Table:
    """Return the rows of a block; names: of its columns, unless it begins with them."""

    def parse(types: Mapping[str, Any], *, threads: bool, **nulls: Any) -> pa.Table:
        options = csv.ReadOptions(column_names=names, use_threads=threads)
        how = source.options(column_types=types, include_columns=kept, **nulls)
        table = csv.read_csv(pa.BufferReader(block), read_options=options, **how)
        return _trimmed(source.with_points(table, _TEXT))

    if perhaps:
        with suppress(pa.ArrowInvalid):  # several times faster than texts that are numbers
            wished = {**types, **dict.fromkeys(perhaps, pa.float64())}
            return parse(wished, threads=True, null_values=["", *SPELLINGS])
    with suppress(pa.ArrowInvalid):
        return parse(types, threads=True)
    try:
        return parse(types, threads=False)  # only a single thread reports the row
    except pa.ArrowInvalid as error:
        shift = before - (names is None)  # pyarrow counts the header as a row
        sentence = re.sub(r"Row #(\d+)", lambda row: f"row {int(row[1]) + shift}", str(error))
        raise pa.ArrowInvalid(sentence) from error


def _trimmed(table: pa.Table) -> pa.Table:
    """Return a table without blanks around ids, labels and names, such as after a comma."""
    for place, each in enumerate(table.schema):
        if each.name.strip() in _TEXT and is_text(each.type):
            table = table.set_column(place, each.name, pc.utf8_trim_whitespace(table.column(place)))
    return table


def _read_parquet(
    path: Path | CsvTable | StoredFile,
    needed: tuple[str, ...],
    chosen: list[str] | None,
    size: int,
    called: Names,
) -> Iterator[Chunk]:
    opened = path.open() if isinstance(path, StoredFile) else path
    with parquet.ParquetFile(opened, buffer_size=1 << 20) as file:
        written = file.schema_arrow.names
        ours = in_our_words([name.strip() for name in written], called)

        empty = renamed(stripped(file.schema_arrow.empty_table()), called)

        def sample() -> pa.Table:
            for batch in file.iter_batches(_SAMPLED):
                return renamed(stripped(pa.Table.from_batches([batch])), called)
            return empty

        check_columns(ours, needed, sample)
        chosen = without_replaced(ours) if chosen is None else chosen
        columns = [written[ours.index(name)] for name in chosen]
        total, before, groups = file.metadata.num_rows, 0, range(file.num_row_groups)
        unpacked = sum(file.metadata.row_group(index).total_byte_size for index in groups)
        rows = max(1, size * total // max(unpacked, 1))
        yield Chunk(empty, 0, 0, total)
        for index in groups:  # a batch across groups would hold both of them
            for batch in file.iter_batches(rows, row_groups=[index], columns=columns):
                table = stripped(pa.Table.from_batches([batch])).rename_columns(chosen)
                if table.num_rows:
                    yield Chunk(table, before, before + table.num_rows, total)
                    before += table.num_rows


def _read_query(
    query: Query, needed: tuple[str, ...], chosen: list[str] | None, size: int, called: Names
) -> Iterator[Chunk]:
    with query.answered(size) as (schema, total, batches):
        empty = renamed(plainly_typed(schema.empty_table()), called)

        def sample() -> pa.Table:
            rows = [batch for batch in (next(batches, None),) if batch is not None]
            return renamed(plainly_typed(pa.Table.from_batches(rows, schema)), called)

        check_columns(empty.column_names, needed, sample)
        yield Chunk(empty, 0, 0, total or 0)
        before = 0
        for batch in batches:
            table = renamed(plainly_typed(pa.Table.from_batches([batch])), called)
            if table.num_rows:
                table = table if chosen is None else table.select(chosen)
                after = before + table.num_rows
                yield Chunk(table, before, after, total or after)
                before = after
