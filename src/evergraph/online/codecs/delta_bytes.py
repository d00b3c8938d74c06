"""Canonical bytes of a delta: equal deltas give equal bytes, on any machine.

1 byte    version of this layout
32 bytes  SHA-256 of all that follows
4 bytes   length h of the header, little-endian
h bytes   header: JSON of key, labels and names, of the shapes of all floats, and of name, kind,
          length and size of each column of ids
floats    features, new features of known nodes, weights: float32, little-endian, row by row
ids       the columns in the order of the header; sources and targets of edges are a column each

Equal ids give equal bytes, whatever container held them. The kinds are

``numbers``  int64, little-endian
``json``     a JSON list: texts, mixed kinds, and invalid ids
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.own_features import WordColumns
from evergraph.core.errors import DataError
from evergraph.online.checking import check_weights, pairs_of, row_by_row, weight_values
from evergraph.online.delta import Column, Delta, EdgeColumns, NodeId, as_numbers, chunks, listed

LAYOUT = 5  # 1 to 4 were never released
DIGEST = slice(1, 33)
NAMES = ("labels", "late", "relations", "types")  # with the ids of late labels
IDS, EDGES = ("nodes", "updated", "forgotten"), ("edges", "removed_edges")
_LENGTH = struct.Struct("<I")


def delta_to_bytes(delta: Delta) -> bytes:
    """Return a delta as bytes."""
    if delta.key is not None and not isinstance(delta.key, str):
        raise DataError(f"a delta's key must be text, not {delta.key!r}")
    check_weights(delta.weights, len(delta.edges))
    floats = [_checked(delta.features), _checked(delta.updated_features)]
    floats.append(torch.from_numpy(weight_values(delta.weights)))
    facts: dict[str, Any] = {"key": delta.key, "shapes": [list(part.shape) for part in floats]}
    names = {name: list(getattr(delta, name)) for name in NAMES}
    facts |= {name: values for name, values in names.items() if values}
    facts |= {"refit": True} if delta.refit else {}
    facts |= {"words": [*delta.words]} if delta.words.width else {}
    columns: dict[str, Any] = {name: getattr(delta, name) for name in IDS}
    for name, pairs in zip(EDGES, pairs_of(delta), strict=True):
        columns |= zip((f"{name} from", f"{name} to"), pairs.sides, strict=True)
    facts["ids"], ids = [], []
    for name, column in columns.items():
        if len(column):
            kind, data = _column_to_bytes(column)
            facts["ids"].append([name, kind, len(column), len(data)])
            ids.append(data)
    header = json.dumps(facts, default=_refuse, sort_keys=True, separators=(",", ":")).encode()
    values = [part.numpy().astype("<f4", copy=False).tobytes() for part in floats if part.numel()]
    body = b"".join([_LENGTH.pack(len(header)), header, *values, *ids])
    return bytes([LAYOUT]) + hashlib.sha256(body).digest() + body


def delta_from_bytes(data: bytes) -> Delta:
    """Return the delta in bytes; raise if they are damaged."""
    if not data or data[0] != LAYOUT:
        found = data[0] if data else "none"
        raise DataError(
            f"a delta is written in layout {found}, this version of evergraph reads layout "
            f"{LAYOUT}: open it with the version that wrote it"
        )
    body = memoryview(data)[DIGEST.stop :]
    if hashlib.sha256(body).digest() != data[DIGEST]:
        raise DataError("a delta's checksum is wrong: its bytes have changed since it was written")
    (length,) = _LENGTH.unpack_from(body)
    start = _LENGTH.size + length
    facts, values = json.loads(bytes(body[_LENGTH.size : start])), body[start:]
    sizes = [math.prod(shape) for shape in facts["shapes"]]
    # A copy: the bytes are read-only, and may need another byte order.
    numbers = torch.from_numpy(np.frombuffer(values, "<f4", count=sum(sizes)).astype(np.float32))
    features, updated, weights = (
        part.view(shape) for part, shape in zip(numbers.split(sizes), facts["shapes"], strict=True)
    )
    columns: dict[str, Column] = {}
    place = 4 * sum(sizes)
    for name, kind, _, size in facts["ids"]:
        columns[name] = _column_from_bytes(kind, bytes(values[place : place + size]))
        place += size
    edges, removed = (
        EdgeColumns(columns.get(f"{name} from", ()), columns.get(f"{name} to", ()))
        for name in EDGES
    )

    def hashable(label: Any) -> Any:  # several labels are a tuple; JSON has lists only
        return tuple(label) if isinstance(label, list) else label

    nodes: dict[str, Any] = {name: tuple(listed(columns.get(name, ()))) for name in IDS}
    return Delta(
        **nodes,
        features=features,
        labels=tuple(map(hashable, facts.get("labels", ()))),
        edges=edges if len(edges) else (),
        late=tuple((node, hashable(label)) for node, label in facts.get("late", ())),
        key=facts["key"],
        weights=tuple(weights.tolist()),
        removed_edges=removed if len(removed) else (),
        relations=tuple(facts.get("relations", ())),
        types=tuple(facts.get("types", ())),
        refit=facts.get("refit", False),
        words=WordColumns.read(facts.get("words", ())),
        updated_features=updated,
    )


def digest_of(data: bytes) -> bytes:
    """Return the checksum in a delta's bytes: equal for equal deltas, and only for these."""
    return data[DIGEST]


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
    # A chunk at a time, so that other threads can run in between.
    parts = (json.dumps(part, default=_refuse)[1:-1] for part in chunks(listed(column)))
    return "json", f"[{','.join(parts)}]".encode()


def _column_from_bytes(encoding: str, data: bytes) -> Column:
    if encoding == "numbers":
        return np.frombuffer(data, "<i8").astype(np.int64)
    ids: list[NodeId] = json.loads(data)
    return ids
