"""Deltas as Arrow tables: many numbers in few bytes, validated and weighed before a look at them.

A few bytes can stand for gigabytes: a dictionary repeats a long text with one byte a row, a column
of nulls has as many rows as its header says. So sizes are summed from lengths, and kinds of columns
whose size is not told by these are refused, since nothing here reads them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.extras import installed, require
from evergraph.core.sizes import shown
from evergraph.online.checking import LONGEST_ID
from evergraph.online.codecs.table_changes import EDGE_OPS, NODE_OPS, operations, says_operations
from evergraph.online.delta import Column, Delta, EdgeColumns, NodeId, edge_columns, listed
from evergraph.server.http import RefusedError
from evergraph.tables.columns import (
    RELATION,
    TYPE,
    as_integers,
    check_filled,
    column,
    edge_weights,
    ids,
    is_number,
    is_text,
    is_typed,
    relation_names,
    stripped,
)
from evergraph.tables.columns import features as numeric_columns

if TYPE_CHECKING:
    import pyarrow

    from evergraph.tables.scheme import Scheme


MOST_DECODED = 1 << 27  # bytes of all columns of a body: four times the largest body
LEAST_WIDTH = 4  # bytes of any value: what is narrower becomes a number of 32 bits at least
MOST_TABLES = 6
MARK = b"evergraph"  # of tables that are a delta's own, read by whoever sends them


@dataclass(frozen=True, eq=False)
class ArrowBody:
    """What a body of Arrow tables says.

    Attributes:
        delta: the change; features that have names are in the order of the table.
        names: of the columns of ``features`` and of ``updated_features``, where they have any.
        read: whether the sender has read it: labels mean what they say, numbers are scaled.
        scheme: how the sender read columns, as JSON; None where it does not say.
    """

    delta: Delta
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    read: bool = False
    scheme: Mapping[str, Any] | None = None


def delta_from_arrow(body: bytes, *, key: str | None = None, most: int = MOST_DECODED) -> Delta:
    """Return the delta that a body holds, its columns as they are; see ``read_arrow``."""
    return replace(read_arrow(body, most=most).delta, key=key)


def read_arrow(body: bytes, *, most: int = MOST_DECODED) -> ArrowBody:
    """Return what a body holds.  most: bytes that its columns may hold once decoded"""
    if not installed("pyarrow"):
        raise RefusedError(415, "this service reads JSON alone: pyarrow is not installed")
    import pyarrow as pa

    parts: dict[str, Any] = {}
    marks: list[bytes | None] = []
    for table in tables_in(body, most=most):
        marks.append((table.schema.metadata or {}).get(MARK))
        try:
            part = _part(stripped(table))
        except (pa.ArrowException, ValueError) as error:
            said = str(error).split("\n")[0][:200]
            raise RefusedError(422, f"an Arrow table cannot be read ({said})") from None
        if twice := parts.keys() & part.keys():
            raise RefusedError(422, f"the body must hold one table of {min(twice)}, not two")
        parts |= part
    names = {name: parts.pop(f"{name} names", ()) for name in ("features", "updated_features")}
    return ArrowBody(
        Delta(**parts),
        {name: found for name, found in names.items() if found},
        read=all(mark is not None for mark in marks),
        scheme=next(filter(None, map(_told_scheme, marks)), None),
    )


def _told_scheme(mark: bytes | None) -> Mapping[str, Any] | None:
    try:
        found = json.loads(mark or b"{}")
    except ValueError:
        raise RefusedError(422, "an Arrow table says of its columns what is no JSON") from None
    return found.get("columns") if isinstance(found, dict) else None


def arrow_from_delta(delta: Delta, scheme: Scheme | None = None) -> bytes:
    """Return a delta as bytes that ``delta_from_arrow`` reads.

    scheme: how its columns were read, which the first delta settles.

    >>> sent = arrow_from_delta(Delta(nodes=("a",), features=torch.ones(1, 2), labels=(None,)))
    >>> delta_from_arrow(sent).features
    tensor([[1., 1.]])
    """
    require("pyarrow", extra="tables", why="sending a delta to a service")
    import pyarrow as pa

    tables: list[dict[str, Any]] = []
    if delta.nodes:
        wide = _wide(delta.features)
        tables.append({"id": list(delta.nodes), "label": list(delta.labels), "features": wide})
        if delta.types:
            tables[-1][TYPE] = list(delta.types)
    if delta.edges:
        tables.append(_ends(delta.edges))
        if delta.weights:
            tables[-1]["weight"] = [float(weight) for weight in delta.weights]
        if delta.relations:
            tables[-1][RELATION] = list(delta.relations)
    if delta.removed_edges:
        op = ["remove"] * len(delta.removed_edges)
        tables.append(_ends(delta.removed_edges) | {"op": op})
    if delta.updated:
        op = ["update"] * len(delta.updated)
        wide = _wide(delta.updated_features)
        tables.append({"id": list(delta.updated), "features": wide, "op": op})
    if delta.late:
        known, labels = zip(*delta.late, strict=True)
        tables.append({"id": list(known), "label": list(labels)})
    if delta.forgotten:
        tables.append({"id": list(delta.forgotten)})
    told = {"columns": scheme.to_json()} if scheme is not None and len(delta.nodes) else {}
    mark = {MARK: json.dumps(told).encode()}
    return b"".join(_stream(pa.table(table).replace_schema_metadata(mark)) for table in tables)


def _ends(edges: Sequence[tuple[NodeId, NodeId]]) -> dict[str, Any]:
    columns = edge_columns(edges)
    if columns is None:
        raise DataError("edges must be pairs of ids to be sent")
    return {"source": columns.sources, "target": columns.targets}


def _wide(features: Tensor) -> pyarrow.Array:
    """Return a column of lists, one row each."""
    import pyarrow as pa

    rows = np.ascontiguousarray(features.numpy(), dtype=np.float32)
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])


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
    joins = {"source", "target"} <= set(names)
    if "op" not in names or not (joins or says_operations(table)):
        return _edge_part(table) if joins else _node_part(table)
    parts: dict[str, Any] = {}
    for op, rows in operations(table, EDGE_OPS if joins else NODE_OPS).items():
        if rows.any():
            chosen = table.drop_columns("op").filter(rows)
            parts |= _edge_part(chosen, op) if joins else _node_part(chosen, op)
    return parts


def _edge_part(table: pyarrow.Table, op: str = "add") -> dict[str, Any]:
    """Return what a table of edges is of a delta, all rows meaning the same operation."""
    known = ("source", "target", "weight", RELATION)
    if others := [name for name in table.column_names if name not in known]:
        raise DataError(
            "an Arrow table of edges must have the columns source, target and, if you like, "
            f"weight, relation and op, and has {others[0]!r}"
        )
    ends = EdgeColumns(*(_column(table, name) for name in known[:2]))
    if op == "remove":
        return {"removed_edges": ends}
    weights, relations = edge_weights(table), relation_names(table)
    parts: dict[str, Any] = {"edges": ends}
    if weights is not None:
        parts["weights"] = tuple(weights.tolist())
    if relations is not None:
        parts["relations"] = tuple(relations)
    return parts


def _node_part(table: pyarrow.Table, op: str | None = None) -> dict[str, Any]:
    """Return what a table of nodes is of a delta, all rows meaning the same operation if given."""
    names = list(table.column_names)
    if "id" not in names:
        raise DataError(
            f"an Arrow table must have the column id, or source and target, not {names[:8]}"
        )
    if op == "forget" or (op is None and names == ["id"]):
        return {"forgotten": _ids(table, "id")}
    if "time" in names:
        raise DataError("an Arrow table of nodes must not have the column 'time': it is not used")
    if op == "update":
        return _updates(table)
    if set(names) == {"id", "label"}:
        late = _labels(table)
        check_filled(late, "label")
        return {"late": tuple(zip(_ids(table, "id"), late.to_pylist(), strict=True))}
    parts: dict[str, Any] = {}
    if is_typed(table):
        parts["types"] = tuple(column(table, TYPE).to_pylist())
        table = table.drop_columns(TYPE)
    return parts | {
        "nodes": _ids(table, "id"),
        "features": _features(table),
        "features names": _feature_names(table),
        "labels": tuple(_labels(table).to_pylist()),
    }


def _updates(table: pyarrow.Table) -> dict[str, Any]:
    """Return other features of known nodes, and labels where the table has some."""
    known, labels = _ids(table, "id"), _labels(table).to_pylist()
    told = [pair for pair in zip(known, labels, strict=True) if pair[1] is not None]
    parts: dict[str, Any] = {"updated": known, "updated_features": _features(table)}
    parts["updated_features names"] = _feature_names(table)
    return parts | ({"late": tuple(told)} if told else {})


def _ids(table: pyarrow.Table, name: str) -> tuple[NodeId, ...]:
    return tuple(listed(_column(table, name)))


def _column(table: pyarrow.Table, name: str) -> Column:
    """Return ids as they are kept: numbers in NumPy's array, texts in Arrow's."""
    import pyarrow as pa

    values = ids(table, name)
    if pa.types.is_integer(values.type):
        return cast("Column", values.to_numpy(zero_copy_only=False))
    _check_lengths(values, name)
    return values


def _check_lengths(values: pyarrow.Array, name: str) -> None:
    """Raise if a text is longer than JSON may have it."""
    import pyarrow.compute as pc

    long = pc.greater(pc.utf8_length(values), LONGEST_ID).fill_null(False)
    if pc.any(long).as_py():
        row = long.index(True).as_py() + 1
        raise DataError(
            f"row {row} has a text in column {name!r} that is longer than {LONGEST_ID} characters"
        )


def _labels(table: pyarrow.Table) -> pyarrow.Array:
    """Return classes as they are written, null where there is none; NaN and "" are none too.

    What else stands for none is seen where the learner is known, for which -1 may be a number.
    Lists are several labels, and numbers with a fraction are numbers: whether a node may have
    these, the learner knows.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

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
    return as_integers(values, "label")


