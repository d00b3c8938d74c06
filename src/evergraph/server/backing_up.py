"""A backup of a service's folder, fetched as a follower fetches it."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

from evergraph.core.errors import DroppedError, ResourceError
from evergraph.core.mapped import disk_is_enough
from evergraph.online.folder.archive import COPY, OnProgress, check_new
from evergraph.online.folder.backup import BackedUp, backup
from evergraph.online.folder.columns_file import store_columns
from evergraph.online.folder.entries import check_entries
from evergraph.online.folder.following import begin_with_snapshot
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    acknowledgement,
    make_folder,
    store_parameters,
)
from evergraph.online.folder.recovery import delta_of
from evergraph.server.leader import Leader

TRIES = 5  # how often the journal may lose what comes after the snapshot while that is fetched


def backup_service(leader: Leader, to: Path, *, on_progress: OnProgress | None = None) -> BackedUp:
    """Fetch the newest snapshot of a service, and the deltas that it has by then.

    Keys of deltas that the snapshot holds are not fetched; see ``begin_with_snapshot``. to: as in
    ``backup``.
    """
    check_new(to)
    place = to.absolute().parent
    with disk_is_enough(to):
        place.mkdir(parents=True, exist_ok=True)
        aside = tempfile.TemporaryDirectory(dir=place, prefix=".evergraph-backup-")
    with aside as name:
        for number in range(TRIES):
            made = Path(name) / f"{number}"
            try:
                _fetch(leader, made, on_progress)
            except DroppedError:
                continue
            return backup(made, to)
    raise ResourceError(f"{leader.url}: its snapshots are replaced faster than they are fetched")


def _fetch(leader: Leader, made: Path, on_progress: OnProgress | None) -> None:
    """Make a folder of what a service has."""
    parameters, snapshot = leader.snapshot(made.with_name(f"{made.name}-fetched"))
    if snapshot is None:
        make_folder(made)
        Journal(made / JOURNAL_FILE).close()
        store_parameters(made, parameters)
        seq = 0
    else:
        seq = begin_with_snapshot(made, snapshot, parameters)
    if (scheme := leader.columns()) is not None:
        store_columns(made, scheme)
    seq = _fetch_journal(leader, made, seq, on_progress)
    (made / ACKNOWLEDGED_FILE).write_bytes(acknowledgement(seq))


def _fetch_journal(leader: Leader, made: Path, seq: int, on_progress: OnProgress | None) -> int:
    """Write down the deltas after one; return the number of the last that there was at first."""
    begun, last = seq, None
    with closing(Journal(made / JOURNAL_FILE)) as journal:
        while entries := leader.journal(seq, wait=0.0):
            last = leader.seq if last is None else last
            check_entries(entries, seq)
            for entry in entries:
                delta_of(entry)  # whole, or raises
            journal.write(entries)
            seq = entries[-1].seq
            if on_progress is not None:
                on_progress(COPY, min(seq, last) - begun, last - begun)
            if seq >= last:  # what comes now is of the next backup
                break
    return seq
