"""The small files of a learner's folder: what it is, who may write, what was acknowledged."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evergraph.core.errors import ConfigurationError, DataError, LockedError, ResourceError
from evergraph.core.file_lock import LOCK_FILE, FileLock
from evergraph.core.mapped import disk_is_enough
from evergraph.core.versions import own_version
from evergraph.core.written_aside import written_aside
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.snapshot import sync
from evergraph.online.folder.state_machine import StateMachine


class FolderLock:
    """The lock of a learner's folder; see ``FileLock``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lock = FolderLock(Path(folder))
    ...     FolderLock(Path(folder))
    Traceback (most recent call last):
    evergraph.core.errors.LockedError: ... is being written to by process ... (this one): ...
    """

    def __init__(self, folder: Path) -> None:
        def refusal(holder: str) -> LockedError:
            return LockedError(
                f"{folder} is being written to by {holder}: stop that one, or open the folder with "
                "readonly=True"
            )

        with disk_is_enough(folder):
            self._lock = FileLock(folder / LOCK_FILE, refusal)
        if not self._lock.holds:  # two writers would destroy what both have acknowledged
            self._lock.close()
            raise ResourceError(
                f"{folder} can be written to only where fcntl.flock can lock it, which this system "
                "or its file system cannot: open it with readonly=True"
            )

    def release(self) -> None:
        """Give the lock back."""
        self._lock.close()


FORMAT_FILE = "evergraph-learner.json"
FORMAT = 2  # 1: no deltas were applied together
FORMATS = (1, FORMAT)


def stored_parameters(folder: Path) -> dict[str, Any] | None:
    """Return what the learner of a folder was made with; None if there is no learner yet."""
    return (_read_format(folder) or (0, None))[1]


def _read_format(folder: Path) -> tuple[int, dict[str, Any]] | None:
    """Return the format of a folder, and its learner's parameters."""
    path = folder / FORMAT_FILE
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_bytes())
        version, parameters = content["format"], content["parameters"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: cannot be read ({error!r}): put it back from a backup") from None
    if version not in FORMATS:
        raise DataError(
            f"{path}: is of format {version!r}, this version of evergraph "
            f"({own_version()}) reads formats up to {FORMAT}: install evergraph "
            f"{content.get('evergraph', '')} or newer, which wrote it"
        )
    return int(version), dict(parameters)


def store_parameters(folder: Path, parameters: Mapping[str, Any]) -> None:
    """Write down what the learner of a new folder is made with."""
    content = {
        "format": FORMAT,
        "evergraph": own_version(),
        "parameters": dict(parameters),
    }
    with disk_is_enough(folder), written_aside(folder / FORMAT_FILE) as file:
        file.write(json.dumps(content, indent=1).encode())
    sync(folder)


def check_parameters(folder: Path, stored: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise, naming parameter and both values, unless a learner is made as the stored one was.

    What an earlier version did not know is None there.
    """
    ours = json.loads(json.dumps(dict(given)))
    for name in sorted(stored.keys() | ours.keys()):
        if stored.get(name) != ours.get(name):
            raise ConfigurationError(
                f"{folder} holds a learner with {name}={stored.get(name)!r}, which cannot be "
                f"opened with {name}={ours.get(name)!r}"
            )


ACKNOWLEDGED_FILE = "acknowledged"
logger = logging.getLogger(__name__)


class Acknowledged:
    """The number of the last delta that a caller was told is safe.

    SQLite takes a damaged or missing end of its WAL for a transaction that was never finished, and
    says nothing. This number is written after the disk has the delta, so it never runs ahead of the
    journal; a journal that ends before it has lost something, and is refused. It does not wait for
    the disk itself: after a power cut it may lag behind, and less is noticed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     noted = Acknowledged(Path(folder, ACKNOWLEDGED_FILE))
    ...     noted.note(12)
    ...     noted.close()
    ...     acknowledged_in(Path(folder, ACKNOWLEDGED_FILE))
    12
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def note(self, seq: int) -> None:
        """Note the number of a delta.

        One write of always the same few bytes, in place: it needs no room on the disk, and is
        never seen half done.
        """
        try:
            os.pwrite(self._handle, b"%020d\n" % seq, 0)
        except OSError as error:  # the delta is safe without it
            logger.warning("delta %d could not be noted as acknowledged: %s", seq, error)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def acknowledged_in(path: Path) -> int:
    """Return the noted number, 0 where none was."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return 0
    if not text.strip(b"\0"):  # made, and the power was cut before its bytes were on the disk
        return 0
    try:
        return int(text)
    except ValueError:
        raise DataError(f"{path}: must hold a number, not {text[:30]!r}") from None


# What a process may leave that was killed while it made the folder.
_BEGUN = (LOCK_FILE, JOURNAL_FILE, ACKNOWLEDGED_FILE, f".{FORMAT_FILE}-")


def make_folder(path: Path) -> None:
    """Make a folder for a learner; refuse one that holds anything else, before it is written to."""
    if path.exists() and not path.is_dir():
        raise ConfigurationError(f"{path} must be a folder, but is a file")
    with disk_is_enough(path):
        path.mkdir(parents=True, exist_ok=True)
    if not (path / FORMAT_FILE).exists():
        others = sorted(p.name for p in path.iterdir() if not p.name.startswith(_BEGUN))
        if others:
            raise ConfigurationError(
                f"{path} must be empty or a learner's folder, but it holds {others[0]!r} and no "
                f"{FORMAT_FILE}"
            )


def open_journal(
    path: Path, make: Callable[[], StateMachine], *, readonly: bool = False
) -> Journal:
    """Return the journal of a folder whose learner is made as ``make`` does.

    The journal of a new folder is made before its format file: from then on a folder without a
    journal is one that has lost it. A folder of an earlier format is brought up to date by whoever
    writes to it, the format first: earlier versions would not apply together what was.
    """
    found = _read_format(path)
    if found is None:
        return _new_journal(path, make, readonly=readonly)
    version, stored = found
    check_parameters(path, stored, make().parameters)
    if not (path / JOURNAL_FILE).exists():
        raise DataError(f"{path / JOURNAL_FILE}: is missing: put the folder back from a backup")
    if version < FORMAT and not readonly:
        store_parameters(path, stored)
    return Journal(path / JOURNAL_FILE, readonly=readonly)


def _new_journal(path: Path, make: Callable[[], StateMachine], *, readonly: bool) -> Journal:
    if readonly:
        raise DataError(f"{path} holds no learner yet: there is no {FORMAT_FILE}")
    made = Journal(path / JOURNAL_FILE)
    if made.last():
        made.close()
        raise DataError(
            f"{path / FORMAT_FILE}: is missing, but the journal holds deltas: put the folder "
            "back from a backup"
        )
    store_parameters(path, make().parameters)
    return made
