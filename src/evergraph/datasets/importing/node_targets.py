"""The target columns of a node table: several labels a node, or numbers, into ``targets.npy``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.core.errors import DataError
from evergraph.datasets.files.table_columns import column
from evergraph.datasets.files.table_targets import LABELS, called, label_lists, numbers
from evergraph.datasets.importing.appended_array import AppendedArray

if TYPE_CHECKING:
    import pyarrow

_VALUES = 1 << 19  # that are written at a time
_UNKNOWN = -1  # in place of how many labels a node has


def target_columns(names: list[str], graph: Path, scratch: Path) -> NumberTargets | LabelTargets:
    """Return what writes some target columns, as ``target_names`` gives them, to a graph folder."""
    if names == [LABELS]:
        return LabelTargets(graph / "targets.npy", scratch)
    return NumberTargets(graph / "targets.npy", names)


class NumberTargets:
    """Writes columns of numbers to predict as they come, NaN where one is not known."""

    def __init__(self, path: Path, columns: list[str]) -> None:
        self._columns = columns
        self._array = AppendedArray(path, np.float32, width=len(columns))

    def append(self, table: pyarrow.Table, before: int) -> None:
        """Take the rows of a piece, before which there were so many."""
        found = [self._numbers(table, name, before) for name in self._columns]
        self._array.append(np.stack(found, axis=1))

    def finish(self) -> dict[str, Any]:
        """Complete the file; return kind and names."""
        self._array.finish()
        return {"kind": "numbers", "names": called(self._columns)}

    def close(self) -> None:
        """Close the file as it is."""
        self._array.close()

    def _numbers(self, table: pyarrow.Table, name: str, before: int) -> NDArray[np.float32]:
        values = column(table, name)
        found: NDArray[np.float32] = numbers(values, name)
        if np.isinf(found).any():
            row = int(np.isinf(found).argmax())
            raise DataError(
                f"row {before + row + 1} has {values[row].as_py()!r} in column {name!r}: expected "
                "a finite number, or none where it is not known"
            )
        return found


class LabelTargets:
    """Writes which labels each node has, once all rows have told which labels there are.

    Until then it keeps, in two files aside, how many labels each node has and which, numbered in
    the order of their coming.
    """

    def __init__(self, path: Path, scratch: Path) -> None:
        self._path = path
        self._counts = AppendedArray(scratch / "label_counts.npy", np.int32)
        self._codes = AppendedArray(scratch / "label_codes.npy", np.int32)
        self._places: dict[str, int] = {}

    def append(self, table: pyarrow.Table, before: int) -> None:
        """Take the rows of a piece."""
        rows, places = label_lists(column(table, LABELS)), self._places
        counts = [_UNKNOWN if row is None else len(row) for row in rows]
        codes = [places.setdefault(label, len(places)) for row in rows for label in row or ()]
        self._counts.append(np.array(counts, np.int32))
        self._codes.append(np.array(codes, np.int32))

    def finish(self) -> dict[str, Any]:
        """Write the file; return kind and names, which are sorted."""
        names = sorted(self._places)
        if not names:
            raise DataError(f"column {LABELS!r} names no label: expected one or more")
        kept = (self._counts, self._codes)
        for array in kept:
            array.finish()
        self._write(names, *(np.load(array.path, mmap_mode="r") for array in kept))
        for array in kept:
            array.path.unlink()
        return {"kind": "labels", "names": names}

    def close(self) -> None:
        """Close the files as they are."""
        self._counts.close()
        self._codes.close()

    def _write(self, names: list[str], counts: NDArray[np.int32], codes: NDArray[np.int32]) -> None:
        places = np.empty(len(names), np.int64)
        places[[self._places[name] for name in names]] = np.arange(len(names))
        array = AppendedArray(self._path, np.float32, width=len(names))
        step, read = max(_VALUES // len(names), 1), 0
        try:
            for start in range(0, len(counts), step):
                some = counts[start : start + step]
                known = np.maximum(some, 0)
                values = np.full((len(some), len(names)), np.nan, np.float32)
                values[some != _UNKNOWN] = 0.0
                rows, stop = np.repeat(np.arange(len(some)), known), read + int(known.sum())
                values[rows, places[codes[read:stop]]] = 1.0
                array.append(values)
                read = stop
            array.finish()
        finally:
            array.close()
