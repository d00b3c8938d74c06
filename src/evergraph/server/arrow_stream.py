"""Arrow IPC streams out of a request's body, validated before anything of them is looked at."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from evergraph.server.arrow_sizes import MOST_DECODED, check_decoded
from evergraph.server.http import RefusedError

if TYPE_CHECKING:
    import pyarrow

MOST_TABLES = 6


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
        _check_plain(body, source.tell())
        try:
            table = pa.ipc.open_stream(source).read_all()
            table.validate(full=True)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            said = str(error).split("\n")[0][:200]
            raise RefusedError(422, f"the body is no Arrow IPC stream ({said})") from None
        most -= check_decoded(table, most)
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
