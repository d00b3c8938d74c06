"""Values of a column as numbers, dates, yes or no, texts and lists, gaps told apart.

A CSV has no kinds and a small table shows another kind than a large one: so values are read as the
kind that the column has, whatever kind the file gives them. ``name`` and ``before`` (how many rows
came before these) are for messages.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from ast import literal_eval
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from evergraph.core.errors import DataError
from evergraph.tables.columns import is_number, is_text, parsed
from evergraph.tables.labels import SPELLINGS

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


Numbers = NDArray[np.float64]
YES, NO = ("true", "yes", "t", "y", "1"), ("false", "no", "f", "n", "0")


def filled(values: pyarrow.Array) -> pyarrow.Array:
    """Return texts without blanks around them, null where there is none or one that says so.

    >>> import pyarrow as pa
    >>> filled(pa.array([" 7", "", "NULL", None])).to_pylist()
    ['7', None, None, None]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(values)
    missing = pc.is_in(trimmed, value_set=pa.array(["", *SPELLINGS], trimmed.type))
    return pc.if_else(missing, pa.scalar(None, trimmed.type), trimmed)


def numbers(values: pyarrow.Array, name: str, *, before: int = 0) -> Numbers:
    """Return finite numbers, NaN where there is none.  float64 [rows]

    >>> import pyarrow as pa
    >>> numbers(pa.array(["1.5", "NA", "red"]), "price")
    Traceback (most recent call last):
    evergraph.core.errors.DataError: row 3 has 'red' in column 'price': expected a number
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    given = values
    if is_text(values.type):
        values = _cast(filled(values), _as_number, name, before, "a number")
    elif not is_number(values.type) and not pa.types.is_decimal(values.type):
        _check_nothing(values, name, "numbers")
        return np.full(len(values), np.nan)
    found: Numbers = np.array(
        pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64
    )
    endless = np.isinf(found)
    if endless.any():
        raise _wrong(given, int(endless.argmax()), name, before, "a finite number")
    return found


def _as_number(texts: pyarrow.Array) -> pyarrow.Array | None:
    import pyarrow as pa

    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        return None


def booleans(values: pyarrow.Array, name: str, *, before: int = 0) -> Numbers:
    """Return 1 for yes, 0 for no, NaN where there is none.  float64 [rows]"""
    import pyarrow as pa

    if is_text(values.type):
        values = _cast(filled(values), _as_yes, name, before, "true or false")
    found = numbers(values, name, before=before)
    wrong = ~np.isin(found, (0.0, 1.0)) & ~np.isnan(found)
    if wrong.any():
        raise _wrong(pa.array(found), int(wrong.argmax()), name, before, "true or false")
    return found


def _as_yes(texts: pyarrow.Array) -> pyarrow.Array | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    small = pc.utf8_lower(texts)
    yes, no = (pc.is_in(small, value_set=pa.array(said, small.type)) for said in (YES, NO))
    known = pc.or_(yes, no)
    if not pc.all(pc.or_(known, texts.is_null()), min_count=0).as_py():
        return None
    return pc.if_else(known, yes, pa.scalar(None, pa.bool_()))


def dates(values: pyarrow.Array, name: str, *, before: int = 0) -> Numbers:
    """Return seconds since 1970 in UTC, NaN where there is none.  float64 [rows]

    Texts are dates and timestamps as ISO 8601 writes them.
    """
    import pyarrow as pa

    if is_text(values.type):
        values = _cast(filled(values), _as_date, name, before, "a date such as 2021-03-04")
    elif not pa.types.is_date(values.type) and not pa.types.is_timestamp(values.type):
        _check_nothing(values, name, "dates")
        return np.full(len(values), np.nan)
    ticks = values.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    seconds: Numbers = np.array(ticks.to_numpy(zero_copy_only=False), np.float64) / 1e6
    return seconds


def _as_date(texts: pyarrow.Array) -> pyarrow.Array | None:
    import pyarrow as pa

    coded = texts.dictionary_encode()
    for zone in (None, "UTC"):
        found = parsed(coded.dictionary, pa.timestamp("us", zone))
        if found is not None:
            return found.cast(pa.timestamp("us"), safe=False).take(coded.indices)
    return None


def texts(values: pyarrow.Array, name: str) -> pyarrow.Array:
    """Return values as texts, null where there is none; 3.0, as pandas has it, is ``3``.

    >>> import pyarrow as pa
    >>> texts(pa.array([3.0, None, 2.5]), "size").to_pylist()
    ['3', None, '2.5']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_nested(values.type):
        raise DataError(f"column {name!r} holds {values.type}: expected texts")
    if pa.types.is_floating(values.type):
        found = [None if value is None or value != value else value for value in values.to_pylist()]
        values = pa.array([_plain(value) for value in found], pa.string())
    elif not is_text(values.type):
        values = values.cast(pa.string())
    trimmed = pc.utf8_trim_whitespace(values)
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, trimmed.type), trimmed)


def _plain(value: float | None) -> str | None:
    return None if value is None else str(int(value)) if value.is_integer() else repr(value)


def lists(
    values: pyarrow.Array, name: str, *, separator: str, before: int = 0
) -> tuple[NDArray[np.int64], pyarrow.Array]:
    """Return items as texts, and how many each row has.  int64 [rows], [items]

    A text is a list in JSON or in Python, or items with ``separator`` between them.
    """
    import pyarrow as pa

    if pa.types.is_null(values.type):
        return np.zeros(len(values), np.int64), pa.array([], pa.string())
    if is_text(values.type):
        rows = [_items(text, separator) for text in texts(values, name).to_pylist()]
        values = pa.array(rows, pa.list_(pa.string()))
    if not pa.types.is_list(values.type):
        try:  # large lists and lists of a fixed size
            values = values.cast(pa.list_(values.type.value_type))
        except (AttributeError, pa.ArrowException):
            raise DataError(f"column {name!r} holds {values.type}: expected lists") from None
    items = texts(values.flatten(), name)
    counts: NDArray[np.int64] = np.array(
        values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), np.int64
    )
    owner = np.repeat(np.arange(len(values)), counts)[items.is_valid().to_numpy(False)]
    return np.bincount(owner, minlength=len(values)), items.drop_null()


def _items(text: str | None, separator: str) -> list[str] | None:
    if text is None:
        return None
    if text.startswith("[") and text.endswith("]"):
        for read in (json.loads, literal_eval):  # the second is how pandas writes lists
            try:
                return [str(item) for item in read(text)]
            except (ValueError, SyntaxError):
                pass
    return [item for part in text.split(separator) if (item := part.strip())]


def _cast(
    found: pyarrow.Array,
    cast: Callable[[Any], Any],
    name: str,
    before: int,
    rule: str,
) -> pyarrow.Array:
    """Return texts as another kind; raise naming the first that is not of it."""
    made = cast(found)
    if made is not None:
        return made
    low, high = 0, len(found)  # all before low are sound, one before high is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cast(found[low:middle]) is not None else (low, middle)
    raise _wrong(found, low, name, before, rule)


def _check_nothing(values: pyarrow.Array, name: str, expected: str) -> None:
    """Raise unless a column of another kind holds no value at all."""
    if values.null_count < len(values):
        raise DataError(f"column {name!r} holds {values.type}: expected {expected}")


def _wrong(values: pyarrow.Array, row: int, name: str, before: int, rule: str) -> DataError:
    return DataError(
        f"row {before + row + 1} has {values[row].as_py()!r} in column {name!r}: expected {rule}"
    )
