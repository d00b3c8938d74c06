"""The small files of a learner's folder: what it is, who may write, what was acknowledged.

JSON objects carry their own checksum: a small file that changed is told from a whole one. The field
``sha256`` is that of the other fields, written without blanks and in the order of their names:
blanks and the order of fields in the file are no matter.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evergraph.core.errors import ConfigurationError, DataError, LockedError, ResourceError
from evergraph.core.extras import own_version
from evergraph.core.file_lock import LOCK_FILE, FileLock
from evergraph.core.mapped import disk_is_enough
from evergraph.core.written_aside import written_aside

CHECK = "sha256"
logger = logging.getLogger(__name__)


def digest_of(content: Mapping[str, Any]) -> str:
    """Return the checksum of an object.

    >>> digest_of({"b": 1, "a": 2}) == digest_of({"a": 2, "b": 1, "sha256": "is left out"})
    True
    """
    kept = {name: value for name, value in content.items() if name != CHECK}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def with_check(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its checksum, as ``read_checked`` takes it.

    >>> sorted(with_check({"seq": 3}))
    ['seq', 'sha256']
    """
    return {**content, CHECK: digest_of(content)}


def read_checked(path: Path, *, checked: int | None = None) -> dict[str, Any]:
    """Return the object in a file; raise ``DataError`` unless it is what was written.

    checked: the format from which on files have a checksum. One without is returned as it is
    otherwise: earlier versions wrote none.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        said = str(error).splitlines()[0][:200]
        raise DataError(f"{path}: is not JSON ({said}): put it back from a backup") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: must be a JSON object, not {type(content).__name__}")
    if CHECK in content and content[CHECK] != digest_of(content):
        raise DataError(f"{path}: does not match its checksum: put it back from a backup")
    if CHECK not in content and checked is not None and content.get("format") == checked:
        raise DataError(f"{path}: has lost its checksum: put it back from a backup")
    return content


def sync(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock_folder(folder: Path) -> FileLock:
    """Take the lock of a learner's folder, until it is closed; see ``FileLock``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lock = lock_folder(Path(folder))
    ...     lock_folder(Path(folder))
    Traceback (most recent call last):
    evergraph.core.errors.LockedError: ... is being written to by process ... (this one): ...
    """

    def refusal(holder: str) -> LockedError:
        return LockedError(
            f"{folder} is being written to by {holder}: stop that one, or open the folder with "
            "readonly=True"
        )

    with disk_is_enough(folder):
        lock = FileLock(folder / LOCK_FILE, refusal)
    if not lock.holds:  # two writers would destroy what both have acknowledged
        lock.close()
        raise ResourceError(
            f"{folder} can be written to only where fcntl.flock can lock it, which this system "
            "or its file system cannot: open it with readonly=True"
        )
    return lock


FORMAT_FILE = "evergraph-learner.json"
FORMAT = 3  # 1: no deltas were applied together; 2: this file had no checksum
# What learners were whose folders do not say: they counted all that moved, and solved at once.
BEFORE: dict[str, Any] = {"tolerance": 0.0, "patience": 1}
PARTS_BEFORE: dict[str, Any] = {"objective": "balanced", "basis": "random"}  # and so of their heads


def stored_parameters(folder: Path) -> dict[str, Any] | None:
    """Return what the learner of a folder was made with; None if there is no learner yet."""
    return (read_format(folder) or (0, None))[1]


def read_format(folder: Path) -> tuple[int, dict[str, Any]] | None:
    """Return the format of a folder, and its learner's parameters; None where there is no file."""
    path = folder / FORMAT_FILE
    if not path.exists():  # nor is the folder, perhaps: whoever makes it will say so
        return None
    content = read_checked(path, checked=FORMAT)
    version, parameters = content.get("format"), content.get("parameters")
    if version not in (1, 2, FORMAT):
        raise DataError(
            f"{path}: is of format {version!r}, this version of evergraph "
            f"({own_version()}) reads formats up to {FORMAT}: install evergraph "
            f"{content.get('evergraph', '')} or newer, which wrote it"
        )
    if not isinstance(parameters, dict):
        raise DataError(f"{path}: must hold the parameters of a learner: put it back from a backup")
    return int(version), parameters


def store_parameters(folder: Path, parameters: Mapping[str, Any]) -> None:
    """Write down what the learner of a new folder is made with."""
    content = {"format": FORMAT, "evergraph": own_version(), "parameters": dict(parameters)}
    with disk_is_enough(folder), written_aside(folder / FORMAT_FILE) as file:
        file.write(json.dumps(with_check(content), indent=1).encode())
    sync(folder)


def check_parameters(folder: Path, stored: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise, naming parameter and both values, unless a learner is made as the stored one was.

    What an earlier version did not know is as it was then (``BEFORE`` and ``PARTS_BEFORE``), or
    None.
    """
    ours = json.loads(json.dumps(dict(given)))
    for name in sorted(stored.keys() | ours.keys()):
        there = stored.get(name, BEFORE.get(name) if name in ours else None)
        if isinstance(there, dict) and isinstance(own := ours.get(name), dict):
            there = {key: value for key, value in PARTS_BEFORE.items() if key in own} | there
        if there != ours.get(name):
            raise ConfigurationError(
                f"{folder} holds a learner with {name}={there!r}, which cannot be "
                f"opened with {name}={ours.get(name)!r}"
            )


ACKNOWLEDGED_FILE = "acknowledged"
_DIGITS_ALONE = 21  # bytes
_WITHOUT = (
    "put it back from a backup, or remove it where the journal is known to be whole: the number in "
    "it tells whether the journal has lost its end"
)


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
