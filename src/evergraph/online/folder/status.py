"""How a learner's folder is doing."""

from __future__ import annotations

from dataclasses import dataclass


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
        retrying: whether a folder that has stopped tries again by itself.
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
    retrying: bool = False
    set_aside: int = 0
