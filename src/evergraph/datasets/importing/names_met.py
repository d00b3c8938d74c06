"""Names that are numbered in the order in which they are met, over the pieces of a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evergraph.core.errors import DataError
from evergraph.datasets.files.table_relations import numbered_texts

if TYPE_CHECKING:
    import pyarrow


class NamesMet:
    """Numbers the texts of a column piece by piece, as reading it whole would.

    Args:
        column: its name.
        most: how many names there may be.
        names: those that were met before, by number.

    >>> import pyarrow as pa
    >>> met = NamesMet("type", most=9, names=["paper"])
    >>> met.numbers(pa.table({"type": ["author", "paper", "author"]}), before=0), met.names
    (array([1, 0, 1]), ['paper', 'author'])
    """

    def __init__(self, column: str, *, most: int, names: Iterable[str] = ()) -> None:
        self.column = column
        self.most = most
        self._places = {name: place for place, name in enumerate(names)}

    @property
    def names(self) -> list[str]:
        """Those that were met so far, by number."""
        return list(self._places)

    def numbers(self, table: pyarrow.Table, *, before: int) -> NDArray[np.int64]:
        """Return the number of each row's name.  int64 [rows]

        before: how many rows came before these.
        """
        names, codes = numbered_texts(table, self.column, before=before)
        places = [self._places.setdefault(name, len(self._places)) for name in names]
        if len(self._places) > self.most:
            raise DataError(
                f"column {self.column!r} holds {len(self._places):,} names by row "
                f"{before + table.num_rows:,}: at most {self.most:,} are supported"
            )
        found: NDArray[np.int64] = np.array(places, np.int64)[codes.numpy()]
        return found
