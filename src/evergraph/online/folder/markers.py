"""The small files of a learner's folder: what it is, who may write, what was acknowledged."""

from __future__ import annotations

import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evergraph.core.errors import ConfigurationError, DataError, LockedError, ResourceError
from evergraph.core.extras import own_version
from evergraph.core.file_lock import LOCK_FILE, FileLock
from evergraph.core.mapped import disk_is_enough
from evergraph.core.written_aside import make_folders, written_aside
from evergraph.online.folder.checked_json import needs_check, parse_checked, with_check
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
FORMAT = 3  # 1: no deltas were applied together; 2: this file had no checksum
FORMATS = (1, 2, FORMAT)
# What learners were whose folders do not say: they counted all that moved, and solved at once.
BEFORE: dict[str, Any] = {"tolerance": 0.0, "patience": 1}


def stored_parameters(folder: Path) -> dict[str, Any] | None:
    """Return what the learner of a folder was made with; None if there is no learner yet."""
    return (_read_format(folder) or (0, None))[1]


def _read_format(folder: Path) -> tuple[int, dict[str, Any]] | None:
    """Return the format of a folder, and its learner's parameters."""
    path = folder / FORMAT_FILE
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):  # whoever makes the folder will say so
        return None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    return parse_format(data, path)


def parse_format(data: bytes, path: Path) -> tuple[int, dict[str, Any]]:
    """Return the format that the bytes of a format file tell, and a learner's parameters."""
    content = parse_checked(data, path)
    version, parameters = content.get("format"), content.get("parameters")
    if version not in FORMATS:
        raise DataError(
            f"{path}: is of format {version!r}, this version of evergraph "
            f"({own_version()}) reads formats up to {FORMAT}: install evergraph "
            f"{content.get('evergraph', '')} or newer, which wrote it"
        )
    if version == FORMAT:
        needs_check(content, path)
    if not isinstance(parameters, dict):
        raise DataError(f"{path}: must hold the parameters of a learner: put it back from a backup")
    return int(version), parameters


def store_parameters(folder: Path, parameters: Mapping[str, Any]) -> None:
    """Write down what the learner of a new folder is made with."""
    content = {
        "format": FORMAT,
        "evergraph": own_version(),
        "parameters": dict(parameters),
    }
    with disk_is_enough(folder), written_aside(folder / FORMAT_FILE) as file:
        file.write(json.dumps(with_check(content), indent=1).encode())
    sync(folder)


def check_parameters(folder: Path, stored: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise, naming parameter and both values, unless a learner is made as the stored one was.

    What an earlier version did not know is as it was then (``BEFORE``), or None.
    """
    ours = json.loads(json.dumps(dict(given)))
    for name in sorted(stored.keys() | ours.keys()):
        there = stored.get(name, BEFORE.get(name) if name in ours else None)
        if there != ours.get(name):
            raise ConfigurationError(
                f"{folder} holds a learner with {name}={there!r}, which cannot be "
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

        One write of always as many bytes, in place: it needs no room on the disk, and is never
        seen half done.
        """
        try:
            os.pwrite(self._handle, acknowledgement(seq), 0)
        except OSError as error:  # the delta is safe without it
            logger.warning("delta %d could not be noted as acknowledged: %s", seq, error)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def acknowledgement(seq: int) -> bytes:
    """Return what is written for a number: its digits, and a CRC-32 of them.

    >>> acknowledgement(12)
    b'00000000000000000012 3390124e\\n'
    """
    digits = b"%020d" % seq
    return b"%s %08x\n" % (digits, zlib.crc32(digits))


def acknowledged_in(path: Path) -> int:
    """Return the noted number, 0 where none was."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return parse_acknowledged(text, path)


def parse_acknowledged(text: bytes, path: Path) -> int:
    """Return the number that the bytes of the file tell."""
    if not text.strip(b"\0"):  # made, and the power was cut before its bytes were on the disk
        return 0
    # Earlier versions wrote digits alone; so does a power cut while theirs was written over.
    found = re.fullmatch(rb"([0-9]{20})(?:[ \n]| [0-9a-f]{8}\n)", text)
    if found is None:
        raise DataError(f"{path}: must hold a number, not {text[:40]!r}: {_WITHOUT}")
    seq = int(found[1])
    if len(text) > _DIGITS_ALONE and text != acknowledgement(seq):
        raise DataError(f"{path}: does not match its checksum: {_WITHOUT}")
    return seq


_DIGITS_ALONE = 21  # bytes
_WITHOUT = (
    "put it back from a backup, or remove it where the journal is known to be whole: the number in "
    "it tells whether the journal has lost its end"
)


# What a process may leave that was killed while it made the folder.
_BEGUN = (LOCK_FILE, JOURNAL_FILE, ACKNOWLEDGED_FILE, f".{FORMAT_FILE}-")


def make_folder(path: Path) -> None:
    """Make a folder for a learner; refuse one that holds anything else, before it is written to."""
    if path.exists() and not path.is_dir():
        raise ConfigurationError(f"{path} must be a folder, but is a file")
    with disk_is_enough(path):
        make_folders(path)
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