def _feature_names(table: pyarrow.Table) -> list[str]:
    """Return the columns that are a feature each; none where all lie in one column of lists."""
    others = [name for name in table.column_names if name not in ("id", "label")]
    listed = others == ["features"] and not is_number(table.schema.field("features").type)
    return [] if listed else others


def _features(table: pyarrow.Table) -> Tensor:
    """Return the numbers of new nodes.  -> float32 [rows, dims]"""
    import pyarrow as pa

    if names := _feature_names(table):
        return numeric_columns(table, names)
    if "features" not in table.column_names:
        return torch.zeros(table.num_rows, 0)
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


def tables_in(body: bytes, *, most: int = MOST_DECODED) -> Iterator[pyarrow.Table]:
    """Yield the tables of a body: Arrow IPC streams, one behind the other.

    Everything is validated before it is looked at: lengths and offsets come from outside. What
    would hold more than ``most`` bytes once decoded is refused.
    """
    import pyarrow as pa

    source = pa.BufferReader(body)
    for _ in range(MOST_TABLES + 1):
        if source.tell() >= len(body):
            return
        try:
            rest = pa.BufferReader(pa.py_buffer(body).slice(source.tell()))
            packed = any(map(_is_packed, pa.ipc.MessageReader.open_stream(rest)))
            if not packed:
                table = pa.ipc.open_stream(source).read_all()
                table.validate(full=True)
        except (pa.ArrowException, OSError, ValueError, MemoryError, struct.error) as error:
            said = str(error).split("\n")[0][:200]
            raise RefusedError(422, f"the body is no Arrow IPC stream ({said})") from None
        if packed:  # a small body could unpack to more than there is memory
            raise RefusedError(422, "Arrow buffers must be sent as they are, not packed")
        most -= check_decoded(table, most)
        yield table
    raise RefusedError(
        422, f"the body must hold at most {MOST_TABLES} Arrow streams, and holds more"
    )


