"""Records about a learner's folder: its status, progress of a recovery, result of a purge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FolderStatus:
    """Status of a folder, for its operator."""

    path: str  # the folder
    readonly: bool  # whether it was opened read-only
    seq: int  # deltas applied
    snapshot: int  # number of the newest snapshot: the last delta it includes
    deltas_since: int  # deltas after it, which a recovery replays
    bytes_since: int  # their size in the journal
    keys: int = 0  # delta keys kept
    stopped: str | None = None  # why writes have stopped; None while they are accepted
    snapshot_error: str | None = None  # why the last snapshot failed; None if it did not
    replay_seconds: float = 0.0  # estimated time that a restart would spend on replaying
    # when the newest snapshot was taken, in Unix seconds; None if there is none
    snapshot_time: float | None = None
    # how long it took, if it was taken since the folder was opened
    snapshot_seconds: float | None = None
    # when writes stopped, in Unix seconds; None while they are accepted
    stopped_since: float | None = None
    set_aside: int = 0  # deltas set aside so far


@dataclass(frozen=True)
class Replaying:
    """Progress of a recovery."""

    done: int  # deltas replayed
    of: int  # deltas to replay
    seconds: float  # estimated time left; 0 before the first delta, and at the end


Progress = Callable[[Replaying], None]


@dataclass(frozen=True)
class Purged:
    """Result of a compaction or purge."""

    seq: int  # the number of the newest snapshot
    bytes_before: int  # size of the folder before
    bytes_after: int  # size of the folder now
    places: int = 0  # positions of forgotten nodes that were dropped, from memory too


def folder_bytes(folder: Path) -> int:
    """Return the total size of the files in a folder."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # SQLite's files come and go
            continue
    return total
