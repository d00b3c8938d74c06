"""Facts and bytes from one process to another, through a pipe."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any, BinaryIO

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Frame:
    """What is sent at once.

    Attributes:
        facts: as JSON can hold them.
        parts: bytes behind them.

    >>> import io
    >>> pipe = io.BytesIO()
    >>> write_frame(pipe, Frame({"most": 9}, (b"body",)))
    >>> _ = pipe.seek(0)
    >>> read_frame(pipe), read_frame(pipe)
    (Frame(facts={'most': 9}, parts=(b'body',)), None)
    """

    facts: dict[str, Any] = field(default_factory=dict)
    parts: tuple[bytes, ...] = ()


def write_frame(pipe: BinaryIO, frame: Frame) -> None:
    """Write a frame, all of it."""
    facts = frame.facts | {"_sizes": [len(part) for part in frame.parts]}
    head = json.dumps(facts).encode()
    for data in (_LENGTH.pack(len(head)), head, *frame.parts):
        _write(pipe, data)


def _write(pipe: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    while len(rest):
        rest = rest[pipe.write(rest) :]
    pipe.flush()


def read_frame(pipe: BinaryIO) -> Frame | None:
    """Return the next frame, None where there are no more, or where the last one is cut off."""
    head = _read(pipe, _LENGTH.size)
    facts = None if head is None else _read(pipe, _LENGTH.unpack(head)[0])
    if facts is None:
        return None
    told = json.loads(facts)
    parts = tuple(_read(pipe, size) for size in told.pop("_sizes"))
    return None if None in parts else Frame(told, parts)  # type: ignore[arg-type]


def _read(pipe: BinaryIO, size: int) -> bytes | None:
    found = bytearray(size)
    rest = memoryview(found)
    while len(rest):
        count = pipe.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            return None
        rest = rest[count:]
    return bytes(found)
