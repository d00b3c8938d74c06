"""Deltas as a journal holds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class JournalEntry:
    """A delta in a journal.

    Attributes:
        seq: its number.
        batch: the number of the first of the deltas that it was applied with: the bits of a learner
            depend on which these were.
        key: its key, None where it has none, or where that has been dropped.
        data: its bytes.

    >>> JournalEntry(3, 3, None, b"...")
    JournalEntry(delta 3, 3 bytes)
    """

    seq: int
    batch: int
    key: str | None
    data: bytes

    def __repr__(self) -> str:
        batch = "" if self.batch == self.seq else f" of batch {self.batch}"
        return f"JournalEntry(delta {self.seq}{batch}, {len(self.data)} bytes)"


def batch_of(first: int, deltas: Iterable[tuple[bytes, str | None]]) -> list[JournalEntry]:
    """Return deltas, bytes and key each, as the entries of one batch.

    >>> batch_of(4, [(b"", None), (b"", "k")])
    [JournalEntry(delta 4, 0 bytes), JournalEntry(delta 5 of batch 4, 0 bytes)]
    """
    return [
        JournalEntry(first + place, first, key, data) for place, (data, key) in enumerate(deltas)
    ]


def named(entries: Sequence[JournalEntry]) -> str:
    """Return which deltas these are, for a sentence.

    >>> named(batch_of(4, [(b"", None), (b"", "k")]))
    'deltas 4 to 5'
    """
    first, last = entries[0].seq, entries[-1].seq
    return f"delta {first}" if first == last else f"deltas {first} to {last}"
