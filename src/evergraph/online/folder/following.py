"""A folder that follows another one, beginning with a snapshot of it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evergraph.core.errors import ConfigurationError
from evergraph.core.mapped import disk_is_enough
from evergraph.core.written_aside import make_folders
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.markers import store_parameters
from evergraph.online.folder.snapshot import read_snapshot, sync


def begin_with_snapshot(path: Path, snapshot: Path, parameters: Mapping[str, Any]) -> int:
    """Make a folder whose learner is as a snapshot has it; return the number of its last delta.

    What came after is then taken in with ``LearnerFolder.take_entries``. Keys of deltas that the
    snapshot holds are not known there. The folder is made aside: it is there whole, or not at all.

    path: not there yet, or empty; snapshot: such as ``snapshot-120``, found whole first;
    parameters: what its learner was made with.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigurationError(f"{path} must be empty or not there to begin with a snapshot")
    seq = read_snapshot(snapshot).seq
    aside = path.with_name(f".{path.name}-begun")
    shutil.rmtree(aside, ignore_errors=True)  # what a killed process left
    with disk_is_enough(path.parent):
        make_folders(aside)
        _fill(aside, snapshot, seq, parameters)
        aside.rename(path)
        sync(path.parent)
    return seq


def _fill(folder: Path, snapshot: Path, seq: int, parameters: Mapping[str, Any]) -> None:
    copied = shutil.copytree(snapshot, folder / f"snapshot-{seq}")
    for place in (*copied.iterdir(), copied):
        sync(place)
    journal = Journal(folder / JOURNAL_FILE)
    journal.begin_after(seq)
    journal.close()
    store_parameters(folder, parameters)
