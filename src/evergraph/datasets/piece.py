"""Some rows of a table that is read in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class Piece:
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