def _is_packed(message: Any) -> bool:
    """Whether the buffers of a record batch or dictionary are compressed.

    pyarrow does not tell, so the message's flatbuffer is read: in Message the third field is the
    header; in DictionaryBatch the second field is a RecordBatch, whose fourth is the compression.
    """
    if message.type not in ("record batch", "dictionary"):
        return False
    data = bytes(message.metadata)

    def follow(place: int) -> int:
        return int(place + struct.unpack_from("<I", data, place)[0])

    def pointed(table: int, field: int) -> int | None:
        """Return where a table's field points to, None where it is left out."""
        listed = table - struct.unpack_from("<i", data, table)[0]
        if 4 + 2 * field >= struct.unpack_from("<H", data, listed)[0]:
            return None
        (shift,) = struct.unpack_from("<H", data, listed + 4 + 2 * field)
        return follow(table + shift) if shift else None

    header = pointed(follow(0), 2)
    if header is not None and message.type == "dictionary":
        header = pointed(header, 1)
    return header is not None and pointed(header, 3) is not None


def check_decoded(table: pyarrow.Table, most: int) -> int:
    """Return how many bytes a table takes once decoded; refuse one that takes more than ``most``.

    >>> import pyarrow as pa
    >>> check_decoded(pa.table({"id": pa.array(["ab", "ab", "c"]).dictionary_encode()}), 1_000)
    17
    """
    total = 0
    for about, values in zip(table.schema, table.columns, strict=True):
        _check_kind(about.name, about.type)
        for chunk in values.chunks:
            for size in _decoded(about.name, chunk):
                total += size
                if total > most:
                    raise RefusedError(
                        413,
                        f"Arrow tables may hold {shown(most)} once decoded, and with column "
                        f"{about.name!r} these hold more: send them in smaller parts",
                    )
    return total


