"""What a folder hands on to those that follow: its journal, beside what is being written."""

from __future__ import annotations

import threading
from pathlib import Path

from evergraph.core.checks import check_integer
from evergraph.online.folder.entries import JournalEntry
from evergraph.online.folder.journal import JOURNAL_FILE, Journal, entries_after
from evergraph.online.folder.reader import FolderReader
from evergraph.online.folder.snapshot import snapshots_in
from evergraph.online.folder.writer import FolderWriter


class HandsOn:
    """A folder whose journal others read; nobody waits for them.

    Args:
        files: of the folder, open for writing or for reading.
    """

    def __init__(self, files: FolderWriter | FolderReader) -> None:
        self._files = files
        self._beside = threading.Lock()
        self._read: Journal | None = None  # opened when somebody follows

    @property
    def path(self) -> Path:
        """The folder."""
        return self._files.path

    def entries_after(self, seq: int, *, most_bytes: int = 1 << 24) -> list[JournalEntry]:
        """Return what the journal holds after a delta, for a folder elsewhere that follows.

        Whole batches only: as many as ``most_bytes`` hold, and at least one. None where ``seq`` is
        the last. Where only a snapshot holds what comes next, ``DroppedError`` says so; see
        ``newest_snapshot``. Nobody waits: it is read beside what is being written.
        """
        check_integer("seq", seq, least=0)
        check_integer("most_bytes", most_bytes, least=1)
        with self._beside:
            # What was not acknowledged may still be set aside: nobody is handed that.
            until = self._files.acknowledged
            return entries_after(self._journal(), seq, most_bytes, until=until)

    def batch_with(self, seq: int) -> list[JournalEntry]:
        """Return the batch in the journal that a delta belongs to; nothing where it was dropped."""
        with self._beside:
            return self._journal().batch_with(seq)

    def set_aside_digests(self) -> list[tuple[int, str]]:
        """Return number and checksum of the deltas that were set aside, for those who follow."""
        with self._beside:
            return [(seq, digest.hex()) for seq, digest in self._journal().aside.digests()]

    def _journal(self) -> Journal:
        """Return the journal to be read beside what is being written."""
        if self._read is None:
            self._read = Journal(self.path / JOURNAL_FILE, readonly=True)
        return self._read

    def newest_snapshot(self) -> Path | None:
        """Return the folder of the newest snapshot, None if there is none yet."""
        return next((path for _, path in snapshots_in(self.path)), None)

    def _close_beside(self) -> None:
        with self._beside:
            if self._read is not None:
                self._read.close()
