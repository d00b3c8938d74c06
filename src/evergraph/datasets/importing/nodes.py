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
from evergraph.datasets.files.table_columns import column, features, ids, is_text
from evergraph.datasets.files.table_folder import feature_names
from evergraph.datasets.files.table_labels import (
    label_values,
    numbered,
    say_missing,
    spelled_missing,
)
from evergraph.datasets.files.table_times import times
from evergraph.datasets.importing.appended_array import AppendedArray
from evergraph.datasets.importing.chunks import Chunk, read_chunks
from evergraph.datasets.importing.node_index import write_ids
from evergraph.datasets.importing.progress import NodesRead
from evergraph.datasets.importing.queries import Query
from evergraph.graphs.feature_scale import column_peaks, loud_column
from evergraph.graphs.validation import check_labels

if TYPE_CHECKING:
    import pyarrow

_BLOCK = 1 << 20


def import_nodes(
    path: Path | Query, graph: Path, ids_file: Path, *, size: int, on_piece: Callable[[Chunk], None]
) -> NodesRead:
    """Write ``features``, ``labels`` and ``time`` of a graph folder, and the ids aside.

    size: of the pieces that the table is read in, in bytes.
    """
    pieces = read_chunks(path, ("id", "label"), size=size)
    first = next(pieces)
    names = feature_names(first.table.column_names)
    timed = "time" in first.table.column_names
    (graph / "time.npy").unlink(missing_ok=True)
    classes = _Classes(guess=path.suffix != ".parquet")
    peaks, dates = torch.zeros(len(names)), _Dates()
    with ExitStack() as stack:
        stack.enter_context(disk_is_enough(ids_file))
        matrix = AppendedArray(graph / "features.npy", np.float32, width=len(names))
        codes = AppendedArray(graph / "labels.npy", np.int64)
        when = AppendedArray(graph / "time.npy", np.int64) if timed else None
        arrays = [array for array in (matrix, codes, when) if array is not None]
        for array in arrays:
            stack.enter_context(closing(array))
        kept_ids = stack.enter_context(write_ids(ids_file, ids(first.table, "id").type))
        for piece in _chain(first, pieces):
            table, before = piece.table, piece.before
            kept_ids.write_table(_table(id=ids(table, "id", before=before)))
            values = features(table, names, before=before)
            torch.maximum(peaks, column_peaks(values), out=peaks)
            matrix.append(values.numpy())
            codes.append(classes.codes(column(table, "label"), before))
            if when is not None:
                when.append(dates.times(table, before))
            on_piece(piece)
        for array in arrays:
            array.finish()
    count = _number_classes(graph / "labels.npy", classes)
    say_missing(path, classes.missing)
    return NodesRead(
        nodes=codes.length,
        features=len(names),
        classes=count,
        loud=loud_column(peaks, names),
    )


def _chain(first: Chunk, rest: Any) -> Any:
    yield first
    yield from rest


def _table(**columns: Any) -> pyarrow.Table:
    import pyarrow as pa

    return pa.table(columns)


class _Dates:
    """Reads times piece by piece, all numbers or all dates."""

    def __init__(self) -> None:
        self._dates: bool | None = None

    def times(self, table: pyarrow.Table, before: int) -> NDArray[np.int64]:
        """Return the times of a piece.  int64 [rows]"""
        found, dates = times(table, before=before)
        if len(found) and self._dates not in (None, dates):
            value = column(table, "time")[0].as_py()
            raise DataError(
                f"row {before + 1} has {value!r} in column 'time': expected a "
                f"{'date or a timestamp' if self._dates else 'whole number'} like those before it"
            )
        self._dates = dates if len(found) else self._dates
        return found.numpy()


class _Classes:
    """Numbers labels in the order of their coming, until all are known.

    A label is a number or a name depending on all others, and names are numbered in sorted order:
    neither is known before the last row.

    Attributes:
        missing: how often each way to write a missing label was met.
    """

    def __init__(self, *, guess: bool) -> None:
        self.guess = guess  # whether the file says nothing of what its labels are
        self.missing: dict[str, int] = {}
        self._kind: Any = None
        self._codes: dict[Any, int] = {}
        self._rows: list[int] = []  # where each label was met first

    def codes(self, values: pyarrow.Array, before: int) -> NDArray[np.int64]:
        """Return a number for each label.  [rows] -> int64 [rows]"""
        for text, count in spelled_missing(values).items():
            self.missing[text] = self.missing.get(text, 0) + count
        if not self.guess or not is_text(values.type):
            values = label_values(values, guess=False, before=before)
        self._kind = values.type
        coded = values.dictionary_encode(null_encoding="encode")
        order: NDArray[np.int64] = coded.indices.to_numpy(zero_copy_only=False)
        first = np.unique(order, return_index=True)[1]
        places = []
        for label, row in zip(coded.dictionary.to_pylist(), first.tolist(), strict=True):
            if label not in self._codes:
                self._codes[label] = len(self._codes)
                self._rows.append(before + row)
            places.append(self._codes[label])
        return np.array(places, np.int64)[order]

    def classes(self) -> NDArray[np.int64]:
        """Return the class of each number that was given."""
        import pyarrow as pa

        values = pa.array(list(self._codes), self._kind)
        if self.guess:
            values = label_values(values, guess=True, rows=np.array(self._rows, np.int64))
        return numbered(values).numpy()


def _number_classes(path: Path, classes: _Classes) -> int:
    """Put classes in the place of the numbers that stood for them; return how many there are."""
    mapped = map_array(path, writable=True)
    table = torch.from_numpy(classes.classes())
    for start in range(0, len(mapped), _BLOCK):
        mapped[start : start + _BLOCK] = table[mapped[start : start + _BLOCK]]
    check_labels(mapped)
    return int(mapped.max()) + 1 if len(mapped) else 0
