"""Canonical bytes of a delta: equal deltas give equal bytes, on any machine.

1 byte    version of this layout
32 bytes  SHA-256 of all that follows
4 bytes   length h of the header, little-endian
h bytes   header: JSON of ids, labels and edges, and the shape of the features
the rest  features, float32, little-endian, row by row

Layout 2 is for deltas with weights, relations, types, removed edges or new features of known nodes:
the header names these too, and the features are followed by the new features of known nodes, then
the weights, float32 as well.

Layout 3 is for deltas that add or remove edges: ids are columns, which follow the weights in the
order in which the header lists them with kind and size. Sources and targets of edges are a column
each. Equal ids give equal bytes, whatever container held them. The kinds are

``numbers``  int64, little-endian
``texts``    UTF-8, separated by a byte 0
``json``     a JSON list: for mixed kinds, texts that hold a character 0, and invalid ids

Deltas without edges are written in layout 1 or 2, as were deltas with edges before layout 3;
``is_same`` recognises these.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.online.checking import check_weights, row_by_row, weight_values
from evergraph.online.delta import (
    Column,
    Delta,
    EdgeColumns,
    NodeId,
    as_numbers,
    chunks,
    edge_columns,
    in_columns,
    listed,
)

PLAIN, CHANGES, COLUMNS = 1, 2, 3
DIGEST = slice(1, 33)
_LISTS = ("nodes", "labels", "edges", "late", "forgotten")
_MORE_LISTS = ("removed_edges", "updated")
_NAMES = ("relations", "types")  # written only if there are any
_IDS = ("nodes", "updated", "forgotten")
_PAIRS = ("edges", "removed_edges")
_LENGTH = struct.Struct("<I")


def delta_to_bytes(delta: Delta) -> bytes:
    """Return a delta as bytes.

    >>> data = delta_to_bytes(Delta(nodes=("a",), features=torch.ones(1, 2), labels=(None,)))
    >>> data[0], delta_from_bytes(data)
    (1, Delta(1 nodes))
    """
    delta = in_columns(delta)
    pairs = (delta.edges, delta.removed_edges)
    joins = any(map(len, pairs)) and all(isinstance(edges, EdgeColumns) for edges in pairs)
    return _in_columns(delta) if joins else _in_lists(delta)


def _in_lists(delta: Delta) -> bytes:
    """Return a delta in layout 1 or 2."""
    parts = [_checked(delta.features)]
    facts = _facts(delta) | {name: list(getattr(delta, name)) for name in _LISTS}
    named = _named(delta)
    plain = not (named or any(map(len, (delta.weights, delta.removed_edges, delta.updated))))
    if not plain:
        parts += _more_numbers(delta)
        facts |= {name: list(getattr(delta, name)) for name in _MORE_LISTS} | named
        facts |= {"updated_shape": list(parts[1].shape), "weights": len(delta.weights)}
    return _sealed(PLAIN if plain else CHANGES, facts, list(map(_floats, parts)))


def _in_columns(delta: Delta) -> bytes:
    """Return a delta in layout 3."""
    parts = [_checked(delta.features), *_more_numbers(delta)]
    columns = {name: getattr(delta, name) for name in _IDS}
    for name in _PAIRS:
        columns |= zip((f"{name} from", f"{name} to"), getattr(delta, name).sides, strict=True)
    written = {
        name: column_to_bytes(column, refuse=_refuse)
        for name, column in columns.items()
        if len(column)
    }
    facts = _facts(delta) | _named(delta)
    facts |= {name: list(getattr(delta, name)) for name in ("labels", "late")}
    facts |= {"updated_shape": list(parts[1].shape), "weights": len(delta.weights)}
    facts["ids"] = [[n, each.kind, each.count, len(each.data)] for n, each in written.items()]
    values = [*map(_floats, parts), *(each.data for each in written.values())]
    return _sealed(COLUMNS, facts, values)


def _facts(delta: Delta) -> dict[str, Any]:
    if delta.key is not None and not isinstance(delta.key, str):
        raise DataError(f"a delta's key must be text, not {delta.key!r}")
    return {"key": delta.key, "shape": list(delta.features.shape)}


def _named(delta: Delta) -> dict[str, Any]:
    return {name: list(getattr(delta, name)) for name in _NAMES if len(getattr(delta, name))}


def _more_numbers(delta: Delta) -> list[Tensor]:
    check_weights(delta.weights, len(delta.edges))
    return [_checked(delta.updated_features), torch.from_numpy(weight_values(delta.weights))]


def _floats(part: Tensor) -> bytes:
    return part.numpy().astype("<f4", copy=False).tobytes() if part.numel() else b""


def _sealed(layout: int, facts: dict[str, Any], values: list[bytes]) -> bytes:
    header = json.dumps(facts, default=_refuse, sort_keys=True, separators=(",", ":")).encode()
    body = b"".join([_LENGTH.pack(len(header)), header, *values])
    return bytes([layout]) + hashlib.sha256(body).digest() + body


def delta_from_bytes(data: bytes) -> Delta:
    """Return the delta in bytes; raise if they are damaged."""
    if not data or data[0] not in (PLAIN, CHANGES, COLUMNS):
        found = data[0] if data else "none"
        raise DataError(
            f"a delta is written in layout {found}, this version of evergraph reads layouts "
            f"{PLAIN} to {COLUMNS}: open it with the version that wrote it"
        )
    body = memoryview(data)[DIGEST.stop :]
    wrong = DataError("a delta's checksum is wrong: its bytes have changed since it was written")
    if hashlib.sha256(body).digest() != data[DIGEST]:
        raise wrong
    (length,) = _LENGTH.unpack_from(body)
    start = _LENGTH.size + length
    facts = json.loads(bytes(body[_LENGTH.size : start]))
    if data[0] != _layout(facts):  # the only byte that the checksum does not cover
        raise wrong
    return _delta(facts, body[start:])


def _layout(facts: dict[str, Any]) -> int:
    """Return the layout that a header belongs to."""
    if "ids" in facts:
        return COLUMNS
    return CHANGES if "updated_shape" in facts else PLAIN


def digest_of(data: bytes) -> bytes:
    """Return the checksum in a delta's bytes: equal for equal deltas, and only for these."""
    return data[DIGEST]


