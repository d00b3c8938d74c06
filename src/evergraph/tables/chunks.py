"""Tables of any size, read chunk by chunk or all at once."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from evergraph.core.errors import DataError
from evergraph.tables.columns import RELATION, plainly_typed, read_named, stripped
from evergraph.tables.edges import ENDS
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

if TYPE_CHECKING:
    import pyarrow


# Columns of a CSV that are read as text: their kind depends on all rows.
NODE_TEXT = ("id", "label", "labels", "time")
EDGE_TEXT = (*ENDS, RELATION)


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

    table: pyarrow.Table
    before: int
    position: int
    done: int
    total: int

    @property
    def after(self) -> int:
        """The number of rows up to the end of this chunk."""
        return self.before + int(self.table.num_rows)


def read_csv(
    path: Path | CsvTable,
    needed: tuple[str, ...],
    columns: list[str] | None,
    size: int,
    position: int,
    before: int,
    text: Sequence[str] = (),
    numbers: Sequence[str] = (),
) -> Iterator[Chunk]:
    """Yield the rows of a CSV file in chunks; a position is an offset in the unpacked bytes.

    Columns without a given type keep the type found in the first chunk.
    """
    import pyarrow as pa

    known = EDGE_TEXT if set(ENDS) <= set(needed) else NODE_TEXT  # nodes may have a 'source' too
    types = {name: pa.string() for name in (*known, *text)}
    types |= dict.fromkeys(numbers, pa.float64())
    source = as_csv(path)
    with source.path.open("rb") as file:
        plain: Any = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        block = _lines(plain, size)
        table = read_named(partial(_first, source, block), types)
        while not table.num_rows and (more := _lines(plain, size)):  # only the header yet
            block += more
            table = read_named(partial(_first, source, block), types)
        check_columns(table.column_names, needed)
        names, types = table.column_names, _types_of(table)
        piece = Chunk(table if columns is None else table.select(columns), 0, len(block), 0, 0)
        total = source.path.stat().st_size
        if not position:
            yield replace(piece, done=file.tell(), total=total)
            position, before = piece.position, piece.after
        plain.seek(position)
        while block := _lines(plain, size):
            position += len(block)
            if block.strip():
                table = _parse(source, block, names, columns, types, before)
                yield Chunk(table, before, position, file.tell(), total)
                before += table.num_rows


def _first(source: CsvTable, block: bytes, types: Mapping[str, pyarrow.DataType]) -> pyarrow.Table:
    """Return the rows of a block that begins with the header."""
    return _parse(source, block, None, None, types, 0)


def _lines(file: IO[bytes], size: int) -> bytes:
    """Read at least ``size`` bytes, up to the end of a line; -1 reads the whole file."""
    block = file.read(size)
    return block + file.readline() if block else block


def _types_of(table: pyarrow.Table) -> dict[str, pyarrow.DataType]:
    """Return the column types for later chunks; integers are widened, fractions may follow."""
    import pyarrow as pa

    wide = {field.name: field.type for field in table.schema}
    return {name: pa.float64() if kind == pa.int64() else kind for name, kind in wide.items()}


def _parse(
    source: CsvTable,
    block: bytes,
    names: list[str] | None,
    columns: list[str] | None,
    types: Mapping[str, pyarrow.DataType],
    before: int,
) -> pyarrow.Table:
    import pyarrow as pa
    import pyarrow.csv as csv

    how = source.options(column_types=types, include_columns=columns)

    def parse(*, threads: bool) -> pyarrow.Table:
        options = csv.ReadOptions(column_names=names, use_threads=threads)
        table = csv.read_csv(pa.BufferReader(block), read_options=options, **how)
        return source.with_points(table, (*NODE_TEXT, *EDGE_TEXT))

    try:
        return parse(threads=True)
    except pa.ArrowInvalid:
        pass
    try:
        return parse(threads=False)  # only a single thread reports the row
    except pa.ArrowInvalid as error:
        shift = before - (names is None)  # pyarrow counts the header as a row
        raise pa.ArrowInvalid(rows_from_one(str(error), shift)) from error


SUFFIXES = (".csv", ".csv.gz", ".parquet")
_AT_ONCE = 1 << 26  # bytes of a chunk if the whole table is read; a CSV is read in one


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
    """
    if not isinstance(path, Query) and not path.name.endswith(SUFFIXES):
        raise DataError(f"is not a supported table: expected {' or '.join(SUFFIXES)}")
    yield from _read(
        path, needed, list(needed) if only_needed else None, size, position, before, text, numbers
    )


