"""The node table of an import: features, labels, times and ids, each into its own file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.core.errors import DataError
from evergraph.core.mapped import disk_is_enough, map_array
from evergraph.datasets.appended_array import AppendedArray
from evergraph.datasets.import_progress import NodesRead
from evergraph.datasets.node_index import write_ids
from evergraph.datasets.piece import Piece
from evergraph.datasets.table_columns import column, features, ids, labels, whole_numbers
from evergraph.datasets.table_folder import RESERVED
from evergraph.datasets.table_pieces import read_pieces
from evergraph.graphs.validation import check_labels

if TYPE_CHECKING:
    import pyarrow

_BLOCK = 1 << 20


def import_nodes(
    path: Path, graph: Path, ids_file: Path, *, size: int, on_piece: Callable[[Piece], None]
) -> NodesRead:
    """Write ``features``, ``labels`` and ``time`` of a graph folder, and the ids aside.

    size: of the pieces that the table is read in, in bytes.
    """
    pieces = read_pieces(path, ("id", "label"), size=size)
    first = next(pieces)
    names = [name for name in first.table.column_names if name not in RESERVED]
    timed = "time" in first.table.column_names
    (graph / "time.npy").unlink(missing_ok=True)
    classes = _Classes(text=path.suffix != ".parquet")
    with ExitStack() as stack:
        stack.enter_context(disk_is_enough(ids_file))
        matrix = AppendedArray(graph / "features.npy", np.float32, width=len(names))
        codes = AppendedArray(graph / "labels.npy", np.int64)
        times = AppendedArray(graph / "time.npy", np.int64) if timed else None
        arrays = [array for array in (matrix, codes, times) if array is not None]
        for array in arrays:
            stack.enter_context(closing(array))
        kept_ids = stack.enter_context(write_ids(ids_file, ids(first.table, "id").type))
        for piece in _chain(first, pieces):
            table, before = piece.table, piece.before
            kept_ids.write_table(_table(id=ids(table, "id", before=before)))
            matrix.append(_finite(features(table, names, before=before).numpy(), before))
            codes.append(classes.codes(column(table, "label")))
            if times is not None:
                times.append(_times(table, before))
            on_piece(piece)
        for array in arrays:
            array.finish()
    count = _number_classes(graph / "labels.npy", classes)
    return NodesRead(nodes=codes.length, features=len(names), classes=count)


def _chain(first: Piece, rest: Any) -> Any:
    yield first
    yield from rest


def _table(**columns: Any) -> pyarrow.Table:
    import pyarrow as pa

    return pa.table(columns)


def _finite(values: NDArray[np.float32], before: int) -> NDArray[np.float32]:
    if not np.isfinite(values.sum(dtype=np.float64)):
        bad = np.flatnonzero(~np.isfinite(values).all(1))
        if len(bad):
            raise DataError(
                f"features hold NaN or infinity, first in row {before + int(bad[0])}: "
                f"expected finite numbers"
            )
    return values


def _times(table: pyarrow.Table, before: int) -> NDArray[np.int64]:
    import pyarrow as pa

    values = column(table, "time")
    if pa.types.is_string(values.type):
        coded = values.dictionary_encode()
        values = _as_read(coded.dictionary.to_pylist()).take(coded.indices)
    times: NDArray[np.int64] = whole_numbers(_table(time=values), "time", before=before).numpy()
    return times


class _Classes:
    """Numbers labels in the order of their coming, until all are known.

    A label is a number or a name depending on all others, and names are numbered in sorted order:
    neither is known before the last row.
    """

    def __init__(self, *, text: bool) -> None:
        self.text = text  # whether the file says nothing of what its labels are
        self._kind: Any = None
        self._codes: dict[Any, int] = {}

    def codes(self, values: pyarrow.Array) -> NDArray[np.int64]:
        """Return a number for each label.  [rows] -> int64 [rows]"""
        self._kind = values.type
        coded = values.dictionary_encode(null_encoding="encode")
        known = coded.dictionary.to_pylist()
        places = [self._codes.setdefault(label, len(self._codes)) for label in known]
        order: NDArray[np.int64] = coded.indices.to_numpy(zero_copy_only=False)
        return np.array(places, np.int64)[order]

    def classes(self) -> NDArray[np.int64]:
        """Return the class of each number that was given."""
        import pyarrow as pa

        found = list(self._codes)
        values = _as_read(found) if self.text else pa.array(found, self._kind)
        classes: NDArray[np.int64] = labels(_table(label=values)).numpy()
        return classes


def _as_read(texts: list[str]) -> pyarrow.Array:
    """Return texts as what a CSV reader takes a column of them for: numbers, names, dates."""
    import pyarrow as pa
    import pyarrow.csv as csv

    lines = "\n".join('"' + text.replace('"', '""') + '"' for text in ("column", *texts))
    options = csv.ParseOptions(newlines_in_values=True)
    table = csv.read_csv(pa.BufferReader(f"{lines}\n".encode()), parse_options=options)
    return column(table, "column")


def _number_classes(path: Path, classes: _Classes) -> int:
    """Put classes in the place of the numbers that stood for them; return how many there are."""
    mapped = map_array(path, writable=True)
    table = torch.from_numpy(classes.classes())
    for start in range(0, len(mapped), _BLOCK):
        mapped[start : start + _BLOCK] = table[mapped[start : start + _BLOCK]]
    check_labels(mapped)
    return int(mapped.max()) + 1 if len(mapped) else 0
