"""Deltas as Arrow tables, validated and measured before their values are read.

A few bytes can stand for gigabytes: a dictionary repeats a long text with one byte a row, and a
column of nulls has as many rows as its header says. So decoded sizes are computed from lengths
first, and column types whose size does not follow from lengths are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import orjson
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.extras import installed
from evergraph.core.sizes import shown
from evergraph.online.checking import LONGEST_ID
from evergraph.online.codecs.tables import EDGE_OPS, NODE_OPS, operations, says_operations
from evergraph.online.delta import Column, Delta, EdgeColumns, listed
from evergraph.server.http import RefusedError
from evergraph.tables.arrow import MARK, pa, pc
from evergraph.tables.columns import (
    RELATION,
    TYPE,
    as_integers,
    check_filled,
    column,
    ids,
    is_number,
    is_text,
    is_typed,
    stripped,
)
from evergraph.tables.columns import features as numeric_columns
from evergraph.tables.edges import read_edges
from evergraph.tables.names import ENDS, missing_column, of_edges, of_nodes, renamed, worded

MAX_DECODED = 1 << 27  # bytes of all columns of a body: four times the largest body
MIN_VALUE_BYTES = 4  # of a value once decoded: narrower numbers are widened to 32 bits
MAX_TABLES = 6


@dataclass(frozen=True, eq=False)
class ArrowBody:
    """A parsed body of Arrow tables."""

    delta: Delta  # the change, without features that have names
    tables: Mapping[str, pa.Table]  # these, by ``features`` and ``updated_features``
    read: bool  # whether the sender has encoded it: labels are literal and numbers are scaled
    scheme: Mapping[str, Any] | None  # by which it did, as JSON; None if it does not say


def delta_from_arrow(body: bytes, *, most: int = MAX_DECODED) -> Delta:
    """Return the delta in a body without encoding its columns; see ``read_arrow``."""
    found = read_arrow(body, most=most)
    return replace(found.delta, **by_position(found.tables))


def by_position(tables: Mapping[str, pa.Table]) -> dict[str, Any]:
    """Return columns of numbers in the order of their tables."""
    return {part: numeric_columns(table, table.column_names) for part, table in tables.items()}


def read_arrow(
    body: bytes, *, most: int = MAX_DECODED, names: Mapping[str, str] | None = None
) -> ArrowBody:
    """Parse a body of Arrow tables.

    most: bytes that its columns may take once decoded; names: the user's names of columns, by ours.
    """
    if not installed("pyarrow"):
        raise RefusedError(415, "this service reads JSON only: pyarrow is not installed")
    parts: dict[str, Any] = {}
    read, scheme = True, None
    for table in tables_in(body, most=most):
        mark = (table.schema.metadata or {}).get(MARK)
        try:
            told = orjson.loads(mark or b"{}")
        except ValueError:
            raise RefusedError(422, "metadata 'evergraph' of an Arrow table must be JSON") from None
        read = read and mark is not None
        scheme = scheme or (told.get("columns") if isinstance(told, dict) else None)
        with _refusing("an Arrow table cannot be read"):
            table = stripped(table)
            called = _names_in(table, names or {})
            with worded(called):
                part = _part(renamed(table, called))
        if twice := parts.keys() & part.keys():
            raise RefusedError(422, f"the body must hold one table of {min(twice)}, not two")
        parts |= part
    tables = {name: parts.pop(f"{name} table", None) for name in ("features", "updated_features")}
    named = {name: table for name, table in tables.items() if table is not None}
    if read and named:
        parts |= by_position(named)
    return ArrowBody(Delta(**parts), named, read, scheme)


def _names_in(table: pa.Table, names: Mapping[str, str]) -> dict[str, str]:
    """Return our names of a table's columns by the user's; one of edges has both of their ends."""
    joins = all(names.get(end, end) in table.column_names for end in ENDS)
    called = (of_edges if joins else of_nodes)(names)
    return {theirs: ours for theirs, ours in called.items() if theirs in table.column_names}


def _part(table: pa.Table) -> dict[str, Any]:
    names = list(table.column_names)
    if len(set(names)) < len(names):
        raise DataError(f"the columns of an Arrow table must have distinct names, not {names[:8]}")
    joins = set(ENDS) <= set(names)
    read = _edge_part if joins else _node_part
    if "op" not in names or not (joins or says_operations(table)):
        return read(table, None)
    parts: dict[str, Any] = {}
    for op, rows in operations(table, EDGE_OPS if joins else NODE_OPS).items():
        if rows.any():
            parts |= read(table.drop_columns("op").filter(rows), op)
    return parts


def _edge_part(table: pa.Table, op: str | None) -> dict[str, Any]:
    known = (*ENDS, "weight", RELATION)
    if others := [name for name in table.column_names if name not in known]:
        raise DataError(
            "an Arrow table of edges must have the columns source, target and optionally weight, "
            f"relation and op, not {others[0]!r}"
        )
    rows = read_edges(table.select(ENDS) if op == "remove" else table)
    ends = EdgeColumns(*map(_column, rows.ends, ENDS))
    if op == "remove":
        return {"removed_edges": ends}
    parts: dict[str, Any] = {"edges": ends}
    if rows.weights is not None:
        parts["weights"] = tuple(rows.weights.tolist())
    if rows.relations is not None:
        parts["relations"] = tuple(rows.relations.to_pylist())
    return parts


def _node_part(table: pa.Table, op: str | None) -> dict[str, Any]:
    """Return the fields that a table of nodes holds, all rows being the same operation if given."""
    names = list(table.column_names)
    if "id" not in names:
        raise DataError(f"an Arrow table {missing_column('id', table)}")
    known = tuple(listed(_column(ids(table, "id"), "id")))
    if op == "forget" or (op is None and names == ["id"]):
        return {"forgotten": known}
    if "time" in names:
        raise DataError("an Arrow table of nodes must not have the column 'time': it is not used")
    labels = _labels(table)
    if op != "update" and set(names) == {"id", "label"}:
        check_filled(labels, "label")
        return {"late": tuple(zip(known, labels.to_pylist(), strict=True))}
    types = {"types": tuple(column(table, TYPE).to_pylist())} if is_typed(table) else {}
    columns = [name for name in names if name not in ("id", "label", *([TYPE] if types else []))]
    features = _features(table, columns)
    part = "features" if isinstance(features, Tensor) else "features table"
    if op != "update":
        told = tuple(labels.to_pylist())
        return types | {"nodes": known, part: features, "labels": told}
    # New features of known nodes, and their labels where the table has some.
    late = tuple(
        pair for pair in zip(known, labels.to_pylist(), strict=True) if pair[1] is not None
    )
    parts: dict[str, Any] = {"updated": known, f"updated_{part}": features}
    return parts | ({"late": late} if late else {})


def _column(values: pa.Array, name: str) -> Column:
    """Return ids as a column of the library: numbers in a NumPy array, texts in an Arrow array."""
    if pa.types.is_integer(values.type):
        return cast("Column", values.to_numpy(zero_copy_only=False))
    _check_lengths(values, name)
    return values


def _check_lengths(values: pa.Array, name: str) -> None:
    long = pc.greater(pc.utf8_length(values), LONGEST_ID).fill_null(False)
    if pc.any(long).as_py():
        row = long.index(True).as_py() + 1
        raise DataError(
            f"row {row} has a text in column {name!r} that is longer than {LONGEST_ID} characters"
        )


def _labels(table: pa.Table) -> pa.Array:
    """Return the column ``label``, null where there is none; NaN and "" become null.

    Other spellings of "none", such as -1, are resolved later: for a regression learner -1 is a
    value. Lists (several labels) and fractions (numbers) pass too; the learner checks its kind.
    """
    if "label" not in table.column_names:
        return pa.nulls(table.num_rows)
    values = column(table, "label")
    if is_text(values.type):
        _check_lengths(values, "label")
        return pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        if pc.any(pc.not_equal(values, pc.floor(values))).as_py():
            return values.cast(pa.float64())
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        if is_text(values.type.value_type):
            _check_lengths(values.flatten(), "label")
        return values
    if pa.types.is_boolean(values.type):
        return values.cast(pa.string())  # as ``boolean_name`` writes them
    return as_integers(values, "label")


def _features(table: pa.Table, names: list[str]) -> pa.Table | Tensor:
    """Return the features of nodes: a table of columns, or one column of lists as a matrix.

    -> float32 [rows, dims]
    """
    if names != ["features"] or is_number(table.schema.field("features").type):
        return table.select(names) if names else torch.zeros(table.num_rows, 0)
    values = column(table, "features")
    if not (pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type)):
        raise DataError(f"column 'features' holds {values.type}: expected lists of numbers")
    check_filled(values, "features")
    flat = values.flatten()
    if not is_number(flat.type) or flat.null_count:
        raise DataError(f"column 'features' holds {values.type}: expected numbers without gaps")
    widths = np.unique(values.value_lengths().to_numpy(zero_copy_only=False))
    if len(widths) > 1:
        raise DataError(f"features must be rows of one width, not of {widths[0]} and {widths[1]}")
    numbers = flat.to_numpy(zero_copy_only=False).astype(np.float32)
    return torch.from_numpy(numbers).reshape(len(values), -1 if len(values) else 0)


def tables_in(body: bytes, *, most: int = MAX_DECODED) -> Iterator[pa.Table]:
    """Yield the tables of a body: Arrow IPC streams, one after the other.

    Tables are validated in full before use: lengths and offsets come from outside. More than
    ``most`` bytes once decoded are rejected.
    """
    left = pa.py_buffer(body)
    for _ in range(MAX_TABLES + 1):
        if not left.size:
            return
        with _refusing("the body is not an Arrow IPC stream"):
            headers = _headers(left, most)
        with _refusing("Arrow buffers must not be compressed or damaged"):
            pa.ipc.open_stream(headers).read_all()
        with _refusing("the body is not an Arrow IPC stream"):
            table = pa.ipc.open_stream(left).read_all()
            table.validate(full=True)
        most -= check_decoded(table, most)
        yield table
        left = left.slice(headers.size)
    raise RefusedError(
        422, f"the body must hold at most {MAX_TABLES} Arrow streams, and holds more"
    )


@contextmanager
def _refusing(rule: str) -> Iterator[None]:
    """Reject what pyarrow cannot read; rule: the rule that it breaks."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        reason = str(error).split("\n")[0][:200]
        raise RefusedError(422, f"{rule} ({reason})") from None