def is_same(data: bytes, digest: bytes) -> bool:
    """Whether bytes are the delta of a checksum, in today's layout or in an earlier one.

    >>> data = delta_to_bytes(Delta(edges=(("a", "b"),)))
    >>> is_same(data, digest_of(data)), is_same(data, digest_of(delta_to_bytes(Delta())))
    (True, False)
    """
    if digest_of(data) == digest:
        return True
    return data[0] == COLUMNS and digest_of(_in_lists(delta_from_bytes(data))) == digest


def _delta(facts: dict[str, Any], values: memoryview) -> Delta:
    shapes = [facts["shape"], facts.get("updated_shape", [0, 0]), [facts.get("weights", 0)]]
    sizes = [math.prod(shape) for shape in shapes]
    # A copy: the bytes are read-only, and may need another byte order.
    numbers = torch.from_numpy(np.frombuffer(values, "<f4", count=sum(sizes)).astype(np.float32))
    features, updated, weights = (
        part.view(shape) for part, shape in zip(numbers.split(sizes), shapes, strict=True)
    )
    ids = facts | _columns(facts.get("ids", ()), values[4 * sum(sizes) :])
    return Delta(
        nodes=tuple(ids.get("nodes", ())),
        features=features,
        labels=tuple(map(_hashable, facts["labels"])),
        edges=_edges(ids, "edges"),
        late=tuple((node, _hashable(label)) for node, label in facts["late"]),
        forgotten=tuple(ids.get("forgotten", ())),
        key=facts["key"],
        weights=tuple(weights.tolist()),
        removed_edges=_edges(ids, "removed_edges"),
        updated=tuple(ids.get("updated", ())),
        relations=tuple(facts.get("relations", ())),
        types=tuple(facts.get("types", ())),
        updated_features=updated,
    )


def _columns(listed_ids: Sequence[Any], values: memoryview) -> dict[str, Any]:
    """Return the columns of layout 3 by name; those of nodes as lists."""
    found, start = {}, 0
    for name, kind, count, size in listed_ids:
        column = column_from_bytes(WrittenColumn(kind, count, bytes(values[start : start + size])))
        found[name] = listed(column) if name in _IDS else column
        start += size
    return found


def _edges(ids: dict[str, Any], name: str) -> Sequence[tuple[NodeId, NodeId]]:
    """Return edges from columns, or from pairs in an older layout."""
    if f"{name} from" in ids:
        return EdgeColumns(ids[f"{name} from"], ids[f"{name} to"])
    pairs = ids.get(name, ())
    return edge_columns(pairs) or tuple((a, b) for a, b in pairs)


def _hashable(label: Any) -> Any:
    """Return several labels as a tuple; JSON has lists only."""
    return tuple(label) if isinstance(label, list) else label


def _checked(features: Tensor) -> Tensor:
    """Return features as they are written.

    They are not cast: a replay after a crash must apply exactly what was applied before.
    """
    if features.dtype != torch.float32 or features.dim() != 2:
        raise DataError(
            "a delta's features must be float32 [nodes, dims], not "
            f"{str(features.dtype).removeprefix('torch.')} {list(features.shape)}"
        )
    return row_by_row(features)


def _refuse(value: object) -> object:
    raise DataError(
        f"a delta's ids and labels must be strings or integers, not {value!r} "
        f"({type(value).__name__})"
    )


BETWEEN = "\0"
SPAN = 1 << 17  # bytes that are split at once


@dataclass(frozen=True)
class WrittenColumn:
    """Ids as bytes."""

    kind: Literal["numbers", "texts", "json"]  # how they are encoded
    count: int  # how many there are
    data: bytes  # the bytes


def column_to_bytes(column: Column, *, refuse: Callable[[object], object]) -> WrittenColumn:
    """Return a column as bytes.  refuse: called with values that JSON cannot hold

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
    """Return texts joined by the separator, None if they cannot be split again."""
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
    """Return the column that bytes encode.

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
    """Split joined texts, a span at a time so that other threads can run in between."""
    found: list[NodeId] = []
    start, end = 0, 0
    while end >= 0:
        end = data.find(b"\0", start + SPAN)
        part = data[start:] if end < 0 else data[start:end]
        found += part.decode().split(BETWEEN)
        start = end + 1
    return found