def _check_kind(name: str, kind: pyarrow.DataType) -> None:
    """Refuse a column whose values may be larger than its buffers, a dictionary excepted."""
    import pyarrow as pa

    inner = kind.value_type if _is_list(kind) or pa.types.is_dictionary(kind) else kind
    texts = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    if not (pa.types.is_primitive(inner) or pa.types.is_null(inner) or inner in texts):
        raise RefusedError(
            422, f"column {name!r} holds {kind}: expected numbers, strings or lists of them"
        )


def _is_list(kind: pyarrow.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _decoded(name: str, values: Any) -> Iterator[int]:
    """Yield the bytes of an array once decoded: first what its length says, then its texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = values.dictionary if pa.types.is_dictionary(values.type) else values
    if _is_list(values.type):
        yield LEAST_WIDTH * len(values)
        yield from _decoded(name, values.flatten())
    elif pa.types.is_null(known.type):
        yield LEAST_WIDTH * len(values)
    elif pa.types.is_primitive(known.type):
        yield len(values) * max(known.type.bit_width // 8, LEAST_WIDTH)
    else:
        yield LEAST_WIDTH * len(values)
        lengths = pc.binary_length(known)
        if known is not values:
            longest = pc.max(pc.utf8_length(known)).as_py() if is_text(known.type) else 0
            if (longest or 0) > LONGEST_ID:  # too long to be any name
                raise RefusedError(
                    422,
                    f"column {name!r} has a dictionary with a text of {longest:,} characters: "
                    f"expected at most {LONGEST_ID}",
                )
            lengths = lengths.take(values.indices)
        yield pc.sum(lengths.cast(pa.int64())).as_py() or 0
