"""Deltas as a journal holds them, and on their way to a journal elsewhere.

A list of entries as bytes, one after the other:

32 bytes  SHA-256 of all that follows of the entry
29 bytes  number, batch, whether it is the last of its batch, length k of the key (-1: it has
          none), length n of the delta; little-endian
k bytes   the key, UTF-8
n bytes   the delta, as ``delta_to_bytes`` wrote it
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from evergraph.core.errors import DataError

_DIGEST = hashlib.sha256().digest_size
_FACTS = struct.Struct("<qq?iq")


@dataclass(frozen=True)
class JournalEntry:
    """A delta in a journal.

    Attributes:
        seq: its number.
        batch: the number of the first of the deltas that it was applied with: the bits of a learner
            depend on which these were.
        key: its key, None where it has none, or where that has been dropped.
        data: its bytes.
        last: whether it is the last of its batch.

    >>> JournalEntry(3, 3, None, b"...")
    JournalEntry(delta 3, 3 bytes)
    """

    seq: int
    batch: int
    key: str | None
    data: bytes
    last: bool = True

    def __repr__(self) -> str:
        batch = "" if self.last and self.batch == self.seq else f" of batch {self.batch}"
        return f"JournalEntry(delta {self.seq}{batch}, {len(self.data)} bytes)"


def batch_of(first: int, deltas: Iterable[tuple[bytes, str | None]]) -> list[JournalEntry]:
    """Return deltas, bytes and key each, as the entries of one batch.

    >>> batch_of(4, [(b"", None), (b"", "k")])
    [JournalEntry(delta 4 of batch 4, 0 bytes), JournalEntry(delta 5 of batch 4, 0 bytes)]
    """
    return whole(
        JournalEntry(first + place, first, key, data) for place, (data, key) in enumerate(deltas)
    )


def whole(entries: Iterable[JournalEntry]) -> list[JournalEntry]:
    """Return the entries of a batch, its last one marked as that."""
    found = list(entries)
    return [replace(entry, last=place == len(found)) for place, entry in enumerate(found, 1)]


def named(entries: Sequence[JournalEntry]) -> str:
    """Return which deltas these are, for a sentence.

    >>> named(batch_of(4, [(b"", None), (b"", "k")]))
    'deltas 4 to 5'
    """
    first, last = entries[0].seq, entries[-1].seq
    return f"delta {first}" if first == last else f"deltas {first} to {last}"


def batches(entries: Iterable[JournalEntry]) -> Iterator[list[JournalEntry]]:
    """Yield the entries batch by batch, as they are marked."""
    batch: list[JournalEntry] = []
    for entry in entries:
        batch.append(entry)
        if entry.last:
            yield batch
            batch = []
    assert not batch, "the last entry ends a batch"


def check_entries(entries: Sequence[JournalEntry], seq: int) -> None:
    """Raise unless entries are whole batches that follow delta ``seq`` without a gap.

    >>> check_entries([JournalEntry(3, 3, None, b"")], 1)
    Traceback (most recent call last):
    evergraph.core.errors.DataError: entries must go on with delta 2, but delta 3 is next: some \
are missing
    """
    batch = None  # the one that is not at its end yet
    for entry in entries:
        if entry.seq != seq + 1:
            why = "some are missing" if entry.seq > seq + 1 else "it is known already"
            raise DataError(
                f"entries must go on with delta {seq + 1}, but delta {entry.seq} is next: {why}"
            )
        seq += 1
        if entry.batch != (entry.seq if batch is None else batch):
            raise DataError(
                f"entries must be whole batches, but delta {seq} belongs to batch {entry.batch} "
                f"instead of {seq if batch is None else batch}"
            )
        batch = None if entry.last else entry.batch
    if batch is not None:
        raise DataError(f"entries must be whole batches, but batch {batch} ends with delta {seq}")


def entries_to_bytes(entries: Iterable[JournalEntry]) -> bytes:
    """Return entries as bytes, each with a checksum.

    >>> entries_from_bytes(entries_to_bytes([JournalEntry(1, 1, "k", b"...")]))
    [JournalEntry(delta 1, 3 bytes)]
    """
    return b"".join(map(_to_bytes, entries))


def _to_bytes(entry: JournalEntry) -> bytes:
    key = None if entry.key is None else entry.key.encode("utf-8", "surrogatepass")
    length = -1 if key is None else len(key)
    facts = _FACTS.pack(entry.seq, entry.batch, entry.last, length, len(entry.data))
    body = b"".join([facts, key or b"", entry.data])
    return hashlib.sha256(body).digest() + body


def entries_from_bytes(data: bytes) -> list[JournalEntry]:
    """Return the entries that some bytes stand for; raise if they are not what was sent."""
    found: list[JournalEntry] = []
    rest = memoryview(data)
    while rest:
        if len(rest) < _DIGEST + _FACTS.size:
            raise DataError(f"entries end with {len(rest)} bytes that are no whole entry")
        seq, batch, last, length, size = _FACTS.unpack_from(rest, _DIGEST)
        start = _DIGEST + _FACTS.size
        body, end = start + max(length, 0), start + max(length, 0) + max(size, 0)
        if hashlib.sha256(rest[_DIGEST:end]).digest() != rest[:_DIGEST]:
            raise DataError(f"the checksum of entry {len(found) + 1} is wrong: send entries again")
        key = None if length < 0 else bytes(rest[start:body]).decode("utf-8", "surrogatepass")
        found.append(JournalEntry(seq, batch, key, bytes(rest[body:end]), last))
        rest = rest[end:]
    return found
