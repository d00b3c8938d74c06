"""A delta as bytes: the same delta gives the same bytes, on any machine.

1 byte    version of this layout
32 bytes  SHA-256 of all that follows
4 bytes   length h of the header, little-endian
h bytes   header: JSON of ids, labels and edges, and the shape of the features
the rest  features, float32, little-endian, row by row

Layout 2 is that of deltas with weights, relations, types, removed edges or other features of known
nodes: the header names these too, and behind the features follow the other features, then the
weights, float32 alike.
Deltas without any are written in layout 1, as they always were.
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

from evergraph.core.errors import DataError
from evergraph.online.delta import Delta
from evergraph.online.delta_parts import check_weights

PLAIN, VERSION = 1, 2
DIGEST = slice(1, 33)
_LISTS = ("nodes", "labels", "edges", "late", "forgotten")
_MORE_LISTS = ("removed_edges", "updated")
_NAMES = ("relations", "types")  # told where there are any
_LENGTH = struct.Struct("<I")


def delta_to_bytes(delta: Delta) -> bytes:
    """Return a delta as bytes.

    >>> data = delta_to_bytes(Delta(nodes=("a",), features=torch.ones(1, 2), labels=(None,)))
    >>> data[0], delta_from_bytes(data)
    (1, Delta(1 nodes))
    """
    parts = [_checked(delta.features)]
    if delta.key is not None and not isinstance(delta.key, str):
        raise DataError(f"a delta's key must be text, not {delta.key!r}")
    facts: dict[str, Any] = {name: list(getattr(delta, name)) for name in _LISTS}
    facts |= {"key": delta.key, "shape": list(delta.features.shape)}
    named = {name: list(getattr(delta, name)) for name in _NAMES if len(getattr(delta, name))}
    plain = not (named or any(map(len, (delta.weights, delta.removed_edges, delta.updated))))
    if not plain:
        check_weights(delta.weights, len(delta.edges))
        parts += [_checked(delta.updated_features), torch.tensor(delta.weights).float()]
        facts |= {name: list(getattr(delta, name)) for name in _MORE_LISTS} | named
        facts |= {"updated_shape": list(parts[1].shape), "weights": len(delta.weights)}
    header = json.dumps(facts, default=_refuse, sort_keys=True, separators=(",", ":")).encode()
    values = [part.numpy().astype("<f4").tobytes() for part in parts]
    body = b"".join([_LENGTH.pack(len(header)), header, *values])
    return bytes([PLAIN if plain else VERSION]) + hashlib.sha256(body).digest() + body


def delta_from_bytes(data: bytes) -> Delta:
    """Return the delta that some bytes stand for; raise if they are not what was written."""
    if not data or data[0] not in (PLAIN, VERSION):
        found = data[0] if data else "none"
        raise DataError(
            f"a delta is written in layout {found}, this version of evergraph reads layouts "
            f"{PLAIN} and {VERSION}: open it with the version that wrote it"
        )
    body = data[DIGEST.stop :]
    if hashlib.sha256(body).digest() != data[DIGEST]:
        raise DataError("a delta's checksum is wrong: its bytes have changed since it was written")
    (length,) = _LENGTH.unpack_from(body)
    start = _LENGTH.size + length
    return _delta(json.loads(body[_LENGTH.size : start]), body[start:])


def digest_of(data: bytes) -> bytes:
    """Return the checksum within a delta's bytes: equal for equal deltas, and only for these."""
    return data[DIGEST]


def _delta(facts: dict[str, Any], values: bytes) -> Delta:
    shapes = [facts["shape"], facts.get("updated_shape", [0, 0]), [facts.get("weights", 0)]]
    sizes = [math.prod(shape) for shape in shapes]
    # A copy of our own: the bytes are read-only, and may be of the other byte order.
    numbers = torch.from_numpy(np.frombuffer(values, "<f4", count=sum(sizes)).astype(np.float32))
    features, updated, weights = (
        part.view(shape) for part, shape in zip(numbers.split(sizes), shapes, strict=True)
    )
    return Delta(
        nodes=tuple(facts["nodes"]),
        features=features,
        labels=tuple(map(_told, facts["labels"])),
        edges=tuple((source, target) for source, target in facts["edges"]),
        late=tuple((node, _told(label)) for node, label in facts["late"]),
        forgotten=tuple(facts["forgotten"]),
        key=facts["key"],
        weights=tuple(weights.tolist()),
        removed_edges=tuple((a, b) for a, b in facts.get("removed_edges", ())),
        updated=tuple(facts.get("updated", ())),
        relations=tuple(facts.get("relations", ())),
        types=tuple(facts.get("types", ())),
        updated_features=updated,
    )


def _told(label: Any) -> Any:
    """Return several labels as they were given; JSON knows lists only."""
    return tuple(label) if isinstance(label, list) else label


def _checked(features: Tensor) -> Tensor:
    """Return features as they are written.

    They are not cast: what is applied after a crash has to be what was applied before.
    """
    if features.dtype != torch.float32 or features.dim() != 2:
        raise DataError(
            "a delta's features must be float32 [nodes, dims], not "
            f"{str(features.dtype).removeprefix('torch.')} {list(features.shape)}"
        )
    return features.detach().cpu().contiguous()


def _refuse(value: object) -> object:
    raise DataError(
        f"a delta's ids and labels must be strings or integers, not {value!r} "
        f"({type(value).__name__})"
    )
