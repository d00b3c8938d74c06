"""Numbers, dates and booleans, scaled by the first table, with a flag for gaps.

z = (x - median) / (Q3 - Q1), cut to [-CLIP, CLIP], with the median and quartiles of the first
table. A gap is z = 0, the median. If the first table had gaps, an extra column is 1 in the rows
with a gap. Since propagation is linear, the sums of z and of the flags over neighbours show what
the neighbours' known values are and how many are known, both live and in batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from evergraph.tables.values import (
    Block,
    ColumnEncoder,
    Numbers,
    booleans,
    dates,
    numbers,
)

if TYPE_CHECKING:
    import pyarrow
    from typing_extensions import Self

CLIP = 5.0
YEAR, WEEK = 365.2425 * 86_400, 7 * 86_400  # in seconds


@dataclass(frozen=True)
class NumberEncoder(ColumnEncoder):
    """A number as (x - median) / scale, and a flag if the first table had gaps.

    >>> import pyarrow as pa
    >>> encoder = NumberEncoder.fit(pa.array([1.0, 2.0, 3.0, 4.0, 5.0, None]), "age")
    >>> encoder
    NumberEncoder(median=3.0, scale=2.0, flag=True)
    >>> encoder.encode(pa.array([7, None]), "age").matrix
    array([[2., 0.],
           [0., 1.]], dtype=float32)
    """

    median: float
    scale: float
    flag: bool
    kind = "number"

    @classmethod
    def fit(cls, values: pyarrow.Array, name: str) -> NumberEncoder:
        """Take median and quartiles of the known values; columns of 0 and 1 are not scaled.

        >>> import pyarrow as pa
        >>> NumberEncoder.fit(pa.array([0, 0, 0, 1]), "member")
        NumberEncoder(median=0.0, scale=1.0, flag=False)
        """
        found = numbers(values, name)
        gaps = np.isnan(found)
        if not gaps.all() and np.isin(found[~gaps], (0.0, 1.0)).all():
            return cls(0.0, 1.0, bool(gaps.any()))
        return cls(*_robust(found))

    @property
    def width(self) -> int:
        """One, plus one for the flag."""
        return 1 + self.flag

    @property
    def how(self) -> str:
        """A description of the encoding."""
        flag = ", and a flag for gaps" if self.flag else ""
        return f"(x - {self.median:g}) / {self.scale:g}, cut at {CLIP:g}{flag}"

    def encode(self, values: pyarrow.Array, name: str, *, before: int = 0) -> Block:
        """Return scaled numbers."""
        found = numbers(values, name, before=before)
        return _block([_scaled(found, self.median, self.scale)], np.isnan(found), self.flag)


@dataclass(frozen=True)
class _UnscaledEncoder(ColumnEncoder):
    """A number that is not scaled, and a flag if the first table had gaps."""

    flag: bool
    reads: ClassVar[Callable[..., Numbers]]
    said: ClassVar[str]

    @classmethod
    def fit(cls, values: pyarrow.Array, name: str) -> Self:
        """Record whether there are gaps."""
        return cls(bool(np.isnan(cls.reads(values, name)).any()))

    @property
    def width(self) -> int:
        """One, plus one for the flag."""
        return 1 + self.flag

    @property
    def how(self) -> str:
        """A description of the encoding."""
        return f"{self.said}, and a flag for gaps" if self.flag else self.said

    def encode(self, values: pyarrow.Array, name: str, *, before: int = 0) -> Block:
        """Return the numbers."""
        found = self.reads(values, name, before=before)
        return _block([found], np.isnan(found), self.flag)


class RawEncoder(_UnscaledEncoder):
    """An unscaled number, and a flag if the first table had gaps.

    >>> import pyarrow as pa
    >>> RawEncoder.fit(pa.array([1]), "age").encode(pa.array([3000]), "age").matrix
    array([[3000.]], dtype=float32)
    """

    kind, said, reads = "raw", "as it is", staticmethod(numbers)


class BooleanEncoder(_UnscaledEncoder):
    """True as 1, false as 0, and a flag if the first table had gaps."""

    kind, said, reads = "boolean", "0 or 1", staticmethod(booleans)


@dataclass(frozen=True)
class DateEncoder(ColumnEncoder):
    """A date as scaled time, and its phase in the year and in the week.

    [z, sin 2πt/year, cos 2πt/year, sin 2πt/week, cos 2πt/week], t in seconds since 1970 in UTC.

    >>> import pyarrow as pa
    >>> encoder = DateEncoder.fit(pa.array(["1970-01-01", "1970-01-03"]), "born")
    >>> encoder.encode(pa.array(["1970-01-01"]), "born").matrix
    array([[-1.,  0.,  1.,  0.,  1.]], dtype=float32)
    """

    median: float
    scale: float
    flag: bool
    kind = "date"

    @classmethod
    def fit(cls, values: pyarrow.Array, name: str) -> DateEncoder:
        """Take median and quartiles of the known dates."""
        return cls(*_robust(dates(values, name)))

    @property
    def width(self) -> int:
        """Five, plus one for the flag."""
        return 5 + self.flag

    @property
    def how(self) -> str:
        """A description of the encoding."""
        middle = np.datetime64(int(self.median), "s").astype("datetime64[D]")
        flag = ", a flag for gaps" if self.flag else ""
        return f"time around {middle} in {self.scale / 86_400:g} days, year and week{flag}"

    def encode(self, values: pyarrow.Array, name: str, *, before: int = 0) -> Block:
        """Return scaled times and phases."""
        found = dates(values, name, before=before)
        phases = [2 * np.pi * (found / period % 1) for period in (YEAR, WEEK)]
        waves = [wave(phase) for phase in phases for wave in (np.sin, np.cos)]
        scaled = _scaled(found, self.median, self.scale)
        return _block([scaled, *waves], np.isnan(found), self.flag)


def _robust(found: Numbers) -> tuple[float, float, bool]:
    """Return median, scale, and whether there are gaps.

    If the quartiles are equal, the scale is the standard deviation; if that is 0, as for a single
    row, it is the absolute median.
    """
    known = found[~np.isnan(found)]
    if not len(known):
        return 0.0, 1.0, True
    low, median, high = np.quantile(known, (0.25, 0.5, 0.75))
    scale = float(high - low) or float(known.std()) or abs(float(median)) or 1.0
    return float(median), scale, len(known) < len(found)


def _scaled(found: Numbers, median: float, scale: float) -> Numbers:
    return np.clip((found - median) / scale, -CLIP, CLIP)


def _block(columns: list[Numbers], gaps: Any, flag: bool) -> Block:
    """Put columns side by side, 0 in the gaps."""
    matrix = np.stack([*columns, *([gaps] if flag else [])], axis=1).astype(np.float32)
    matrix[gaps, : len(columns)] = 0
    return Block(matrix, gaps=gaps, unflagged=0 if flag else int(gaps.sum()))