def _headers(stream: pa.Buffer, most: int) -> pa.Buffer:
    """Return the first stream of a buffer with zeros in place of all values.

    A few compressed bytes could take all memory, and pyarrow does not say whether a message is
    compressed. But zeros are not compressed data, so it cannot read these headers if one is.
    """
    source, start, size, later, batches = pa.BufferReader(stream), 0, 0, 0, 0
    headers = bytearray(stream.size)
    for message in pa.ipc.MessageReader.open_stream(source):
        length = 0 if message.body is None else message.body.size
        end = source.tell() - length
        headers[start:end] = stream[start:end]
        start = source.tell()
        batches += message.type == "record batch"
        if message.type == "dictionary":
            size += length
            later += batches > 0
            if size * later > most:  # one that grows between batches is copied for each of them
                raise _too_large(most, "dictionaries that change")
    end = source.tell()  # behind the mark that ends a stream
    headers[start:end] = stream[start:end]
    return pa.py_buffer(headers).slice(0, end)


def _too_large(most: int, what: str) -> RefusedError:
    return RefusedError(
        413,
        f"Arrow tables must take at most {shown(most)} once decoded, and with {what} these take "
        "more: send them in smaller parts",
    )


def check_decoded(table: pa.Table, most: int) -> int:
    """Return the bytes that a table takes once decoded; reject more than ``most``."""
    total, texts = 0, (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    for about, values in zip(table.schema, table.columns, strict=True):
        # Values of other types, dictionaries excepted, may outgrow their buffers.
        is_nested = _is_list(about.type) or pa.types.is_dictionary(about.type)
        inner = about.type.value_type if is_nested else about.type
        if not (pa.types.is_primitive(inner) or pa.types.is_null(inner) or inner in texts):
            raise RefusedError(
                422,
                f"column {about.name!r} holds {about.type}: expected numbers, strings or lists of "
                "them",
            )
        for chunk in values.chunks:
            for size in _decoded(about.name, chunk):
                total += size
                if total > most:
                    raise _too_large(most, f"column {about.name!r}")
    return total


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _decoded(name: str, values: Any) -> Iterator[int]:
    """Yield the bytes of an array once decoded: first those given by its length, then its texts."""
    known = values.dictionary if pa.types.is_dictionary(values.type) else values
    if _is_list(values.type):
        yield MIN_VALUE_BYTES * len(values)
        yield from _decoded(name, values.flatten())
    elif pa.types.is_null(known.type):
        yield MIN_VALUE_BYTES * len(values)
    elif pa.types.is_primitive(known.type):
        yield len(values) * max(known.type.bit_width // 8, MIN_VALUE_BYTES)
    else:
        yield MIN_VALUE_BYTES * len(values)
        lengths = pc.binary_length(known)
        if known is not values:
            longest = pc.max(pc.utf8_length(known)).as_py() if is_text(known.type) else 0
            if (longest or 0) > LONGEST_ID:  # too long for an id or a class
                raise RefusedError(
                    422,
                    f"column {name!r} has a dictionary with a text of {longest:,} characters: "
                    f"expected at most {LONGEST_ID}",
                )
            lengths = lengths.take(values.indices)
        yield pc.sum(lengths.cast(pa.int64())).as_py() or 0
