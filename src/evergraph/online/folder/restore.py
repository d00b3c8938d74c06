"""A folder made of a backup, once that is known to be whole."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from evergraph.core.errors import DataError
from evergraph.online.codecs.delta_bytes import delta_from_bytes
from evergraph.online.folder.archive import OnProgress, folder_aside, is_tar, unpacked
from evergraph.online.folder.backup import BackedUp, backup
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.markers import FORMAT_FILE, stored_parameters
from evergraph.online.folder.purge import folder_bytes
from evergraph.online.folder.snapshot import read_snapshot, snapshots_in

READ = "verify"  # the stage of progress


def restore(source: Path, to: Path, *, on_progress: OnProgress | None = None) -> BackedUp:
    """Make a folder of a backup; return what it holds.

    Every checksum is looked at, and the folder is opened once to read, which applies the deltas
    after its snapshot. Where anything is wrong, ``DataError`` says so and nothing is made.

    source: what ``backup`` wrote, a folder or a .tar; to: not there yet, or empty.
    """
    if not source.exists():
        raise DataError(f"{source}: is not there")
    with folder_aside(to) as aside:
        if is_tar(source):
            unpacked(source, aside, on_progress)
        else:
            aside.rmdir()
            backup(source, aside, on_progress=on_progress)
        return _proved(aside, on_progress)


def _proved(folder: Path, on_progress: OnProgress | None) -> BackedUp:
    """Return what a folder holds; raise unless all of it is what was written."""
    if stored_parameters(folder) is None:
        raise DataError(f"the backup holds no {FORMAT_FILE}")
    for _, path in snapshots_in(folder):
        read_snapshot(path)
    _read_deltas(folder, on_progress)
    with LearnerFolder.of(folder, readonly=True) as opened:
        status = opened.status()
    for suffix in ("-wal", "-shm"):  # made by looking
        (folder / f"{JOURNAL_FILE}{suffix}").unlink(missing_ok=True)
    return BackedUp(status.seq, status.snapshot, folder_bytes(folder))


def _read_deltas(folder: Path, on_progress: OnProgress | None) -> None:
    with closing(Journal(folder / JOURNAL_FILE, readonly=True)) as journal:
        first, last = journal.first(), journal.last()
        for entry in journal.after(max(first - 1, 0)):
            try:
                delta_from_bytes(entry.data)
            except DataError as error:
                raise DataError(f"{journal.path}: delta {entry.seq}: {error}") from None
            if on_progress is not None:
                on_progress(READ, entry.seq - first + 1, last - first + 1)
