"""CSV files too large for memory, plain or packed by gzip, read piece by piece."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from evergraph.datasets.piece import Piece
from evergraph.datasets.table_folder import TEXT, check_columns, rows_from_one

if TYPE_CHECKING:
    import pyarrow


def read_csv(
    path: Path,
    needed: tuple[str, ...],
    columns: list[str] | None,
    size: int,
    position: int,
    before: int,
) -> Iterator[Piece]:
    """Yield the rows of a file; a position is a byte of it as it is unpacked.

    The kinds of other columns are those that the first piece shows.
    """
    import pyarrow as pa

    text = {name: pa.string() for name in TEXT}
    with path.open("rb") as file:
        plain: Any = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        block = _lines(plain, size)
        table = _parse(block, None, None, text, 0)
        while not table.num_rows and (more := _lines(plain, size)):  # only the header so far
            block += more
            table = _parse(block, None, None, text, 0)
        check_columns(table.column_names, needed)
        names, types = table.column_names, _types_of(table)
        piece = Piece(table if columns is None else table.select(columns), 0, len(block), 0, 0)
        total = path.stat().st_size
        if not position:
            yield replace(piece, done=file.tell(), total=total)
            position, before = piece.position, piece.after
        plain.seek(position)
        while block := _lines(plain, size):
            position += len(block)
            if block.strip():
                table = _parse(block, names, columns, types, before)
                yield Piece(table, before, position, file.tell(), total)
                before += table.num_rows


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
    block: bytes,
    names: list[str] | None,
    columns: list[str] | None,
    types: dict[str, pyarrow.DataType],
    before: int,
) -> pyarrow.Table:
    import pyarrow as pa
    import pyarrow.csv as csv

    convert = csv.ConvertOptions(column_types=types, include_columns=columns)

    def parse(*, threads: bool) -> pyarrow.Table:
        options = csv.ReadOptions(column_names=names, use_threads=threads)
        return csv.read_csv(pa.BufferReader(block), read_options=options, convert_options=convert)

    try:
        return parse(threads=True)
    except pa.ArrowInvalid:
        pass
    try:
        return parse(threads=False)  # only one thread knows the row
    except pa.ArrowInvalid as error:
        shift = before - (names is None)  # it counts the header as a row
        raise pa.ArrowInvalid(rows_from_one(str(error), shift)) from error
