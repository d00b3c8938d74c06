"""What a learner's folder tells of itself: how it does, how far a recovery is, what a purge did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FolderStatus:
    """What an operator wants to know of a folder.

    Attributes:
        path: the folder.
        readonly: whether it was opened for reading.
        seq: how many deltas the learner has been given.
        snapshot: how many deltas the newest snapshot holds.
        deltas_since: how many deltas came after it; a recovery applies these again.
        bytes_since: their size in the journal.
        keys: how many keys of deltas are kept.
        stopped: why no more deltas are taken; None while they are.
        snapshot_error: why the last attempt at a snapshot failed; None if it did not.
        replay_seconds: what a restart would spend on the deltas since the newest snapshot, going by
            what they took.
        snapshot_time: when the newest snapshot was taken, in Unix seconds; None if none was.
        snapshot_seconds: how long that took, if it was taken since the folder was opened.
        stopped_since: since when no more deltas are taken; None while they are.
        set_aside: how many deltas were set aside so far.
    """

    path: str
    readonly: bool
    seq: int
    snapshot: int
    deltas_since: int
    bytes_since: int
    keys: int = 0
    stopped: str | None = None
    snapshot_error: str | None = None
    replay_seconds: float = 0.0
    snapshot_time: float | None = None
    snapshot_seconds: float | None = None
    stopped_since: float | None = None
    set_aside: int = 0


@dataclass(frozen=True)
class Replaying:
    """How far the deltas since the newest snapshot have been applied.

    Attributes:
        done: how many of them.
        of: how many there are.
        seconds: what is left at the pace so far; 0 before the first, and at the end.
    """

    done: int
    of: int
    seconds: float


Progress = Callable[[Replaying], None]


@dataclass(frozen=True)
class Purged:
    """What a purge did.

    Attributes:
        seq: the number of the snapshot that is left.
        bytes_before: how large the folder was.
        bytes_after: how large it is now.
        places: how many places of forgotten nodes are gone, from memory too.
    """

    seq: int
    bytes_before: int
    bytes_after: int
    places: int = 0


def folder_bytes(folder: Path) -> int:
    """Return how many bytes the files of a folder have."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # SQLite's files come and go
            continue
    return total
