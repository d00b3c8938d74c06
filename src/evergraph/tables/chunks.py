"""Tables of any size, read chunk by chunk or all at once."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from evergraph.core.errors import DataError
from evergraph.tables.arrow import csv, pa, parquet
from evergraph.tables.columns import RELATION, plainly_typed, stripped
from evergraph.tables.edges import ENDS
from evergraph.tables.labels import SPELLINGS
from evergraph.tables.sources import (
    CsvTable,
    Query,
    Source,
    StoredFile,
    answered,
    as_csv,
    delimiter_hint,
    reason,
)

SUFFIXES = (".csv", ".csv.gz", ".parquet")
# Columns of a CSV that are read as text: their kind depends on all rows.
NODE_TEXT = ("id", "label", "labels", "time")
EDGE_TEXT = (*ENDS, RELATION)
_AT_ONCE = 1 << 26  # bytes of a chunk if the whole table is read; a CSV is read in one


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table.

    Attributes:
        table: the rows.
        before: number of rows before them.
        position: start of the next chunk, from which reading can resume.
        done: amount of the file read so far, in bytes or rows.
        total: size of the file, in the same unit.
    """

    table: pa.Table
    before: int
    position: int
    done: int
    total: int

    @property
    def after(self) -> int:
        """The number of rows up to the end of this chunk."""
        return self.before + int(self.table.num_rows)


@dataclass(frozen=True)
class _Wanted:
    """What to read of a table; the attributes are the arguments of ``read_chunks``."""

    needed: tuple[str, ...]
    size: int
    only_needed: bool = False
    position: int = 0
    before: int = 0
    text: Sequence[str] = ()
    numbers: Sequence[str] = ()
    perhaps: Sequence[str] = ()

    @property
    def columns(self) -> list[str] | None:
        return list(self.needed) if self.only_needed else None


