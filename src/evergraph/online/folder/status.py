"""Records about a learner's folder: its status, progress of a recovery, result of a purge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FolderStatus:
    """Status of a folder, for its operator.

    Attributes:
        path: the folder.
        readonly: whether it was opened read-only.
        seq: deltas applied.
        snapshot: number of the newest snapshot: the last delta it includes.
        deltas_since: deltas after it, which a recovery replays.
        bytes_since: their size in the journal.
        keys: delta keys kept.
        stopped: why writes have stopped; None while they are accepted.
        snapshot_error: why the last snapshot failed; None if it did not.
        replay_seconds: estimated time that a restart would spend on replaying.
        snapshot_time: when the newest snapshot was taken, in Unix seconds; None if there is none.
        snapshot_seconds: how long it took, if it was taken since the folder was opened.
        stopped_since: when writes stopped, in Unix seconds; None while they are accepted.
        set_aside: deltas set aside so far.
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
    """Progress of a recovery.

    Attributes:
        done: deltas replayed.
        of: deltas to replay.
        seconds: estimated time left; 0 before the first delta, and at the end.
    """

    done: int
    of: int
    seconds: float


Progress = Callable[[Replaying], None]


@dataclass(frozen=True)
class Purged:
    """Result of a compaction or purge.

    Attributes:
        seq: the number of the newest snapshot.
        bytes_before: size of the folder before.
        bytes_after: size of the folder now.
        places: positions of forgotten nodes that were dropped, from memory too.
    """

    seq: int
    bytes_before: int
    bytes_after: int
    places: int = 0


def folder_bytes(folder: Path) -> int:
    """Return the total size of the files in a folder."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # SQLite's files come and go
            continue
    return total
