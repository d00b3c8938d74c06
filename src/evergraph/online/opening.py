"""What is looked at before a learner's folder is read or written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.mapped import disk_is_enough
from evergraph.online import acknowledged, folder_lock, format_file, journal
from evergraph.online.format_file import check_parameters, store_parameters, stored_parameters
from evergraph.online.journal import Journal
from evergraph.online.state_machine import StateMachine

# What a process may leave that was killed while it made the folder.
_BEGUN = (folder_lock.FILE, journal.FILE, acknowledged.FILE, f".{format_file.FILE}-")


def make_folder(path: Path) -> None:
    """Make a folder for a learner; refuse one that holds anything else, before it is written to."""
    if path.exists() and not path.is_dir():
        raise ConfigurationError(f"{path} must be a folder, but is a file")
    with disk_is_enough(path):
        path.mkdir(parents=True, exist_ok=True)
    if not (path / format_file.FILE).exists():
        others = sorted(p.name for p in path.iterdir() if not p.name.startswith(_BEGUN))
        if others:
            raise ConfigurationError(
                f"{path} must be empty or a learner's folder, but it holds {others[0]!r} and no "
                f"{format_file.FILE}"
            )


def open_journal(
    path: Path, make: Callable[[], StateMachine], *, readonly: bool = False
) -> Journal:
    """Return the journal of a folder whose learner is made as ``make`` does.

    The journal of a new folder is made before its format file: from then on a folder without a
    journal is one that has lost it.
    """
    stored = stored_parameters(path)
    if stored is None:
        return _new_journal(path, make, readonly=readonly)
    check_parameters(path, stored, make().parameters)
    if not (path / journal.FILE).exists():
        raise DataError(f"{path / journal.FILE}: is missing: put the folder back from a backup")
    return Journal(path / journal.FILE, readonly=readonly)


def _new_journal(path: Path, make: Callable[[], StateMachine], *, readonly: bool) -> Journal:
    if readonly:
        raise DataError(f"{path} holds no learner yet: there is no {format_file.FILE}")
    made = Journal(path / journal.FILE)
    if made.last():
        made.close()
        raise DataError(
            f"{path / format_file.FILE}: is missing, but the journal holds deltas: put the folder "
            "back from a backup"
        )
    store_parameters(path, make().parameters)
    return made
