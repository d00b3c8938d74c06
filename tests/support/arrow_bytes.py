"""A table of Arrow as it is sent."""

from typing import Any

import pyarrow as pa


def stream(table: Any, **options: Any) -> bytes:
    """Return a table, or columns by name, as an Arrow IPC stream."""
    table = pa.table(table) if isinstance(table, dict) else table
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, **options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
