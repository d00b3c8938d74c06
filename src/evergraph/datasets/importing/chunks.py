"""Tables too large for memory, read chunk by chunk."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from evergraph.core.errors import DataError
from evergraph.datasets.download import reason
from evergraph.datasets.files.sources import CsvTable, Query, Source, StoredFile, answered, as_csv
from evergraph.datasets.files.table_columns import plainly_typed, read_named, stripped
from evergraph.datasets.files.table_folder import (
    ENDS,
    NODE_TEXT,
    check_columns,
    rows_from_one,
)

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table.

    Attributes:
        table: the rows.
        before: how many rows came before them.
        position: where the next piece begins, for whoever goes on later.
        done: how much of the file is read, in bytes or rows.
        total: how much the file has.
    """

    table: pyarrow.Table
    before: int
    position: int
    done: int
    total: int

    @property
    def after(self) -> int:
        """How many rows there are up to its end."""
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
    """Yield the rows of a file; a position is a byte of it as it is unpacked.

    The kinds of other columns are those that the first piece shows.
    """
    import pyarrow as pa

    known = ENDS if set(ENDS) <= set(needed) else NODE_TEXT  # a node may have a feature 'source'
    types = {name: pa.string() for name in (*known, *text)}
    types |= dict.fromkeys(numbers, pa.float64())
    source = as_csv(path)
    with source.path.open("rb") as file:
        plain: Any = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        block = _lines(plain, size)
        table = read_named(partial(_first, source, block), types)
        while not table.num_rows and (more := _lines(plain, size)):  # only the header so far
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
    """Read at least ``size`` bytes, and on to the end of the line."""
    block = file.read(size)
    return block + file.readline() if block else block


def _types_of(table: pyarrow.Table) -> dict[str, pyarrow.DataType]:
    """Return what every column is read as from here on; whole numbers may yet get fractions."""
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
        return source.with_points(table, (*NODE_TEXT, *ENDS))

    try:
        return parse(threads=True)
    except pa.ArrowInvalid:
        pass
    try:
        return parse(threads=False)  # only one thread knows the row
    except pa.ArrowInvalid as error:
        shift = before - (names is None)  # it counts the header as a row
        raise pa.ArrowInvalid(rows_from_one(str(error), shift)) from error


SUFFIXES = (".csv", ".csv.gz", ".parquet")


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
    """Yield a table in pieces of about ``size`` bytes, the first one even if it has no rows.

    Args:
        path: the file, or a query to a database.
        needed: columns that must be there.
        size: of a piece, in bytes of the file as text or as Parquet holds it unpacked.
        only_needed: whether other columns are left out.
        position: of a piece that was read before, to go on behind it.
        before: how many rows lie before that position.
        text: columns that a CSV gives as texts, whatever they look like.
        numbers: columns that a CSV gives as numbers, which the first rows may not show.
    """
    import pyarrow as pa

    if isinstance(path, Query):
        chosen = list(needed) if only_needed else None
        yield from _read_query(path, needed, chosen, size, position, before)
        return
    if not path.name.endswith(SUFFIXES):
        raise DataError(f"is no table that can be read: expected {' or '.join(SUFFIXES)}")
    columns = list(needed) if only_needed else None
    if isinstance(path, StoredFile) or path.suffix == ".parquet":
        read: Callable[..., Iterator[Chunk]] = _read_parquet
    else:
        read = read_csv
    try:
        yield from read(path, needed, columns, size, position, before, text, numbers)
    except FileNotFoundError:
        raise DataError("no such file") from None
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        hint = ""
        if not isinstance(path, StoredFile) and path.suffix == ".csv":
            hint = as_csv(path).hint()
        raise DataError(f"cannot be read as a table ({reason(error)}){hint}") from error


def first_rows(path: Source, *, size: int, rows: int, text: Sequence[str] = ()) -> pyarrow.Table:
    """Return the beginning of a table, as much of it as has so many rows."""
    import pyarrow as pa

    tables, found = [], 0
    for piece in read_chunks(path, (), size=size, text=text):
        tables.append(piece.table)
        found += piece.table.num_rows
        if found >= rows:
            break
    # Whole numbers of the first piece may have fractions in the next.
    return pa.concat_tables(tables, promote_options="permissive").slice(0, rows)


def columns_of(path: Source) -> list[str]:
    """Return the names of a table's columns, from its beginning."""
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
) -> Iterator[Chunk]:
    """Yield what a database answers; a position is a row."""
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
