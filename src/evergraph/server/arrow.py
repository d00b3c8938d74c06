"""Deltas as Arrow tables, validated and measured before their values are read.

A few bytes can stand for gigabytes: a dictionary repeats a long text with one byte a row, and a
column of nulls has as many rows as its header says. So decoded sizes are computed from lengths
first, and column types whose size does not follow from lengths are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import orjson
import torch

from evergraph.core.errors import DataError
from evergraph.core.packages import installed
from evergraph.core.sizes import shown
from evergraph.core.targets import target_of
from evergraph.online.codecs.node_rows import (
    features_with_words,
    late_labels,
    matrix_of,
    read_listed,
    word_columns,
)
from evergraph.online.codecs.table_deltas import node_parts
from evergraph.online.codecs.tables import (
    NODE_OPS,
    edge_parts,
    operations,
    read_edge_changes,
    says_operations,
)
from evergraph.online.delta import Delta
from evergraph.server.http import RefusedError, check_named
from evergraph.tables.arrow import MARK, pa, pc
from evergraph.tables.choices import Columns
from evergraph.tables.columns import RELATION, TYPE, WEIGHT, column, ids, is_typed, stripped
from evergraph.tables.names import ENDS, check_columns, of_edges, of_nodes, renamed, worded
from evergraph.tables.nodes import NodeRoles, NodeTable
from evergraph.tables.scheme import NodeFeatures, Scheme
from evergraph.tables.sources import naming

WHERE = "Arrow"  # prefix of messages
MAX_DECODED = 1 << 27  # bytes of all columns of a body: four times the largest body
MIN_VALUE_BYTES = 4  # of a value once decoded: narrower numbers are widened to 32 bits
MAX_TABLES = 6


@dataclass(kw_only=True)
class ArrowReader:
    """Reads the tables of a body as one delta, by the rules of every other table.

    A sender may have encoded its columns: then labels are literal, and numbers are used as they
    are.
    """

    columns: Columns | Scheme | None = None  # as in ``read_rows``; of the first table for the next
    kind: str = "class"  # of the learner's targets
    names: Mapping[str, str] = field(default_factory=dict)  # the user's names of columns, by ours
    nodes: int | None = None  # most nodes that a table may name
    most: int = MAX_DECODED  # bytes that all columns may take once decoded

    def read(self, body: bytes) -> Delta:
        """Return the delta of a body."""
        if not installed("pyarrow"):
            raise RefusedError(415, "this service reads JSON only: pyarrow is not installed")
        tables = [*tables_in(body, most=self.most)]
        marks = [(table.schema.metadata or {}).get(MARK) for table in tables]
        sent_columns = _sent_columns(marks)
        self._encoded = None not in marks
        self._scheme: Scheme | None = None
        parts: dict[str, Any] = {}
        for table in tables:
            with _rejecting("an Arrow table cannot be read"):
                values_by_part = self._table(stripped(table))
            part = {
                name: tuple(values) if isinstance(values, list) else values
                for name, values in values_by_part.items()
                if len(values)
            }
            if twice := parts.keys() & part.keys():
                raise RefusedError(422, f"the body must hold one table of {min(twice)}, not two")
            parts |= part
        delta, scheme = Delta(**parts), self._scheme
        if self._encoded and sent_columns is not None and len(delta.nodes):
            scheme = Scheme.from_json(sent_columns)
            width = scheme.width + word_columns(scheme).width
            if width != delta.features.shape[1]:
                sentence = f"columns give {width} features, and {delta.features.shape[1]} were sent"
                raise DataError(sentence)
        return replace(delta, words=word_columns(scheme), scheme=scheme)

    def _table(self, table: pa.Table) -> dict[str, Any]:
        """Return what a delta has of a table."""
        is_of_edges = all(self.names.get(end, end) in table.column_names for end in ENDS)
        our_names = (of_edges if is_of_edges else of_nodes)(self.names)
        our_names = {
            theirs: ours for theirs, ours in our_names.items() if theirs in table.column_names
        }
        with worded(our_names), naming(WHERE):
            table = renamed(table, our_names)
            check_columns(table.column_names, ENDS if is_of_edges else ("id",), lambda: table)
            return _edge_parts(table) if is_of_edges else self._node_parts(table)

    def _node_parts(self, table: pa.Table) -> dict[str, Any]:
        if self.nodes is not None:
            check_named("delta", table.num_rows, self.nodes)
        to_forget, updates = table.slice(0, 0), None
        if says_operations(table):
            ops = operations(table, NODE_OPS)
            to_forget, is_kept = table.filter(ops["forget"]), ~ops["forget"]
            table, updates = table.filter(is_kept).drop_columns("op"), ops["update"][is_kept]
        elif table.column_names == ["id"]:
            to_forget, table = table, table.slice(0, 0)
        forgotten = {"forgotten": ids(to_forget, "id").to_pylist()} if to_forget.num_rows else {}
        if not table.num_rows:
            return forgotten
        rows = self._rows(table)
        if {*table.column_names} == {"id", "label"}:
            return forgotten | {"late": late_labels(rows)}
        types = () if rows.types is None else rows.types.to_pylist()
        features = features_with_words(rows.features)
        node_ids = rows.ids.to_pylist()
        return forgotten | node_parts(node_ids, features, rows.targets(), types, updates)

    def _rows(self, table: pa.Table) -> NodeTable:
        """Return rows of nodes: features in one column of lists, or in columns with names."""
        if self._encoded:
            roles = NodeRoles.of(table.column_names, types=is_typed(table))
            features = torch.zeros(table.num_rows, 0)  # of labels that come late
            if "features" in table.column_names:
                features = matrix_of(column(table, "features"))
            labels = column(table, "label") if "label" in table.column_names else None
            types = column(table, TYPE) if roles.types else None
            plain = NodeFeatures(features)
            return NodeTable(ids(table, "id"), plain, roles, labels, types=types)
        if "label" in table.column_names:
            table = renamed(table, {"label": target_of(self.kind).column})
        rows = read_listed(table, self.columns, self.kind, where=WHERE)
        if rows.features.scheme is not None:
            self.columns = self._scheme = rows.features.scheme
        return rows


def _sent_columns(marks: Sequence[bytes | None]) -> Mapping[str, Any] | None:
    """Return the scheme, as JSON, by which a sender has encoded its columns, if it says so."""
    for mark in marks:
        try:
            metadata = orjson.loads(mark or b"{}")
        except ValueError:
            raise RefusedError(422, "metadata 'evergraph' of an Arrow table must be JSON") from None
        if isinstance(metadata, dict) and metadata.get("columns") is not None:
            return cast("Mapping[str, Any]", metadata["columns"])
    return None


def _edge_parts(table: pa.Table) -> dict[str, Any]:
    known = (*ENDS, WEIGHT, RELATION, "op")
    if others := [name for name in table.column_names if name not in known]:
        raise DataError(
            "an Arrow table of edges must have the columns source, target and optionally weight, "
            f"relation and op, not {others[0]!r}"
        )
    rows, is_removed = read_edge_changes(table)
    return edge_parts(rows, np.flatnonzero(~is_removed), np.flatnonzero(is_removed))


def tables_in(body: bytes, *, most: int = MAX_DECODED) -> Iterator[pa.Table]:
    """Yield the tables of a body: Arrow IPC streams, one after the other.

    Tables are validated in full before use: lengths and offsets come from outside. More than
    ``most`` bytes once decoded are rejected.
    """
    remaining = pa.py_buffer(body)
    for _ in range(MAX_TABLES + 1):
        if not remaining.size:
            return
        with _rejecting("the body is not an Arrow IPC stream"):
            headers = _headers(remaining, most)
        with _rejecting("Arrow buffers must not be compressed or damaged"):
            pa.ipc.open_stream(headers).read_all()
        with _rejecting("the body is not an Arrow IPC stream"):
            table = pa.ipc.open_stream(remaining).read_all()
            table.validate(full=True)
        most -= check_decoded(table, most)
        yield table
        remaining = remaining.slice(headers.size)
    raise RefusedError(
        422, f"the body must hold at most {MAX_TABLES} Arrow streams, and holds more"
    )


@contextmanager
def _rejecting(rule: str) -> Iterator[None]:
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
    source = pa.BufferReader(stream)
    start = dictionary_bytes = later_dictionaries = batches = 0
    headers = bytearray(stream.size)
    for message in pa.ipc.MessageReader.open_stream(source):
        body_bytes = 0 if message.body is None else message.body.size
        end = source.tell() - body_bytes
        headers[start:end] = stream[start:end]
        start = source.tell()
        batches += message.type == "record batch"
        if message.type == "dictionary":
            dictionary_bytes += body_bytes
            later_dictionaries += batches > 0
            # One that grows between batches is copied for each of them.
            if dictionary_bytes * later_dictionaries > most:
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
    for name, values in zip(table.column_names, table.columns, strict=True):
        # Values of other types, dictionaries excepted, may outgrow their buffers.
        kind = values.type
        if _is_list(kind) or pa.types.is_dictionary(kind):
            kind = kind.value_type
        if not (pa.types.is_primitive(kind) or pa.types.is_null(kind) or kind in texts):
            raise RefusedError(
                422,
                f"column {name!r} holds {values.type}: expected numbers, strings or lists of them",
            )
        for chunk in values.chunks:
            total += _decoded_bytes(chunk)
            if total > most:
                raise _too_large(most, f"column {name!r}")
    return total


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _decoded_bytes(values: Any) -> int:
    """Return the bytes of an array once decoded, of texts with an offset for each."""
    if _is_list(values.type):
        return MIN_VALUE_BYTES * len(values) + _decoded_bytes(values.flatten())
    is_coded = pa.types.is_dictionary(values.type)
    distinct = values.dictionary if is_coded else values
    if pa.types.is_null(distinct.type):
        return MIN_VALUE_BYTES * len(values)
    if pa.types.is_primitive(distinct.type):
        width: int = distinct.type.bit_width // 8
        return len(values) * max(width, MIN_VALUE_BYTES)
    lengths = pc.binary_length(distinct)
    if is_coded:
        lengths = lengths.take(values.indices)
    texts: int | None = pc.sum(lengths.cast(pa.int64())).as_py()
    return MIN_VALUE_BYTES * len(values) + (texts or 0)