def read_chunks(
    path: Source,
    needed: tuple[str, ...],
    *,
    size: int,
    only_needed: bool = False,
    position: int = 0,
    before: int = 0,
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
        position: position of an earlier chunk, to resume after it.
        before: number of rows before that position.
        text: columns that a CSV gives as text, whatever they look like.
        numbers: columns that a CSV gives as numbers, even if the first rows do not show it.
        perhaps: those of ``text`` that may be given as numbers by a chunk in which all are.
    """
    if not isinstance(path, Query) and not path.name.endswith(SUFFIXES):
        raise DataError(f"is not a supported table: expected {' or '.join(SUFFIXES)}")
    wanted = _Wanted(needed, size, only_needed, position, before, text, numbers, perhaps)
    yield from _read(path, wanted)


def read_table(path: Source, columns: tuple[str, ...], *, text: Sequence[str] = ()) -> pa.Table:
    """Read a whole table, from a file or a database query, with at least the given columns.

    Ids in a CSV stay text, so that ``007`` and ``7`` are two nodes in both files. Labels and times
    stay text as well until all of them are known, as do the columns in ``text``.
    """
    size = _AT_ONCE if path.suffix == ".parquet" else -1
    return pa.concat_tables(
        [piece.table for piece in _read(path, _Wanted(columns, size, text=text))]
    )


def first_rows(path: Source, *, size: int, rows: int, text: Sequence[str] = ()) -> pa.Table:
    """Return the first rows of a table, at most ``rows``."""
    tables, found = [], 0
    for piece in read_chunks(path, (), size=size, text=text):
        tables.append(piece.table)
        found += piece.table.num_rows
        if found >= rows:
            break
    # A column of integers in the first chunk may have fractions in the next.
    return pa.concat_tables(tables, promote_options="permissive").slice(0, rows)


def columns_of(path: Source) -> list[str]:
    """Return the column names of a table, read from its beginning."""
    names: list[str] = next(read_chunks(path, (), size=1 << 16)).table.column_names
    return names


def check_columns(found: list[str], needed: tuple[str, ...]) -> None:
    """Raise unless every needed column occurs, and every column only once."""
    for column in needed:
        if column not in found:
            hint = delimiter_hint(found)
            raise DataError(f"has no column {column!r}: it has {', '.join(found)}{hint}")
    for column in found:
        if found.count(column) > 1:
            raise DataError(f"has {found.count(column)} columns named {column!r}: expected one")


def _read(path: Source, wanted: _Wanted) -> Iterator[Chunk]:
    read: Callable[[Any, _Wanted], Iterator[Chunk]] = _read_csv
    if path.suffix == ".parquet":
        read = _read_query if isinstance(path, Query) else _read_parquet
    try:
        yield from read(path, wanted)
    except FileNotFoundError:
        raise DataError("no such file") from None
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        hint = ""
        if isinstance(path, Path | CsvTable) and path.suffix not in (".parquet", ".gz"):
            hint = as_csv(path).hint()
        raise DataError(f"cannot be read as a table ({reason(error)}){hint}") from error


def _read_csv(path: Path | CsvTable, wanted: _Wanted) -> Iterator[Chunk]:
    """Yield the rows of a CSV file; a position is an offset in the unpacked bytes.

    Columns without a given type keep the type found in the first chunk.
    """
    # A table of nodes may have a column 'source' too, and that is a feature.
    known = EDGE_TEXT if set(ENDS) <= set(wanted.needed) else NODE_TEXT
    types = {name: pa.string() for name in (*known, *wanted.text)}
    types |= dict.fromkeys(wanted.numbers, pa.float64())
    source, perhaps = as_csv(path), wanted.perhaps
    total = source.path.stat().st_size
    with source.path.open("rb") as file:
        plain: Any = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        block = _lines(plain, wanted.size)
        table = _first(source, block, types, perhaps)
        while not table.num_rows and (more := _lines(plain, wanted.size)):  # only the header yet
            block += more
            table = _first(source, block, types, perhaps)
        names, position, before = table.column_names, wanted.position, wanted.before
        check_columns(names, wanted.needed)
        # Integers may be followed by fractions.
        types = {
            each.name: pa.float64() if each.type == pa.int64() else each.type
            for each in table.schema
        } | {name: pa.string() for name in perhaps}
        if not position:
            position, before = len(block), table.num_rows
            given = table if wanted.columns is None else table.select(wanted.columns)
            yield Chunk(given, 0, position, file.tell(), total)
        plain.seek(position)
        while block := _lines(plain, wanted.size):
            position += len(block)
            if block.strip():
                table = _parse(source, block, names, wanted.columns, types, perhaps, before)
                yield Chunk(table, before, position, file.tell(), total)
                before += table.num_rows


def _lines(file: IO[bytes], size: int) -> bytes:
    """Read at least ``size`` bytes, up to the end of a line; -1 reads the whole file."""
    block = file.read(size)
    return block + file.readline() if block else block


def _first(
    source: CsvTable, block: bytes, types: Mapping[str, Any], perhaps: Sequence[str]
) -> pa.Table:
    """Return the rows of a block that begins with the header, whose names are stripped."""
    table = _parse(source, block, None, None, types, perhaps, 0)
    names = {name: name.strip() for name in table.column_names}
    if any(name != plain for name, plain in names.items()):
        types = {name: types[plain] for name, plain in names.items() if plain in types}
        table = _parse(source, block, None, None, types, (), 0)
    return stripped(table)


def _parse(
    source: CsvTable,
    block: bytes,
    names: list[str] | None,
    columns: list[str] | None,
    types: Mapping[str, pa.DataType],
    perhaps: Sequence[str],
    before: int,
) -> pa.Table:
    def parse(types: Mapping[str, Any], *, threads: bool, **nulls: Any) -> pa.Table:
        options = csv.ReadOptions(column_names=names, use_threads=threads)
        how = source.options(column_types=types, include_columns=columns, **nulls)
        table = csv.read_csv(pa.BufferReader(block), read_options=options, **how)
        return source.with_points(table, (*NODE_TEXT, *EDGE_TEXT))

    if perhaps:
        try:  # numbers are read several times faster than texts that are numbers
            wished = {**types, **dict.fromkeys(perhaps, pa.float64())}
            return parse(wished, threads=True, null_values=["", *SPELLINGS])
        except pa.ArrowInvalid:
            pass
    try:
        return parse(types, threads=True)
    except pa.ArrowInvalid:
        pass
    try:
        return parse(types, threads=False)  # only a single thread reports the row
    except pa.ArrowInvalid as error:
        shift = before - (names is None)  # pyarrow counts the header as a row
        said = re.sub(r"Row #(\d+)", lambda row: f"row {int(row[1]) + shift}", str(error))
        raise pa.ArrowInvalid(said) from error


def _read_parquet(path: Path | StoredFile, wanted: _Wanted) -> Iterator[Chunk]:
    """Yield the rows of a Parquet file; a position is a row."""
    opened = path.open() if isinstance(path, StoredFile) else path
    with parquet.ParquetFile(opened, buffer_size=1 << 20) as file:
        named = {name.strip(): name for name in file.schema_arrow.names}
        check_columns([name.strip() for name in file.schema_arrow.names], wanted.needed)
        columns = None if wanted.columns is None else [named[name] for name in wanted.columns]
        total = file.metadata.num_rows
        groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
        unpacked = sum(group.total_byte_size for group in groups)
        rows = max(1, wanted.size * total // max(unpacked, 1))
        if not wanted.position:
            yield Chunk(stripped(file.schema_arrow.empty_table()), 0, 0, 0, total)
        row = 0
        for index, group in enumerate(groups):
            if row + group.num_rows <= wanted.position:
                row += group.num_rows
                continue
            for batch in file.iter_batches(rows, row_groups=[index], columns=columns):
                skipped = max(wanted.position - row, 0)
                table = stripped(pa.Table.from_batches([batch]).slice(skipped))
                row += len(batch)
                if table.num_rows:
                    yield Chunk(table, row - table.num_rows, row, row, total)


def _read_query(query: Query, wanted: _Wanted) -> Iterator[Chunk]:
    """Yield the result of a database query; a position is a row."""
    before = wanted.before
    with answered(query, size=wanted.size, skip=wanted.position) as (schema, total, batches):
        check_columns([name.strip() for name in schema.names], wanted.needed)
        if not wanted.position:
            yield Chunk(plainly_typed(schema.empty_table()), 0, 0, 0, total or 0)
        for batch in batches:
            table = plainly_typed(pa.Table.from_batches([batch]))
            if table.num_rows:
                table = table if wanted.columns is None else table.select(wanted.columns)
                after = before + table.num_rows
                yield Chunk(table, before, after, after, total or after)
                before = after
