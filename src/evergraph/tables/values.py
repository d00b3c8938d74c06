"""Column values as numbers, dates, booleans, texts and lists, with gaps; and the base of encoders.

A CSV has no types, and a small table may show another type than a large one. So values are read as
the kind of their column, whatever type the file gives them. ``name`` and ``before`` (the number of
rows in earlier chunks) are for messages.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from ast import literal_eval
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from evergraph.core.component import Resolver
from evergraph.core.errors import DataError
from evergraph.tables.arrow import pa, pc
from evergraph.tables.columns import accepted, cast_or_none, is_number, is_text, parsed, wrong_value
from evergraph.tables.labels import filled

if TYPE_CHECKING:
    import scipy.sparse
    from typing_extensions import Self

Matrix = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Numbers = NDArray[np.float64]
LARGEST_WIDTH = 512  # bits in one digest
YES, NO = ("true", "yes", "t", "y", "1"), ("false", "no", "f", "n", "0")


@dataclass(frozen=True, eq=False)
class Block:
    """The features of one column, with gaps and new categories."""

    matrix: Matrix  # float32 [rows, width]
    gaps: Mask  # rows without a value.  bool [rows]
    # categories that are not in the first table, with the first row of each
    new: dict[str, int] = field(default_factory=dict)
    new_rows: int = 0  # number of rows with one of them
    unflagged: int = 0  # number of gaps without a flag
    times: float = 0.0  # how large the median value is, in sizes of the first table's; 0 if unknown
    words: scipy.sparse.csr_matrix | None = None  # what the matrix is an estimate of, of texts


class Rule:
    """A rule for a stored value, as pydantic's ``Field`` has it; before: changes a value first.

    pydantic is imported when a scheme is read back: encoding needs none.
    """

    def __init__(self, *, before: Callable[[Any], Any] | None = None, **rules: Any) -> None:
        self.before, self.rules = before, rules

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic import BeforeValidator, Field

        rule = Field(**self.rules) if self.before is None else BeforeValidator(self.before)
        return handler.generate_schema(Annotated[source, rule])


class ColumnEncoder(ABC):
    """Turns each value of a column into a fixed number of features; ``str()`` says how.

    A row's features depend only on its own value and on what was fitted on the first table. So
    later rows, which arrive as deltas, get the same features.
    """

    name: ClassVar[str]  # kind of column that it is for
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}  # what is read back

    @classmethod
    def fit(cls, values: pa.Array, name: str, choices: Any) -> Self:
        """Return the encoder for columns like this one.

        choices: ``Columns``, of which a kind takes the options that concern it.
        """
        raise NotImplementedError(f"{cls.__name__} is not fitted on values")

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of features per value."""

    @abstractmethod
    def encode(self, values: pa.Array, name: str, *, before: int = 0) -> Block:
        """Return the features of values.  name, before: for messages"""

    def to_json(self) -> dict[str, Any]:
        """Return the fitted state."""
        return dict(vars(self))


# Registering a class makes its name a kind for ``Columns``, ``--column`` and services.
column_kinds: Resolver[ColumnEncoder] = Resolver("kind of column")


@dataclass(frozen=True)
class WideEncoder(ColumnEncoder):
    """An encoder whose number of features per value is ``dims``."""

    # Those of ours give a sign for each bit of a hash.
    dims: Annotated[int, Rule(ge=8, le=LARGEST_WIDTH, multiple_of=8)]

    @property
    def width(self) -> int:
        return self.dims

    def parts(self, values: pa.Array, name: str) -> list[dict[str, Matrix]]:
        """Return by name what adds up to the features of each value; empty where nothing has one.

        -> for each value, float32 [dims] by name
        """
        return [{} for _ in values]


@column_kinds.register
@dataclass(frozen=True)
class LeftOut(ColumnEncoder):
    """An unused column, with the reason."""

    why: str
    name = "skip"
    width = 0

    @classmethod
    def fit(cls, values: pa.Array, name: str, choices: Any) -> LeftOut:
        """Leave the column out, as the user asked."""
        return cls("as asked")

    def __str__(self) -> str:
        return f"left out: {self.why}"

    def encode(self, values: pa.Array, name: str, *, before: int = 0) -> Block:
        rows = len(values)
        return Block(np.zeros((rows, 0), np.float32), gaps=np.zeros(rows, dtype=bool))


