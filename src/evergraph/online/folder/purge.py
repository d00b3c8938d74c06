"""Leaving nothing in a folder but what its learner knows now.

``compact`` keeps two snapshots and the deltas since the older one, so what was forgotten stays in
the folder for a while. A purge keeps one snapshot and no delta. In the order of the steps below a
process may be killed between any two of them: until the newest snapshot is on the disk and was
read back, nothing that a recovery needs has gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evergraph.core.errors import DataError, ResourceError
from evergraph.online.folder.columns_file import COLUMNS_FILE, drop_names
from evergraph.online.folder.markers import FORMAT_FILE
from evergraph.online.folder.snapshot import (
    ASIDE,
    read_snapshot,
    remove_leftovers,
    remove_snapshot,
    snapshots_in,
    sync,
)

RENAMED = "renamed"  # in a snapshot: the number that stands for its renaming, not for a delta


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


def is_whole(folder: Path, seq: int) -> bool:
    """Whether a snapshot is there and what was written."""
    try:
        return read_snapshot(folder / f"snapshot-{seq}").seq == seq
    except DataError:
        return False


def keep_only(folder: Path, seq: int) -> None:
    """Remove all snapshots but one that is whole, and whatever lies aside; raise if any stays.

    Names of categories that an earlier version kept go too.
    """
    if not is_whole(folder, seq):
        raise ResourceError(
            f"{folder / f'snapshot-{seq}'}: was not found as it was written: nothing older is "
            "removed"
        )
    for number, path in snapshots_in(folder):
        if number != seq:
            remove_snapshot(path)
    remove_leftovers(folder)
    for name in (FORMAT_FILE, COLUMNS_FILE):
        for path in folder.glob(f".{name}-*"):  # what a killed process was writing
            path.unlink(missing_ok=True)
    drop_names(folder)
    sync(folder)
    left = [path for number, path in snapshots_in(folder) if number != seq]
    left += folder.glob(f"{ASIDE}*")
    if left:
        raise ResourceError(f"{left[0]}: could not be removed: remove it, and purge again")


def renaming_of(about: Mapping[str, Any]) -> int:
    """Return the number that a snapshot's renaming of classes has, 0 where it has none."""
    return int(about.get(RENAMED, 0))
