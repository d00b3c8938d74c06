"""What an encoder of a column is, and what it makes of some rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow

Matrix = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Block:
    """The features of one column, and what was found on the way.

    Attributes:
        matrix: float32 [rows, width]
        gaps: which rows had no value.  bool [rows]
        new: categories that the first table had not, with the first row of each.
        new_rows: how many rows have one of them.
        unflagged: how many gaps no feature tells of.
    """

    matrix: Matrix
    gaps: Mask
    new: dict[str, int] = field(default_factory=dict)
    new_rows: int = 0
    unflagged: int = 0


class ColumnEncoder(ABC):
    """Makes a fixed number of features of each value of a column, one row at a time.

    A row's features depend on its own value and on what was fitted on the first table, on nothing
    else: that is why rows that come later, as deltas, get the same features.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def width(self) -> int:
        """How many features a value becomes."""

    @property
    @abstractmethod
    def how(self) -> str:
        """How it is read, in words."""

    @abstractmethod
    def encode(self, values: pyarrow.Array, name: str, *, before: int = 0) -> Block:
        """Return the features of values.  name, before: of the column, for messages"""

    def to_json(self) -> dict[str, Any]:
        """Return what was fitted."""
        return dict(vars(self))


@dataclass(frozen=True)
class LeftOut(ColumnEncoder):
    """A column that is not used, and why."""

    why: str
    kind = "skip"

    @property
    def width(self) -> int:
        """None."""
        return 0

    @property
    def how(self) -> str:
        """Why it is not used."""
        return f"left out: {self.why}"

    def encode(self, values: pyarrow.Array, name: str, *, before: int = 0) -> Block:
        """Return no features."""
        rows = len(values)
        return Block(np.zeros((rows, 0), np.float32), gaps=np.zeros(rows, dtype=bool))