def read_table(
    path: Source, columns: tuple[str, ...], *, text: Sequence[str] = ()
) -> pyarrow.Table:
    """Read a whole table, from a file or a database query, with at least the given columns.

    Ids in a CSV stay text, so that ``007`` and ``7`` are two nodes in both files. Labels and times
    stay text as well until all of them are known, as do the columns in ``text``.
    """
    import pyarrow as pa

    packed = isinstance(path, Query | StoredFile) or path.suffix == ".parquet"
    pieces = _read(path, columns, None, _AT_ONCE if packed else -1, 0, 0, text)
    return pa.concat_tables([piece.table for piece in pieces])


def _read(
    path: Source,
    needed: tuple[str, ...],
    columns: list[str] | None,
    size: int,
    position: int,
    before: int,
    text: Sequence[str] = (),
    numbers: Sequence[str] = (),
) -> Iterator[Chunk]:
    import pyarrow as pa

    read: Callable[..., Iterator[Chunk]] = read_csv
    if isinstance(path, Query):
        read = _read_query
    elif isinstance(path, StoredFile) or path.suffix == ".parquet":
        read = _read_parquet
    try:
        yield from read(path, needed, columns, size, position, before, text, numbers)
    except FileNotFoundError:
        raise DataError("no such file") from None
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        hint = ""
        if isinstance(path, Path | CsvTable) and path.suffix not in (".parquet", ".gz"):
            hint = as_csv(path).hint()
        raise DataError(f"cannot be read as a table ({reason(error)}){hint}") from error


def check_columns(found: list[str], needed: tuple[str, ...]) -> None:
    """Raise unless every needed column occurs, and every column only once."""
    for column in needed:
        if column not in found:
            hint = delimiter_hint(found)
            raise DataError(f"has no column {column!r}: it has {', '.join(found)}{hint}")
    for column in found:
        if found.count(column) > 1:
            raise DataError(f"has {found.count(column)} columns named {column!r}: expected one")


def rows_from_one(said: str, shift: int) -> str:
    """Shift the row numbers in a message of pyarrow, which counts the header.

    >>> rows_from_one("CSV parse error: Row #3: Expected 2 columns, got 1", -1)
    'CSV parse error: row 2: Expected 2 columns, got 1'
    """
    return re.sub(r"Row #(\d+)", lambda row: f"row {int(row[1]) + shift}", said)


def first_rows(path: Source, *, size: int, rows: int, text: Sequence[str] = ()) -> pyarrow.Table:
    """Return the first rows of a table, at most ``rows``."""
    import pyarrow as pa

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
    first = next(read_chunks(path, (), size=1 << 16))
    names: list[str] = first.table.column_names
    return names


def _read_parquet(
    path: Path | StoredFile,
    needed: tuple[str, ...],
    columns: list[str] | None,
    size: int,
    position: int,
    before: int,
    text: Sequence[str] = (),
    numbers: Sequence[str] = (),
) -> Iterator[Chunk]:
    import pyarrow as pa
    import pyarrow.parquet

    opened = path.open() if isinstance(path, StoredFile) else path
    with pa.parquet.ParquetFile(opened, buffer_size=1 << 20) as file:
        named = {name.strip(): name for name in file.schema_arrow.names}
        check_columns([name.strip() for name in file.schema_arrow.names], needed)
        columns = None if columns is None else [named[name] for name in columns]
        total = file.metadata.num_rows
        groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
        unpacked = sum(group.total_byte_size for group in groups)
        rows = max(1, size * total // max(unpacked, 1))
        if not position:
            yield Chunk(stripped(file.schema_arrow.empty_table()), 0, 0, 0, total)
        row = 0
        for index, group in enumerate(groups):
            if row + group.num_rows <= position:
                row += group.num_rows
                continue
            for batch in file.iter_batches(rows, row_groups=[index], columns=columns):
                table = stripped(pa.Table.from_batches([batch]).slice(max(position - row, 0)))
                row += len(batch)
                if table.num_rows:
                    yield Chunk(table, row - table.num_rows, row, row, total)


def _read_query(
    query: Query,
    needed: tuple[str, ...],
    columns: list[str] | None,
    size: int,
    position: int,
    before: int,
    text: Sequence[str] = (),
    numbers: Sequence[str] = (),
) -> Iterator[Chunk]:
    """Yield the result of a database query; a position is a row."""
    import pyarrow as pa

    with answered(query, size=size, skip=position) as answer:
        check_columns([name.strip() for name in answer.schema.names], needed)
        if not position:
            empty = plainly_typed(answer.schema.empty_table())
            yield Chunk(empty, 0, 0, 0, answer.total or 0)
        for batch in answer.batches:
            table = plainly_typed(pa.Table.from_batches([batch]))
            if not table.num_rows:
                continue
            table = table if columns is None else table.select(columns)
            after = before + table.num_rows
            yield Chunk(table, before, after, after, answer.total or after)
            before = after