def numbers(values: pa.Array, name: str, *, before: int = 0) -> Numbers:
    """Return finite numbers, NaN where missing.  float64 [rows]

    >>> import pyarrow as pa
    >>> numbers(pa.array(["1.5", "NA", "red"]), "price")
    Traceback (most recent call last):
    evergraph.core.errors.DataError: row 3 has 'red' in column 'price': expected a number
    """
    given = values
    if is_text(values.type):
        cast = partial(cast_or_none, kind=pa.float64())
        values = accepted(filled(values), cast, name, "a number", before=before)
    elif not is_number(values.type) and not pa.types.is_decimal(values.type):
        return _only_gaps(values, name, "numbers")
    read_values: Numbers = np.array(
        pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64
    )
    if np.isinf(read_values).any():
        row = int(np.isinf(read_values).argmax())
        raise wrong_value(given, row, name, "a finite number", before=before)
    return read_values


def booleans(values: pa.Array, name: str, *, before: int = 0) -> Numbers:
    """Return 1 for yes, 0 for no, NaN where missing.  float64 [rows]"""

    def cast(texts: pa.Array) -> pa.Array | None:
        small = pc.utf8_lower(texts)
        yes, no = (pc.is_in(small, value_set=pa.array(said, small.type)) for said in (YES, NO))
        known = pc.or_(yes, no)
        if not pc.all(pc.or_(known, texts.is_null()), min_count=0).as_py():
            return None
        return pc.if_else(known, yes, pa.scalar(None, pa.bool_()))

    if is_text(values.type):
        values = accepted(filled(values), cast, name, "true or false", before=before)
    read_values = numbers(values, name, before=before)
    wrong = ~np.isin(read_values, (0.0, 1.0)) & ~np.isnan(read_values)
    if wrong.any():
        row = int(wrong.argmax())
        raise wrong_value(pa.array(read_values), row, name, "true or false", before=before)
    return read_values


def dates(values: pa.Array, name: str, *, before: int = 0) -> Numbers:
    """Return seconds since 1970 in UTC, NaN where missing.  float64 [rows]

    Texts are dates and timestamps in ISO 8601.
    """

    def cast(texts: pa.Array) -> pa.Array | None:
        encoded = texts.dictionary_encode()
        for zone in (None, "UTC"):
            moments = parsed(encoded.dictionary, pa.timestamp("us", zone))
            if moments is not None:
                return moments.cast(pa.timestamp("us"), safe=False).take(encoded.indices)
        return None

    if is_text(values.type):
        rule = "a date such as 2021-03-04"
        values = accepted(filled(values), cast, name, rule, before=before)
    elif not pa.types.is_date(values.type) and not pa.types.is_timestamp(values.type):
        return _only_gaps(values, name, "dates")
    ticks = values.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    seconds: Numbers = np.array(ticks.to_numpy(zero_copy_only=False), np.float64) / 1e6
    return seconds


def _only_gaps(values: pa.Array, name: str, expected: str) -> Numbers:
    """Return NaN for each row of a column of another type; raise if it holds any value."""
    if values.null_count < len(values):
        raise DataError(f"column {name!r} holds {values.type}: expected {expected}")
    return np.full(len(values), np.nan)


def texts(values: pa.Array, name: str) -> pa.Array:
    """Return values as texts, null where missing; 3.0, as pandas writes integers, is ``3``.

    >>> import pyarrow as pa
    >>> texts(pa.array([3.0, None, 2.5]), "size").to_pylist()
    ['3', None, '2.5']
    """
    if pa.types.is_nested(values.type):
        raise DataError(f"column {name!r} holds {values.type}: expected texts")
    if pa.types.is_floating(values.type):
        known = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values).to_pylist()
        written = [str(int(n)) if n is not None and n.is_integer() else n for n in known]
        values = pa.array([n if n is None else str(n) for n in written], pa.string())
    elif not is_text(values.type):
        values = values.cast(pa.string())
    trimmed = pc.utf8_trim_whitespace(values)
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, trimmed.type), trimmed)


def lists(
    values: pa.Array, name: str, *, separator: str, before: int = 0
) -> tuple[NDArray[np.int64], pa.Array]:
    """Return items as texts, and the number of items per row.  int64 [rows], [items]

    A text is a list in JSON or Python syntax, or items separated by ``separator``.
    """

    def items_of(text: str | None) -> list[str] | None:
        if text is None:
            return None
        if text.startswith("[") and text.endswith("]"):
            for read in (json.loads, literal_eval):  # pandas writes lists in Python syntax
                try:
                    return [str(item) for item in read(text)]
                except (ValueError, SyntaxError, RecursionError, MemoryError):
                    pass  # the last two if it is nested too deeply
        return [item for part in text.split(separator) if (item := part.strip())]

    if pa.types.is_null(values.type):
        return np.zeros(len(values), np.int64), pa.array([], pa.string())
    if is_text(values.type):
        rows = map(items_of, texts(values, name).to_pylist())
        values = pa.array(list(rows), pa.list_(pa.string()))
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
