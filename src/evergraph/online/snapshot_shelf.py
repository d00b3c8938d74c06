"""Which snapshots are kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from evergraph.online.snapshot import remove_snapshot, snapshots_in, write_snapshot

KEPT = 2


class SnapshotShelf:
    """The last two good snapshots of a folder.

    Good is what this process wrote itself, or read and found whole. All others go when a new one
    has been written.

    Args:
        folder: where they are.
        good: number of the snapshot that recovery found whole, 0 if none.
    """

    def __init__(self, folder: Path, good: int) -> None:
        self.folder = folder
        self._good = [good] if good else []

    @property
    def newest(self) -> int:
        """The number of the newest good snapshot, 0 if there is none."""
        return self._good[-1] if self._good else 0

    @property
    def safe_to_drop(self) -> int:
        """Up to which number no recovery needs a delta, even if the newest snapshot is damaged."""
        return self._good[0] if len(self._good) == KEPT else 0

    def add(self, seq: int, state: Mapping[str, Tensor], about: bytes) -> None:
        """Write a snapshot, then remove all but the last two good ones."""
        write_snapshot(self.folder, seq, state, about)
        self._good = [*self._good, seq][-KEPT:]
        for number, path in snapshots_in(self.folder):
            if number not in self._good:
                remove_snapshot(path)
