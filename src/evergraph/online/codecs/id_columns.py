"""A column of ids as bytes: the same ids give the same bytes, whatever they are kept in.

``numbers``  int64, little-endian
``texts``    UTF-8, with a byte 0 between one and the next
``json``     a JSON list: of both kinds, of texts that hold a character 0, of what are no ids at all
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from evergraph.online.delta import NodeId
from evergraph.online.edge_columns import Column, as_numbers, chunks, listed

BETWEEN = "\0"
SPAN = 1 << 17  # bytes that are split at once


@dataclass(frozen=True)
class WrittenColumn:
    """Ids as bytes.

    Attributes:
        kind: in which of the ways they are written.
        count: how many there are.
        data: the bytes.
    """

    kind: Literal["numbers", "texts", "json"]
    count: int
    data: bytes


def column_to_bytes(column: Column, *, refuse: Callable[[object], object]) -> WrittenColumn:
    """Return a column as bytes.  refuse: called with what JSON cannot write

    >>> column_to_bytes(["a", "b"], refuse=print)
    WrittenColumn(kind='texts', count=2, data=b'a\\x00b')
    """
    count = len(column)
    numbers = as_numbers(column)
    if numbers is not None:
        return WrittenColumn("numbers", count, numbers.astype("<i8").tobytes())
    data = _joined_arrow(column) if hasattr(column, "to_pylist") else _joined(listed(column))
    if data is not None:
        return WrittenColumn("texts", count, data)
    values = listed(column)
    return WrittenColumn("json", count, json.dumps(values, default=refuse).encode())


def _joined_arrow(column: Any) -> bytes | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = pa.LargeListArray.from_arrays(pa.array([0, len(column)]), column)
    joined = pc.binary_join(whole, BETWEEN)[0]
    data: bytes = joined.as_buffer().to_pybytes()
    return data if data.count(b"\0") == max(len(column) - 1, 0) else None


def _joined(values: list[Any]) -> bytes | None:
    """Return texts one behind the other, None where they cannot be told apart again."""
    parts = []
    for part in chunks(values):
        if set(map(type, part)) != {str}:
            return None
        parts.append(BETWEEN.join(part))
    joined = BETWEEN.join(parts)
    if joined.count(BETWEEN) != max(len(values) - 1, 0):
        return None
    try:
        return joined.encode()
    except UnicodeEncodeError:
        return None


def column_from_bytes(written: WrittenColumn) -> Column:
    """Return the column that some bytes stand for.

    >>> column_from_bytes(WrittenColumn("texts", 2, b"a\\0b"))
    ['a', 'b']
    """
    if written.kind == "numbers":
        return np.frombuffer(written.data, "<i8").astype(np.int64)
    if written.kind == "texts":
        return _split(written.data) if written.count else []
    found: list[Any] = json.loads(written.data)
    return found


def _split(data: bytes) -> list[NodeId]:
    """Return texts that stand one behind the other; other threads may run in between."""
    found: list[NodeId] = []
    start, end = 0, 0
    while end >= 0:
        end = data.find(b"\0", start + SPAN)
        part = data[start:] if end < 0 else data[start:end]
        found += part.decode().split(BETWEEN)
        start = end + 1
    return found
