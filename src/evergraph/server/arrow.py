"""Deltas as Arrow tables: many numbers in few bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.extras import installed, require
from evergraph.datasets.files.table_columns import (
    as_integers,
    check_filled,
    column,
    ids,
    is_number,
    is_text,
)
from evergraph.datasets.files.table_columns import features as numeric_columns
from evergraph.online.delta import Delta, NodeId
from evergraph.server.http import RefusedError

if TYPE_CHECKING:
    import pyarrow

MOST_TABLES = 4


def tables_in(body: bytes) -> Iterator[pyarrow.Table]:
    """Yield the tables of a body: Arrow IPC streams, one behind the other.

    Everything is validated before it is looked at: lengths and offsets come from outside.
    """
    import pyarrow as pa

    source = pa.BufferReader(body)
    for _ in range(MOST_TABLES + 1):
        if source.tell() >= len(body):
            return
        _check_plain(body, source.tell())
        try:
            table = pa.ipc.open_stream(source).read_all()
            table.validate(full=True)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            said = str(error).split("\n")[0][:200]
            raise RefusedError(422, f"the body is no Arrow IPC stream ({said})") from None
        yield table
    raise RefusedError(
        422, f"the body must hold at most {MOST_TABLES} Arrow streams, and holds more"
    )


def _check_plain(body: bytes, start: int) -> None:
    """Refuse packed buffers: a small body could unpack to more than there is memory."""
    import pyarrow as pa

    source = pa.BufferReader(pa.py_buffer(body).slice(start))
    try:
        packed = any(_is_packed(message) for message in pa.ipc.MessageReader.open_stream(source))
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        said = str(error).split("\n")[0][:200]
        raise RefusedError(422, f"the body is no Arrow IPC stream ({said})") from None
    if packed:
        raise RefusedError(422, "Arrow buffers must be sent as they are, not packed")


def _is_packed(message: Any) -> bool:
    """Whether the buffers of a record batch or dictionary are compressed.

    pyarrow does not tell, so the message's flatbuffer is read: in Message the third field is the
    header; in DictionaryBatch the second field is a RecordBatch, whose fourth is the compression.
    """
    if message.type not in ("record batch", "dictionary"):
        return False
    data = bytes(message.metadata)
    header = _field(data, _offset(data, 0), 2)
    if header is not None and message.type == "dictionary":
        header = _field(data, header, 1)
    return header is not None and _field(data, header, 3) is not None


def _field(data: bytes, table: int, place: int) -> int | None:
    """Return where a table's field points to, None where it is left out."""
    (back,) = struct.unpack_from("<i", data, table)
    (size,) = struct.unpack_from("<H", data, table - back)
    if 4 + 2 * place >= size:
        return None
    (shift,) = struct.unpack_from("<H", data, table - back + 4 + 2 * place)
    return _offset(data, table + shift) if shift else None


def _offset(data: bytes, place: int) -> int:
    (forward,) = struct.unpack_from("<I", data, place)
    return int(place + forward)


def delta_from_arrow(body: bytes, *, key: str | None = None) -> Delta:
    """Return the delta that a body holds."""
    if not installed("pyarrow"):
        raise RefusedError(415, "this service reads JSON alone: pyarrow is not installed")
    import pyarrow as pa

    parts: dict[str, Any] = {}
    for table in tables_in(body):
        try:
            part = _part(table)
        except (pa.ArrowException, ValueError) as error:
            said = str(error).split("\n")[0][:200]
            raise RefusedError(422, f"an Arrow table cannot be read ({said})") from None
        if twice := parts.keys() & part.keys():
            raise RefusedError(422, f"the body must hold one table of {min(twice)}, not two")
        parts |= part
    return Delta(**parts, key=key)


def arrow_from_delta(delta: Delta) -> bytes:
    """Return a delta as bytes that ``delta_from_arrow`` reads.

    >>> sent = arrow_from_delta(Delta(nodes=("a",), features=torch.ones(1, 2), labels=(None,)))
    >>> delta_from_arrow(sent).features
    tensor([[1., 1.]])
    """
    require("pyarrow", extra="tables", why="sending a delta to a service")
    import pyarrow as pa

    tables: list[dict[str, Any]] = []
    if delta.nodes:
        rows = np.ascontiguousarray(delta.features.numpy(), dtype=np.float32)
        wide = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
        tables.append({"id": list(delta.nodes), "label": list(delta.labels), "features": wide})
    if delta.edges:
        source, target = zip(*delta.edges, strict=True)
        tables.append({"source": list(source), "target": list(target)})
    if delta.late:
        known, labels = zip(*delta.late, strict=True)
        tables.append({"id": list(known), "label": list(labels)})
    if delta.forgotten:
        tables.append({"id": list(delta.forgotten)})
    return b"".join(_stream(pa.table(table)) for table in tables)


def _stream(table: pyarrow.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _part(table: pyarrow.Table) -> dict[str, Any]:
    """Return what one table is of a delta."""
    names = list(table.column_names)
    if len(set(names)) < len(names):
        raise DataError(f"the columns of an Arrow table must differ, and are {names[:8]}")
    if {"source", "target"} <= set(names):
        if others := [name for name in names if name not in ("source", "target")]:
            raise DataError(
                f"an Arrow table of edges must have the columns source and target alone, and has "
                f"{others[0]!r}: edges have no weights or kinds yet"
            )
        ends = [_ids(table, name) for name in ("source", "target")]
        return {"edges": tuple(zip(*ends, strict=True))}
    if "id" not in names:
        raise DataError(
            f"an Arrow table must have the column id, or source and target, not {names[:8]}"
        )
    if names == ["id"]:
        return {"forgotten": _ids(table, "id")}
    if "time" in names:
        raise DataError("an Arrow table of nodes must not have the column 'time': it is not used")
    if set(names) == {"id", "label"}:
        late = _labels(table)
        check_filled(late, "label")
        return {"late": tuple(zip(_ids(table, "id"), late.to_pylist(), strict=True))}
    return {
        "nodes": _ids(table, "id"),
        "features": _features(table),
        "labels": tuple(_labels(table).to_pylist()),
    }


def _ids(table: pyarrow.Table, name: str) -> tuple[NodeId, ...]:
    return tuple(ids(table, name).to_pylist())


def _labels(table: pyarrow.Table) -> pyarrow.Array:
    """Return classes as they are written, null where there is none; NaN and "" are none too.

    Any other text is a class: whoever sends Arrow can send null. Lists are several labels, and
    numbers with a fraction are numbers: whether a node may have these, the learner knows.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if "label" not in table.column_names:
        return pa.nulls(table.num_rows)
    values = column(table, "label")
    if is_text(values.type):
        return pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        if pc.any(pc.not_equal(values, pc.floor(values))).as_py():
            return values.cast(pa.float64())
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        return values
    return as_integers(values, "label")


def _features(table: pyarrow.Table) -> Tensor:
    """Return the numbers of new nodes.  -> float32 [rows, dims]"""
    import pyarrow as pa

    others = [name for name in table.column_names if name not in ("id", "label")]
    if others != ["features"] or is_number(table.schema.field("features").type):
        return numeric_columns(table, others)
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
