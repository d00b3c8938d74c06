"""A table of Arrow as it is sent."""

from typing import Any

import pyarrow as pa

from evergraph.online.delta import Delta
from evergraph.server.arrow import ArrowReader


def stream(table: Any, **options: Any) -> bytes:
    """Return a table, or columns by name, as an Arrow IPC stream."""
    table = pa.table(table) if isinstance(table, dict) else table
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, **options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def delta_from_arrow(body: bytes, **how: Any) -> Delta:
    """Return the delta of a body for a learner of plain numbers."""
    return ArrowReader(**how).read(body)
