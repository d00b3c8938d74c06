"""Arrow IPC streams out of a request's body, validated and weighed before anything is looked at.

A few bytes can stand for gigabytes: a dictionary repeats a long text with one byte a row, a column
of nulls has as many rows as its header says. So sizes are summed from lengths, and kinds of columns
whose size is not told by these are refused, since nothing here reads them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph.core.sizes import shown
from evergraph.online.checking import LONGEST_ID
from evergraph.server.http import RefusedError

if TYPE_CHECKING:
    import pyarrow

MOST_DECODED = 1 << 27  # bytes of all columns of a body: four times the largest body
LEAST_WIDTH = 4  # bytes of any value: what is narrower becomes a number of 32 bits at least
ROWS = 1 << 20  # of a dictionary's indices that are counted at a time
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


def check_decoded(table: pyarrow.Table, most: int) -> int:
    """Return how many bytes a table takes once decoded; refuse one that takes more than ``most``.

    >>> import pyarrow as pa
    >>> check_decoded(pa.table({"id": pa.array(["ab", "ab", "c"]).dictionary_encode()}), 1_000)
    17
    """
    total = 0
    for name in dict.fromkeys(table.column_names):
        for field in table.schema.get_all_field_indices(name):
            _check_kind(name, table.schema.field(field).type)
            for chunk in table.column(field).chunks:
                total += _decoded(name, chunk)
                if total > most:
                    raise RefusedError(
                        413,
                        f"Arrow tables may hold {shown(most)} once decoded, and with column "
                        f"{name!r} these hold more: send them in smaller parts",
                    )
    return total


def _check_kind(name: str, kind: pyarrow.DataType) -> None:
    """Refuse a column whose values may be larger than its buffers, a dictionary excepted."""
    import pyarrow as pa

    inner = kind.value_type if _is_list(kind) or pa.types.is_dictionary(kind) else kind
    if not (_is_flat(inner) or pa.types.is_null(inner)):
        raise RefusedError(
            422, f"column {name!r} holds {kind}: expected numbers, strings or lists of them"
        )


def _is_flat(kind: pyarrow.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return bool(types.is_primitive(kind) or any(is_text(kind) for is_text in texts))


def _is_list(kind: pyarrow.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _decoded(name: str, values: pyarrow.Array) -> int:
    """Return how many bytes an array of a kind that was looked at takes once decoded."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        return _repeated(name, values)
    if _is_list(values.type):
        return LEAST_WIDTH * len(values) + _decoded(name, values.flatten())
    if pa.types.is_primitive(values.type) or pa.types.is_null(values.type):
        return len(values) * _width(values.type)
    return LEAST_WIDTH * len(values) + int(_lengths(values).sum())


def _repeated(name: str, values: Any) -> int:
    """Return the same for a dictionary; refuse texts in it that are too long to be any name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = values.dictionary
    if pa.types.is_primitive(known.type) or pa.types.is_null(known.type):
        return len(values) * _width(known.type)
    lengths = _lengths(known)
    if pa.types.is_string(known.type) or pa.types.is_large_string(known.type):
        longest = pc.max(pc.utf8_length(known)).as_py() or 0
        if longest > LONGEST_ID:
            raise RefusedError(
                422,
                f"column {name!r} has a dictionary with a text of {longest:,} characters: expected "
                f"at most {LONGEST_ID}",
            )
    total = LEAST_WIDTH * len(values)
    for start in range(0, len(values), ROWS):
        places = values.indices.slice(start, ROWS).drop_null().to_numpy(zero_copy_only=False)
        total += int(lengths[places].sum())
    return total


def _width(kind: pyarrow.DataType) -> int:
    """Return how many bytes a number takes, or a null."""
    import pyarrow as pa

    wide = 0 if pa.types.is_null(kind) else kind.bit_width // 8
    return max(int(wide), LEAST_WIDTH)


def _lengths(texts: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return how many bytes each text has, 0 for none.  int64 [texts]"""
    import pyarrow.compute as pc

    found = pc.binary_length(texts).fill_null(0).to_numpy(zero_copy_only=False)
    return np.asarray(found, dtype=np.int64)
