"""From the ids of a node table to positions, for millions of ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.core.errors import DataError
from evergraph.datasets.files.table_folder import check_distinct

if TYPE_CHECKING:
    import pyarrow

Positions = NDArray[np.int64]

# A table over all numbers from the least id to the greatest may have so many places for an id.
_SPREAD = 8
_POWERS = 10 ** np.arange(1, 19)


class NodeIndex:
    """Finds nodes by their ids, which are text or whole numbers, each once.

    Ids that are numbers without gaps to speak of, also when written as text, are looked up in an
    array; all others are hashed anew for every lot that is asked for, so lots should be large.

    >>> import pyarrow as pa
    >>> index = NodeIndex(pa.array(["7", "5", "6"]))
    >>> index.positions(pa.array(["5", "7"]), "source")
    array([1, 0])
    >>> index.positions(pa.array(["6", "05"]), "target", before=100)
    Traceback (most recent call last):
    evergraph.core.errors.DataError: row 102 has target '05': expected the id of a node
    """

    def __init__(self, ids: pyarrow.Array) -> None:
        self._ids = ids
        self._table: NDArray[np.int32] | None = None
        numbers = _numbers(ids)
        if numbers is not None and len(numbers):
            self._low = int(numbers.min())
            spread = int(numbers.max()) - self._low + 1
            if spread <= _SPREAD * len(numbers):
                self._table = np.full(spread, -1, np.int32)
                self._table[numbers - self._low] = np.arange(len(numbers), dtype=np.int32)
        if self._table is None or int((self._table >= 0).sum()) < len(ids):
            check_distinct(ids)

    def positions(self, values: pyarrow.Array, column: str, *, before: int = 0) -> Positions:
        """Return the node that each id names.  [ids] -> int64 [ids]

        column, before: for messages: where the ids are from, and how many rows came before.
        """
        found = self.where(values)
        if len(found) and int(found.min()) < 0:
            row = int(found.argmin())
            raise DataError(
                f"row {before + row + 1} has {column} {values[row].as_py()!r}: "
                f"expected the id of a node"
            )
        return found

    def where(self, values: pyarrow.Array) -> Positions:
        """Return the node that each id names, -1 where there is none.  [ids] -> int64 [ids]"""
        numbers = _numbers(values) if self._table is not None else None
        found = None if numbers is None else self._look_up(numbers)
        return self._search(values) if found is None else found

    def _look_up(self, numbers: Positions) -> Positions | None:
        assert self._table is not None
        places = numbers - self._low
        if len(places) and (int(places.min()) < 0 or int(places.max()) >= len(self._table)):
            return None
        found = self._table[places].astype(np.int64)
        return None if len(found) and int(found.min()) < 0 else found

    def _search(self, values: pyarrow.Array) -> Positions:
        import pyarrow as pa
        import pyarrow.compute as pc

        known = self._ids
        if values.type != known.type:  # one file has numbers, the other text
            values, known = values.cast(pa.string()), known.cast(pa.string())
        found: Any = pc.index_in(values, value_set=known)
        return np.asarray(found.fill_null(-1).to_numpy(), np.int64)


def _numbers(values: pyarrow.Array) -> Positions | None:
    """Return ids as numbers if every one of them is written as a number is, else None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(values.type):
        return np.asarray(values.to_numpy(), np.int64)
    try:
        numbers = np.asarray(pc.cast(values, pa.int64()).to_numpy(), np.int64)
    except pa.ArrowInvalid:
        return None
    # No text of the same number is shorter than the usual one: 007, +7 and ' 7' are longer.
    lengths = np.searchsorted(_POWERS, np.abs(numbers), side="right") + 1 + (numbers < 0)
    written = pc.sum(pc.binary_length(values)).as_py() or 0
    return numbers if int(lengths.sum()) == written else None


def write_ids(path: Path, kind: pyarrow.DataType) -> Any:
    """Open a file that ids go into, lot by lot."""
    import pyarrow as pa

    return pa.ipc.new_file(str(path), pa.schema([("id", kind)]))


def read_ids(path: Path) -> pyarrow.Array:
    """Return the ids that such a file holds."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        column = pa.ipc.open_file(file).read_all().column("id")
        whole: pyarrow.Array = (
            pa.concat_arrays(column.chunks) if column.num_chunks else (pa.array([], column.type))
        )
        return whole
