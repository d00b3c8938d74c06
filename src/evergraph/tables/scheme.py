"""The scheme for reading columns: fitted on the first table, then fixed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError, UnknownNameError, check_once, say
from evergraph.graphs import Graph
from evergraph.tables.arrow import pa
from evergraph.tables.choices import Encoder, OwnEncoder
from evergraph.tables.columns import column, ids
from evergraph.tables.hashed import TextEncoder
from evergraph.tables.values import (
    Block,
    ColumnEncoder,
    LeftOut,
    Matrix,
    Rule,
    WideEncoder,
    column_kinds,
)

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FORMAT = 1
HEADER = ("column", "read as", "how", "width", "gaps")
LARGE_FACTOR = 100  # times the values of the first table
_MAX_NAMED = 5  # categories named in a message
_MAX_LISTED = 10  # columns named in a message
FILLING_ROUNDS = 40  # of the propagation that fills gaps, as in its paper


@dataclass(frozen=True)
class Column:
    """A column: its name, its encoder, and the number of gaps found in it."""

    name: str
    encoder: ColumnEncoder
    gaps: int = field(default=0, compare=False)


@dataclass(frozen=True)
class _StoredColumn:
    """A column as ``Scheme.to_json`` writes it; it may come from a stranger."""

    name: Annotated[str, Rule(min_length=1)]
    kind: str
    gaps: Annotated[int, Rule(ge=0)]
    encoder: dict[str, Any]


@dataclass(frozen=True)
class _StoredScheme:
    format: int
    columns: list[_StoredColumn]
    strict: bool
    refuse_gaps: bool


@cache
def _checker(made: Any) -> TypeAdapter[Any]:
    """Return what makes a record of its stored state, and refuses values that none can have."""
    from pydantic import TypeAdapter

    return TypeAdapter(made)


def _read_back(made: Any, values: Any) -> Any:
    from pydantic import ValidationError

    try:
        return _checker(made).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        message = f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}"
    raise DataError(f"columns cannot be read back ({message[:200]})")


@dataclass(frozen=True, eq=False)
class NodeFeatures:
    """The encoded feature columns of some rows."""

    features: Tensor  # float32 [rows, width]
    # scheme by which they were read; None for numbers that are not encoded
    scheme: Scheme | None = None
    # the features column by column, with what was new
    blocks: Mapping[str, Block] = field(default_factory=dict, repr=False)

    def say_new(self, where: object) -> None:
        """Report what the first table did not have: categories, unflagged gaps, large values."""
        for name, block in self.blocks.items():
            say_new(where, name, block.new, block.new_rows, block.unflagged)
            if block.times >= LARGE_FACTOR:
                many = f"{block.times:,.0f} times as large as those of the first table"
                say(where, f"column {name!r} has values {many}: is their unit another one?")


def say_new(where: object, name: str, new: Collection[str], rows: int, unflagged: int) -> None:
    """Report new categories of a column in some rows, and gaps that no flag shows."""
    if new:
        named = ", ".join(map(repr, islice(new, _MAX_NAMED)))
        more = ", ..." if len(new) > _MAX_NAMED else ""
        many = "category" if len(new) == 1 else "categories"
        plural = "" if rows == 1 else "s"
        say(
            where,
            f"column {name!r} has {len(new):,} new {many} in {rows:,} row{plural} "
            f"({named}{more}): each is encoded by its hash",
        )
    if unflagged:
        many = f"{unflagged:,} gap{'' if unflagged == 1 else 's'}"
        say(where, f"column {name!r} has {many} but had none at first: filled without a flag")


class NamedValue(NamedTuple):
    """A category, an item or a word, and what it adds to the features of a row."""

    column: str
    value: str
    vector: Matrix  # float32 [dims]
    start: int  # of the column among all features


ValuesOf: TypeAlias = Callable[[Sequence[Any]], Mapping[Any, Sequence[NamedValue]]]
"""Returns the named values of those nodes that it knows."""


@dataclass(frozen=True)
class Scheme:
    """The columns of a table with their encoders; the features are their blocks side by side.

    Attributes:
        columns: in the order of the first table.
        strict: whether to refuse a new category.
        refuse_gaps: whether to refuse a row without a value.

    >>> import pyarrow as pa
    >>> from evergraph.tables.measured import NumberEncoder
    >>> scheme = Scheme((Column("age", NumberEncoder(median=3.0, scale=2.0, flag=False)),))
    >>> scheme.encode(pa.table({"age": [7.0, None]}))
    tensor([[2.],
            [0.]])
    >>> Scheme.from_json(scheme.to_json()) == scheme
    True
    >>> scheme.encode(pa.table({"age": ["old"]}))
    Traceback (most recent call last):
    evergraph.core.errors.DataError: row 1 has 'old' in column 'age': expected a number
    >>> scheme.check_names(["size"])
    Traceback (most recent call last):
    evergraph.core.errors.DataError: has no column 'age' and has a column 'size' that the \
