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
from contextlib import suppress
from typing import Any

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
from evergraph.tables.arrow import pa, pc

PLAIN, CHANGES, COLUMNS = 1, 2, 3
DIGEST = slice(1, 33)
BETWEEN = "\0"
SPAN = 1 << 17  # bytes that are split at once
_LENGTH = struct.Struct("<I")


def delta_to_bytes(delta: Delta) -> bytes:
    """Return a delta as bytes."""
    delta = in_columns(delta)
    pairs = (delta.edges, delta.removed_edges)
    joins = any(map(len, pairs)) and all(isinstance(edges, EdgeColumns) for edges in pairs)
    return _written(delta, in_columns=joins)


def _written(delta: Delta, *, in_columns: bool) -> bytes:
    """Return a delta in layout 3, or with its ids in the header in layout 1 or 2."""
    if delta.key is not None and not isinstance(delta.key, str):
        raise DataError(f"a delta's key must be text, not {delta.key!r}")
    changes = (delta.weights, delta.removed_edges, delta.updated, delta.relations, delta.types)
    plain = not in_columns and not any(map(len, changes))
    facts: dict[str, Any] = {"key": delta.key, "shape": list(delta.features.shape)}
    facts |= {name: list(getattr(delta, name)) for name in ("labels", "late")}
    facts |= {"refit": True} if delta.refit else {}
    parts = [_checked(delta.features)]
    if not plain:
        check_weights(delta.weights, len(delta.edges))
        parts += [_checked(delta.updated_features), torch.from_numpy(weight_values(delta.weights))]
        facts |= {"updated_shape": list(parts[1].shape), "weights": len(delta.weights)}
        named = {name: getattr(delta, name) for name in ("relations", "types")}
        facts |= {name: list(names) for name, names in named.items() if len(names)}
    ids: list[bytes] = []
    if in_columns:
        columns: dict[str, Any] = {n: getattr(delta, n) for n in ("nodes", "updated", "forgotten")}
        for name in ("edges", "removed_edges"):
            columns |= zip((f"{name} from", f"{name} to"), getattr(delta, name).sides, strict=True)
        facts["ids"] = []
        for name, column in columns.items():
            if len(column):
                kind, data = _column_to_bytes(column)
                facts["ids"].append([name, kind, len(column), len(data)])
                ids.append(data)
    else:
        lists = ["nodes", "edges", "forgotten"] + ([] if plain else ["removed_edges", "updated"])
        facts |= {name: list(getattr(delta, name)) for name in lists}
    header = json.dumps(facts, default=_refuse, sort_keys=True, separators=(",", ":")).encode()
    floats = [part.numpy().astype("<f4", copy=False).tobytes() for part in parts if part.numel()]
    body = b"".join([_LENGTH.pack(len(header)), header, *floats, *ids])
    layout = COLUMNS if in_columns else PLAIN if plain else CHANGES
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
    facts, values = json.loads(bytes(body[_LENGTH.size : start])), body[start:]
    layout = COLUMNS if "ids" in facts else CHANGES if "updated_shape" in facts else PLAIN
    if data[0] != layout:  # the only byte that the checksum does not cover
        raise wrong
    shapes = [facts["shape"], facts.get("updated_shape", [0, 0]), [facts.get("weights", 0)]]
    sizes = [math.prod(shape) for shape in shapes]
    # A copy: the bytes are read-only, and may need another byte order.
    numbers = torch.from_numpy(np.frombuffer(values, "<f4", count=sum(sizes)).astype(np.float32))
    features, updated, weights = (
        part.view(shape) for part, shape in zip(numbers.split(sizes), shapes, strict=True)
    )
    ids, place = facts, 4 * sum(sizes)
    for name, kind, _, size in facts.get("ids", ()):
        ids[name] = _column_from_bytes(kind, bytes(values[place : place + size]))
        place += size
    for name in ("edges", "removed_edges"):  # two columns, or pairs in an older layout
        if f"{name} from" in ids:
            ids[name] = EdgeColumns(ids[f"{name} from"], ids[f"{name} to"])
        else:
            pairs = ids.get(name, ())
            ids[name] = edge_columns(pairs) or tuple((a, b) for a, b in pairs)

    def hashable(label: Any) -> Any:  # several labels are a tuple; JSON has lists only
        return tuple(label) if isinstance(label, list) else label

    return Delta(
        nodes=tuple(listed(ids.get("nodes", ()))),
        features=features,
        labels=tuple(map(hashable, facts["labels"])),
        edges=ids["edges"],
        late=tuple((node, hashable(label)) for node, label in facts["late"]),
        forgotten=tuple(listed(ids.get("forgotten", ()))),
        key=facts["key"],
        weights=tuple(weights.tolist()),
        removed_edges=ids["removed_edges"],
        updated=tuple(listed(ids.get("updated", ()))),
        relations=tuple(facts.get("relations", ())),
        types=tuple(facts.get("types", ())),
        refit=facts.get("refit", False),
        updated_features=updated,
    )


def digest_of(data: bytes) -> bytes:
    """Return the checksum in a delta's bytes: equal for equal deltas, and only for these."""
    return data[DIGEST]


def is_same(data: bytes, digest: bytes) -> bool:
    """Whether bytes are the delta of a checksum, in today's layout or in an earlier one."""
    if digest_of(data) == digest:
        return True
    if data[0] != COLUMNS:
        return False
    return digest_of(_written(delta_from_bytes(data), in_columns=False)) == digest


def _checked(features: Tensor) -> Tensor:
    # Not cast: a replay after a crash must apply exactly what was applied before.
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


def _column_to_bytes(column: Column) -> tuple[str, bytes]:  # how it is encoded, and its bytes
    numbers = as_numbers(column)
    if numbers is not None:
        return "numbers", numbers.astype("<i8").tobytes()
    data: bytes | None = None
    if hasattr(column, "to_pylist"):
        whole = pa.LargeListArray.from_arrays(pa.array([0, len(column)]), column)
        data = pc.binary_join(whole, BETWEEN)[0].as_buffer().to_pybytes()
    else:
        # A chunk at a time, so that other threads can run in between.
        with suppress(TypeError, UnicodeEncodeError):  # not all are texts that UTF-8 can write
            joined = [BETWEEN.join(part) for part in chunks(listed(column))]
            data = BETWEEN.join(joined).encode()
    if data is not None and data.count(b"\0") == len(column) - 1:  # they can be split again
        return "texts", data
    return "json", json.dumps(listed(column), default=_refuse).encode()


def _column_from_bytes(encoding: str, data: bytes) -> Column:
    if encoding == "numbers":
        return np.frombuffer(data, "<i8").astype(np.int64)
    found: list[NodeId] = []
    if encoding != "texts":
        found = json.loads(data)
        return found
    start, end = 0, 0
    while end >= 0:  # a span at a time, so that other threads can run in between
        end = data.find(b"\0", start + SPAN)
        part = data[start:] if end < 0 else data[start:end]
        found += part.decode().split(BETWEEN)
        start = end + 1
    return found
