"""Numbers, dates and booleans, scaled by the first table, with a flag for gaps.

z = (x - median) / (Q3 - Q1), cut to [-CLIP, CLIP], with the median and quartiles of the first
table. A gap is z = 0, the median. If the first table had gaps, an extra column is 1 in the rows
with a gap. Since propagation is linear, the sums of z and of the flags over neighbours show what
the neighbours' known values are and how many are known, both live and in batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from evergraph.core.errors import DataError
from evergraph.tables.arrow import pa
from evergraph.tables.values import (
    Block,
    ColumnEncoder,
    Numbers,
    Rule,
    booleans,
    column_kinds,
    dates,
    numbers,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from evergraph.tables.choices import Columns

CLIP = 5.0
YEAR, WEEK, DAY = 365.2425 * 86_400, 7 * 86_400, 86_400  # in seconds


class _FlaggedEncoder(ColumnEncoder):
    """Columns of numbers, 0 in the gaps, and a flag if the first table had gaps."""

    flag: bool
    reads: ClassVar[Callable[..., Numbers]]

    @property
    def width(self) -> int:
        return 1 + self.flag

    def encode(self, values: pa.Array, name: str, *, before: int = 0) -> Block:
        found = self.reads(values, name, before=before)
        gaps, columns = np.isnan(found), self._columns(found)
        matrix = np.stack([*columns, *([gaps] if self.flag else [])], axis=1).astype(np.float32)
        matrix[gaps, : len(columns)] = 0
        unflagged, times = 0 if self.flag else int(gaps.sum()), self._times(found[~gaps])
        return Block(matrix, gaps=gaps, unflagged=unflagged, times=times)

    def _columns(self, found: Numbers) -> list[Numbers]:
        return [found]

    def _times(self, known: Numbers) -> float:
        return 0.0


@dataclass(frozen=True)
class _UnscaledEncoder(_FlaggedEncoder):
    flag: bool
    said: ClassVar[str]

    @classmethod
    def fit(cls, values: pa.Array, name: str, choices: Columns | None = None) -> Self:
        return cls(bool(np.isnan(cls.reads(values, name)).any()))

    def __str__(self) -> str:
        return f"{self.said}, and a flag for gaps" if self.flag else self.said


@column_kinds.register
class RawEncoder(_UnscaledEncoder):
    """An unscaled number, and a flag if the first table had gaps.

    >>> import pyarrow as pa
    >>> RawEncoder.fit(pa.array([1]), "age").encode(pa.array([3000]), "age").matrix
    array([[3000.]], dtype=float32)
    """

    name = "raw"
    said, reads = "as it is", staticmethod(numbers)


@column_kinds.register
class BooleanEncoder(_UnscaledEncoder):
    """True as 1, false as 0, and a flag if the first table had gaps."""

    name = "boolean"
    said, reads = "0 or 1", staticmethod(booleans)


@dataclass(frozen=True)
class _ScaledEncoder(_FlaggedEncoder):
    median: Annotated[float, Rule(allow_inf_nan=False)]
    scale: Annotated[float, Rule(gt=0, allow_inf_nan=False)]
    flag: bool

    @classmethod
    def fit(cls, values: pa.Array, name: str, choices: Columns | None = None) -> Self:
        """Take median and quartiles of the known values.

        If the quartiles are equal, the scale is the standard deviation; if that is 0, as for a
        single row, it is the absolute median.
        """
        found = cls.reads(values, name)
        known = found[~np.isnan(found)]
        if not len(known):
            return cls(0.0, 1.0, True)
        low, median, high = np.quantile(known, (0.25, 0.5, 0.75))
        scale = float(high - low) or float(known.std()) or abs(float(median)) or 1.0
        if not np.isfinite(scale):
            raise DataError(f"column {name!r} has values up to {known.max():g}: expected smaller")
        return cls(float(median), scale, len(known) < len(found))

    def _columns(self, found: Numbers) -> list[Numbers]:
        return [np.clip((found - self.median) / self.scale, -CLIP, CLIP)]


@column_kinds.register
class NumberEncoder(_ScaledEncoder):
    """A number as (x - median) / scale, and a flag if the first table had gaps.

    Columns of 0 and 1 are not scaled.

    >>> import pyarrow as pa
    >>> encoder = NumberEncoder.fit(pa.array([1.0, 2.0, 3.0, 4.0, 5.0, None]), "age")
    >>> encoder
    NumberEncoder(median=3.0, scale=2.0, flag=True)
    >>> encoder.encode(pa.array([7, None]), "age").matrix
    array([[2., 0.],
           [0., 1.]], dtype=float32)
    >>> NumberEncoder.fit(pa.array([0, 0, 0, 1]), "member")
    NumberEncoder(median=0.0, scale=1.0, flag=False)
    """

    name = "number"
    reads = staticmethod(numbers)

    @classmethod
    def fit(cls, values: pa.Array, name: str, choices: Columns | None = None) -> Self:
        found = numbers(values, name)
        gaps = np.isnan(found)
        if not gaps.all() and np.isin(found[~gaps], (0.0, 1.0)).all():
            return cls(0.0, 1.0, bool(gaps.any()))
        return super().fit(values, name)

    def _times(self, known: Numbers) -> float:
        usual = abs(self.median) + self.scale
        return float(np.median(np.abs(known))) / usual if len(known) else 0.0

    def __str__(self) -> str:
        flag = ", and a flag for gaps" if self.flag else ""
        sign = "+" if self.median < 0 else "-"
        return f"(x {sign} {abs(self.median):g}) / {self.scale:g}, clipped at {CLIP:g}{flag}"


@column_kinds.register
@dataclass(frozen=True)
class DateEncoder(_ScaledEncoder):
    """A date as scaled time, and its phase in the year, the week and, if times vary, the day.

    [z, sin 2πt/year, cos 2πt/year, sin 2πt/week, cos 2πt/week, sin 2πt/day, cos 2πt/day], t in
    seconds since 1970 in UTC. The last two are left out if all times of the first table have the
    same time of day, as dates have.

    >>> import pyarrow as pa
    >>> encoder = DateEncoder.fit(pa.array(["1970-01-01", "1970-01-03"]), "born")
    >>> encoder.encode(pa.array(["1970-01-01"]), "born").matrix
    array([[-1.,  0.,  1.,  0.,  1.]], dtype=float32)
    >>> DateEncoder.fit(pa.array(["1970-01-01T00:00", "1970-01-01T06:00"]), "seen").width
    7
    """

    # in seconds; microseconds of 64 bits reach no further
    median: Annotated[float, Rule(ge=-1e13, le=1e13)]
    daily: bool = False  # whether the time of day counts
    name = "date"
    reads = staticmethod(dates)

    @classmethod
    def fit(cls, values: pa.Array, name: str, choices: Columns | None = None) -> Self:
        """Take median and quartiles, and see whether the time of day varies."""
        found = dates(values, name)
        hours = np.unique(found[~np.isnan(found)] % DAY)
        return replace(super().fit(values, name), daily=len(hours) > 1)

    @property
    def _periods(self) -> tuple[float, ...]:
        return (YEAR, WEEK, DAY) if self.daily else (YEAR, WEEK)

    @property
    def width(self) -> int:
        return 1 + 2 * len(self._periods) + self.flag

    def __str__(self) -> str:
        middle = np.datetime64(int(self.median), "s").astype("datetime64[D]")
        phases = "year, week and day" if self.daily else "year and week"
        flag = ", a flag for gaps" if self.flag else ""
        return f"time around {middle} in {self.scale / DAY:g} days, {phases}{flag}"

    def _columns(self, found: Numbers) -> list[Numbers]:
        phases = [2 * np.pi * (found / period % 1) for period in self._periods]
        waves = [wave(phase) for phase in phases for wave in (np.sin, np.cos)]
        return [*super()._columns(found), *waves]