first table did not have: expected age
    """

    columns: tuple[Column, ...]
    strict: bool = False
    refuse_gaps: bool = False

    @property
    def width(self) -> int:
        """The number of features."""
        return sum(each.encoder.width for each in self.columns)

    @property
    def gaps(self) -> str:
        """The treatment of gaps, as in ``Columns``."""
        return "refuse" if self.refuse_gaps else "flag"

    @property
    def text_width(self) -> int | None:
        """The number of features per text; None if there are no texts."""
        widths = (e.encoder.width for e in self.columns if isinstance(e.encoder, TextEncoder))
        return next(widths, None)

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each column by name, or its user-defined encoder."""
        encoders = ((each.name, each.encoder) for each in self.columns)
        return {n: str(e.encoder) if isinstance(e, OwnEncoder) else e.name for n, e in encoders}

    @property
    def names(self) -> list[str]:
        """The name of each feature, after its column."""
        return [
            each.name if each.encoder.width == 1 else f"{each.name} {place}"
            for each in self.columns
            for place in range(each.encoder.width)
        ]

    @property
    def columns_of_features(self) -> list[str]:
        """The column that each feature comes from."""
        return [each.name for each in self.columns for _ in range(each.encoder.width)]

    def encode(self, table: pa.Table, *, before: int = 0) -> Tensor:
        """Return the features of a table's rows, as ``read`` does.  -> float32 [rows, width]"""
        return self.read(table, before=before).features

    def read(self, table: pa.Table, *, before: int = 0) -> NodeFeatures:
        """Return the features with details of each column; raise unless all columns fit.

        before: rows in earlier chunks, for messages.
        """
        blocks: dict[str, Block] = {}
        for each in self.columns:
            name, encoder = each.name, each.encoder
            if name not in table.column_names:  # which is an error unless it was left out
                self.check_names([n for n in self.kinds if n in table.column_names])
                blocks[name] = encoder.encode(np.empty(table.num_rows), name)
                continue
            block = blocks[name] = encoder.encode(column(table, name), name, before=before)
            if self.refuse_gaps and block.gaps.any():
                row = before + int(block.gaps.argmax()) + 1
                raise DataError(f"row {row} has no value in column {name!r}: expected one")
            if self.strict and block.new:
                value, row = next(iter(block.new.items()))
                raise DataError(
                    f"row {before + row + 1} has {value!r} in column {name!r}: expected a category "
                    "of the first table, since columns are strict"
                )
        parts = [block.matrix for block in blocks.values()]
        matrix = np.concatenate(parts, axis=1) if parts else np.zeros((table.num_rows, 0))
        features = torch.from_numpy(np.ascontiguousarray(matrix, np.float32))
        gaps = {name: int(block.gaps.sum()) for name, block in blocks.items()}
        return NodeFeatures(features, self.with_gaps(gaps), blocks)

    def named_values(self, table: pa.Table) -> list[list[NamedValue]]:
        """Return the categories, items and words of each row, with their parts of its features.

        A scheme keeps hashes of them, so their names come from the user's table alone.
        """
        rows: list[list[NamedValue]] = [[] for _ in range(table.num_rows)]
        start = 0
        for each in self.columns:
            encoder, name = each.encoder, each.name
            if isinstance(encoder, WideEncoder) and name in table.column_names:
                for row, parts in zip(rows, encoder.parts(column(table, name), name), strict=True):
                    row += [NamedValue(name, *part, start) for part in parts.items()]
            start += encoder.width
        return rows

    def values_in(self, table: pa.Table) -> ValuesOf:
        """Return what finds the ``named_values`` of some nodes in a table of nodes."""

        known = ids(table, "id").to_pylist()

        def values_of(nodes: Sequence[Any]) -> dict[Any, list[NamedValue]]:
            wanted = frozenset(nodes)
            rows = table.filter(pa.array([node in wanted for node in known], pa.bool_()))
            row_ids = [node for node in known if node in wanted]
            return dict(zip(row_ids, self.named_values(rows), strict=True))

        return values_of

    def with_gaps(self, gaps: Mapping[str, int]) -> Scheme:
        """Return the same scheme with the number of gaps of each column."""
        columns = (replace(each, gaps=gaps[each.name]) for each in self.columns)
        return replace(self, columns=tuple(columns))

    def check_names(self, names: Collection[str]) -> None:
        """Raise unless these are the columns of the first table, in any order.

        A column that was left out may be missing.
        """
        known = [each.name for each in self.columns]
        needed = [each.name for each in self.columns if not isinstance(each.encoder, LeftOut)]
        missing = [name for name in needed if name not in names]
        unknown = [name for name in names if name not in known]
        complaints = []
        if missing:
            complaints.append(f"has no column{'s' * (len(missing) > 1)} {_listed(missing)}")
        if unknown:
            these = "a column" if len(unknown) == 1 else "columns"
            complaints.append(f"has {these} {_listed(unknown)} that the first table did not have")
        if complaints:
            raise DataError(f"{' and '.join(complaints)}: expected {_listed(needed, quoted=False)}")

    def table(self) -> list[tuple[str, str, str, str, str]]:
        """Return one row per column under ``HEADER``: how it is read."""
        columns = ((each.name, each.encoder, each.gaps) for each in self.columns)
        return [(name, e.name, str(e), str(e.width), f"{gaps:,}") for name, e, gaps in columns]

    def rows(self) -> list[dict[str, str]]:
        """Return ``table`` as dictionaries with the keys of ``HEADER``, for JSON and pandas."""
        return [dict(zip(HEADER, row, strict=True)) for row in self.table()]

    def to_json(self) -> dict[str, Any]:
        """Return the scheme for JSON."""
        listed = [
            {
                "name": each.name,
                "kind": each.encoder.name,
                "gaps": each.gaps,
                "encoder": each.encoder.to_json(),
                "told": told,  # for people who read the file
            }
            for each, told in zip(self.columns, self.rows(), strict=True)
        ]
        flags = {"strict": self.strict, "refuse_gaps": self.refuse_gaps}
        return {"format": FORMAT, "columns": listed} | flags

    @classmethod
    def from_json(cls, values: Mapping[str, Any], encoders: Iterable[Encoder] = ()) -> Scheme:
        """Return the scheme from ``to_json``; encoders: user-defined ones that it may need."""
        try:
            stored = _read_back(_StoredScheme, values)
            if stored.format != FORMAT:
                raise DataError(f"columns are of format {stored.format!r}: expected {FORMAT}")
            check_once("names of columns", [each.name for each in stored.columns])
            columns = []
            for each in stored.columns:
                if each.kind == OwnEncoder.name:
                    encoder: ColumnEncoder = OwnEncoder.from_json(each.encoder, encoders)
                else:
                    encoder = _read_back(column_kinds.resolve(each.kind), each.encoder)
                columns.append(Column(each.name, encoder, each.gaps))
            return cls(tuple(columns), stored.strict, stored.refuse_gaps)
        except (UnknownNameError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"columns cannot be read back ({repr(error)[:200]})") from None


