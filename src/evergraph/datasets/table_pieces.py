"""Tables too large for memory, read piece by piece: ``.csv``, ``.csv.gz`` or ``.parquet``."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from evergraph.core.errors import DataError
from evergraph.datasets.csv_pieces import read_csv
from evergraph.datasets.download import reason
from evergraph.datasets.piece import Piece
from evergraph.datasets.table_folder import check_columns

SUFFIXES = (".csv", ".csv.gz", ".parquet")


def read_pieces(
    path: Path,
    needed: tuple[str, ...],
    *,
    size: int,
    only_needed: bool = False,
    position: int = 0,
    before: int = 0,
) -> Iterator[Piece]:
    """Yield a table in pieces of about ``size`` bytes, the first one even if it has no rows.

    Args:
        path: the file.
        needed: columns that must be there.
        size: of a piece, in bytes of the file as text or as Parquet holds it unpacked.
        only_needed: whether other columns are left out.
        position: of a piece that was read before, to go on behind it.
        before: how many rows lie before that position.
    """
    import pyarrow as pa

    if not path.name.endswith(SUFFIXES):
        raise DataError(f"is no table that can be read: expected {' or '.join(SUFFIXES)}")
    columns = list(needed) if only_needed else None
    read = _read_parquet if path.suffix == ".parquet" else read_csv
    try:
        yield from read(path, needed, columns, size, position, before)
    except FileNotFoundError:
        raise DataError("no such file") from None
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read as a table ({reason(error)})") from error


def columns_of(path: Path) -> list[str]:
    """Return the names of a table's columns, from its beginning."""
    first = next(read_pieces(path, (), size=1 << 16))
    names: list[str] = first.table.column_names
    return names


def _read_parquet(
    path: Path,
    needed: tuple[str, ...],
    columns: list[str] | None,
    size: int,
    position: int,
    before: int,
) -> Iterator[Piece]:
    import pyarrow as pa
    import pyarrow.parquet

    with pa.parquet.ParquetFile(path, buffer_size=1 << 20) as file:
        check_columns(file.schema_arrow.names, needed)
        total = file.metadata.num_rows
        groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
        unpacked = sum(group.total_byte_size for group in groups)
        rows = max(1, size * total // max(unpacked, 1))
        if not position:
            yield Piece(file.schema_arrow.empty_table(), 0, 0, 0, total)
        row = 0
        for index, group in enumerate(groups):
            if row + group.num_rows <= position:
                row += group.num_rows
                continue
            for batch in file.iter_batches(rows, row_groups=[index], columns=columns):
                table = pa.Table.from_batches([batch]).slice(max(position - row, 0))
                row += len(batch)
                if table.num_rows:
                    yield Piece(table, row - table.num_rows, row, row, total)