def _listed(names: list[str], *, quoted: bool = True) -> str:
    first = ", ".join(map(repr, names[:_MAX_LISTED]) if quoted else names[:_MAX_LISTED])
    return first + (", ..." if len(names) > _MAX_LISTED else "")


def propagated(graph: Graph, values: Tensor, known: Tensor) -> Tensor:
    """Return values with the unknown ones filled.  [nodes, d], bool [nodes, d]

    x ← D^-1 A x at unknown entries; edges count in both directions.

    >>> path = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), features=torch.zeros(3, 1),
    ...                         labels=torch.zeros(3, dtype=torch.int64))
    >>> values, known = torch.tensor([[1.0], [0.0], [4.0]]), torch.tensor([[1], [0], [1]]) > 0
    >>> propagated(path, values, known).flatten()
    tensor([1.0000, 2.5000, 4.0000])
    """
    from scipy.sparse import csr_matrix

    whole = graph.to_undirected()
    degrees = whole.degrees.numpy()
    entries = np.repeat(1.0 / np.maximum(degrees, 1), degrees)
    shape = (graph.num_nodes, graph.num_nodes)
    mean = csr_matrix((entries, whole.indices.numpy(), whole.indptr.numpy()), shape=shape)
    held, given = known.numpy(), values.double().numpy()
    filled = np.where(held, given, 0.0)
    for _ in range(FILLING_ROUNDS):
        filled = np.where(held, given, mean @ filled)
    return torch.from_numpy(filled.astype(np.float32))


def filled_from_neighbours(graph: Graph, read: NodeFeatures) -> Graph:
    """Return a graph with the gaps in its numbers filled; the flags stay."""
    places, masks, begin = [], [], 0
    for each in () if read.scheme is None else read.scheme.columns:
        gaps = read.blocks[each.name].gaps
        if each.encoder.name == "number" and gaps.any():
            places.append(begin)
            masks.append(gaps)
        begin += each.encoder.width
    if not places:
        return graph
    known = torch.from_numpy(~np.stack(masks, axis=1))
    features = graph.features.clone()
    features[:, places] = propagated(graph, features[:, places], known)
    return graph.with_features(features)
