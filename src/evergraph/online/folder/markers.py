"""The folder of a learner, its status, and its small files: format, columns, lock, acknowledged number.

JSON objects carry their own checksum. The field ``sha256`` is computed from the other fields,
written without spaces and sorted by name, so that spaces and the order of fields do not matter.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph.core.errors import ConfigurationError, DataError, LockedError, ResourceError
from evergraph.core.packages import own_version
from evergraph.core.safe_files import (
    LOCK_FILE,
    FileLock,
    disk_is_enough,
    make_folders,
    written_aside,
)
from evergraph.online.folder.journal import JOURNAL_FILE
from evergraph.tables.choices import OTHERS, Columns, Encoder, registered
from evergraph.tables.scheme import Scheme

if TYPE_CHECKING:
    from evergraph.online.delta import Delta
    from evergraph.online.learner import OnlineLearner

CHECK = "sha256"
logger = logging.getLogger(__name__)


def with_check(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its checksum, for ``read_checked``."""
    fields = {name: value for name, value in content.items() if name != CHECK}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return {**fields, CHECK: hashlib.sha256(text.encode()).hexdigest()}


def read_checked(path: Path) -> dict[str, Any]:
    """Return the object in a file that has its own checksum; raise ``DataError`` if damaged."""
    content = read_object(path)
    if CHECK not in content:
        raise DataError(f"{path}: has lost its checksum: restore it from a backup")
    if content != with_check(content):
        raise DataError(f"{path}: does not match its checksum: restore it from a backup")
    return content


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, whose checksum may be elsewhere."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not JSON ({error}): restore it from a backup") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: must be a JSON object, not {type(content).__name__}")
    return content


def lock_folder(folder: Path) -> FileLock:
    """Acquire the lock of a learner's folder; closing it releases the lock."""

    def refusal(holder: str) -> LockedError:
        return LockedError(
            f"{folder} is being written to by {holder}: stop it, or open the folder with "
            "readonly=True"
        )

    with disk_is_enough(folder):
        lock = FileLock(folder / LOCK_FILE, refusal)
    if not lock.holds:  # two writers would destroy what both have acknowledged
        lock.close()
        raise ResourceError(
            f"{folder} cannot be locked: writing needs fcntl.flock, which this system or file "
            "system lacks: the folder can only be read here (readonly=True, or --read-only)"
        )
    return lock


FORMAT_FILE = "evergraph-learner.json"
FORMAT = 5  # 1 to 4 were never released


def stored_parameters(folder: Path) -> dict[str, Any] | None:
    """Return the parameters of a folder's learner; None if there is no learner yet."""
    path = folder / FORMAT_FILE
    if not path.exists():
        return None
    content = read_checked(path)
    version, parameters = content.get("format"), content.get("parameters")
    if version != FORMAT:
        raise DataError(
            f"{path}: is of format {version!r}, this version of evergraph ({own_version()}) reads "
            f"format {FORMAT}: install evergraph {content.get('evergraph', '')}, which wrote it, "
            "or give a new learner the nodes again"
        )
    if not isinstance(parameters, dict):
        raise DataError(f"{path}: must hold the parameters of a learner: restore it from a backup")
    return parameters


def store_parameters(folder: Path, parameters: Mapping[str, Any]) -> None:
    """Write the format file, with the parameters of the learner."""
    content = {"format": FORMAT, "evergraph": own_version(), "parameters": dict(parameters)}
    with disk_is_enough(folder), written_aside(folder / FORMAT_FILE) as file:
        file.write(json.dumps(with_check(content), indent=1).encode())


def check_parameters(folder: Path, stored: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise, naming parameter and both values, unless given and stored parameters match."""
    parameters = json.loads(json.dumps(dict(given)))
    for name in sorted(stored.keys() | parameters.keys()):
        if stored.get(name) != parameters.get(name):
            raise ConfigurationError(
                f"{folder} holds a learner with {name}={stored.get(name)!r}, which cannot be "
                f"opened with {name}={parameters.get(name)!r}"
            )


ACKNOWLEDGED_FILE = "acknowledged"
_WITHOUT = (
    "restore it from a backup, or remove it if the journal is known to be complete: its number "
    "shows whether the journal has lost its end"
)


class Acknowledged:
    """File with the number of the last acknowledged delta.

    SQLite silently takes a damaged or missing end of its WAL for an unfinished transaction. A
    journal that ends before this number has lost deltas and is rejected. The file is not flushed to
    disk: after a power cut its number may be too low, and less is noticed.
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def note(self, seq: int) -> None:
        """Write the number of a delta."""
        # One write in place, always of the same length: it needs no disk space and is never seen
        # half done.
        try:
            os.pwrite(self._handle, acknowledgement(seq), 0)
        except OSError as error:  # the delta is safe without it
            logger.warning("delta %d could not be noted as acknowledged: %s", seq, error)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def acknowledgement(seq: int) -> bytes:
    """Return the contents of the file for a number: its digits, and their CRC-32."""
    digits = b"%020d" % seq
    return b"%s %08x\n" % (digits, zlib.crc32(digits))


def acknowledged_in(path: Path) -> int:
    """Return the number in the file, 0 if there is none."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if not text.strip(b"\0"):  # created, but the power failed before its bytes were on disk
        return 0
    match = re.fullmatch(rb"([0-9]{20}) [0-9a-f]{8}\n", text)
    if match is None:
        raise DataError(f"{path}: must hold a number, not {text[:40]!r}: {_WITHOUT}")
    seq = int(match[1])
    if text != acknowledgement(seq):
        raise DataError(f"{path}: does not match its checksum: {_WITHOUT}")
    return seq


# How the columns of tables are read, fitted on the first table. It is written before the first
# delta that uses it, and stays: a learner that has nodes but no such file began with plain numbers
# and stays with them. It stores hashes of categories.
COLUMNS_FILE = "columns.json"
_FIELDS = {"format", "columns", "strict", "refuse_gaps", CHECK}


def stored_columns(folder: Path, encoders: Iterable[Encoder] = ()) -> Scheme | None:
    """Return how a folder's tables are read, with custom encoders; None for plain numbers."""
    path = folder / COLUMNS_FILE
    if not path.exists():
        return None
    content = read_checked(path)
    if other := sorted(content.keys() - _FIELDS):
        raise DataError(f"{path}: has the unknown field {other[0]!r}")
    try:
        return Scheme.from_json(content, encoders)
    except (ValueError, AttributeError, DataError) as error:
        raise DataError(f"{path}: cannot be read ({error}): restore it from a backup") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{folder}: {error}") from None


class KeptColumns:
    """How the columns of a learner's tables are read, which its first nodes fix for good.

    encoders: custom ones that it may name.
    """

    def __init__(self, folder: Path, encoders: tuple[Encoder, ...] = ()) -> None:
        self.folder, self.encoders = folder, encoders
        self._scheme: Scheme | None = None
        self._read = False

    def of(self, learner: OnlineLearner) -> Scheme | None:
        """Return it; None for plain numbers, and before the first node."""
        if not self._read and (width := learner.status().features):
            scheme = stored_columns(self.folder, self.encoders)
            # A process killed before its first delta may have left a file that does not fit.
            self._scheme = scheme if scheme is not None and scheme.width == width else None
            self._read = True  # last, as other threads ask as well
        return self._scheme

    def check(self, delta: Delta, learner: OnlineLearner) -> None:
        """Raise unless the columns of a delta, if it has any, are read like those of the first."""
        if delta.scheme is None or not learner.status().features:
            return
        known = self.of(learner)
        if known is None:
            raise DataError(
                f"{self.folder}: began with plain numbers: expected numbers without gaps"
            )
        if known != delta.scheme:
            raise DataError(
                f"{self.folder}: another process has fixed how columns are read: try again"
            )

    def keep(self, deltas: Iterable[Delta], learner: OnlineLearner) -> None:
        """Store how columns are read if these deltas bring the first nodes, before they come."""
        first = next((delta for delta in deltas if len(delta.nodes)), None)
        if first is not None and not learner.status().features:
            store_columns(self.folder, first.scheme)


def store_columns(folder: Path, scheme: Scheme | None) -> None:
    """Store how a folder's tables are read; None for plain numbers."""
    if scheme is None:
        (folder / COLUMNS_FILE).unlink(missing_ok=True)
    else:
        with disk_is_enough(folder), written_aside(folder / COLUMNS_FILE) as file:
            file.write(json.dumps(with_check(scheme.to_json())).encode())


def columns_for(folder: Path, choices: Columns) -> Scheme | Columns | None:
    """Return how to read a table for a folder: its scheme, None for plain, or choices to fit."""
    # A scheme left by a process that was killed before the first delta is ignored.
    if not acknowledged_in(folder / ACKNOWLEDGED_FILE):
        return choices
    scheme = stored_columns(folder, choices.encoders)
    check_chosen(folder, scheme, choices)
    return scheme


def check_chosen(where: object, scheme: Scheme | None, choices: Columns) -> None:
    """Raise if choices contradict what the first table has fixed; equal ones may be repeated."""
    # A learner of plain numbers (no scheme) has no categories and accepts no gaps.

    def refusal(what: str, stored_value: object) -> ConfigurationError:
        return ConfigurationError(f"{where}: {what} been {stored_value} since the first table")

    kinds = {} if scheme is None else scheme.kinds
    if scheme is None and choices.kinds.get(OTHERS, "raw") != "raw":
        what = f"columns cannot be read as {choices.kinds[OTHERS]!r}: they have"
        raise refusal(what, "plain numbers")
    for name in dict.fromkeys((*choices.kinds, *kinds)):
        kind = None if name == OTHERS else choices.kind_of(name)
        if kind is not None and kinds.get(name) != str(registered(kind) or kind):
            stored = kinds.get(name, "a plain number" if scheme is None else "no column")
            raise refusal(f"column {name!r} cannot be read as {str(kind)!r}: it has", stored)
    for option in () if scheme is None else ("gaps", "strict", "text_width"):
        value, stored = getattr(choices, option), getattr(scheme, option)
        if value not in (getattr(Columns(), option), stored):
            raise refusal(f"{option} cannot be {value!r}: it has", repr(stored))


# Files that a process killed while creating the folder may leave.
_BEGUN = (LOCK_FILE, JOURNAL_FILE, ACKNOWLEDGED_FILE, f".{FORMAT_FILE}-")


def make_folder(path: Path) -> None:
    """Create a folder for a learner; reject one that holds anything else."""
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


@dataclass(frozen=True)
class FolderStatus:
    """Status of a folder, for its operator."""

    path: str  # the folder
    readonly: bool  # whether it was opened read-only
    seq: int  # deltas applied
    snapshot: int  # number of the newest snapshot: the last delta it includes
    deltas_since: int  # deltas after it, which a recovery replays
    bytes_since: int  # their size in the journal
    keys: int = 0  # delta keys kept
    stopped: str | None = None  # why writes have stopped; None while they are accepted
    snapshot_error: str | None = None  # why the last snapshot failed; None if it did not
    replay_seconds: float = 0.0  # estimated time that a restart would spend on replaying
    # when the newest snapshot was taken, in Unix seconds; None if there is none
    snapshot_time: float | None = None
    # how long it took, if it was taken since the folder was opened
    snapshot_seconds: float | None = None
    # when writes stopped, in Unix seconds; None while they are accepted
    stopped_since: float | None = None
    set_aside: int = 0  # deltas set aside so far


@dataclass(frozen=True)
class Purged:
    """Result of a compaction or purge."""

    seq: int  # the number of the newest snapshot
    bytes_before: int  # size of the folder before
    bytes_after: int  # size of the folder now
    places: int = 0  # positions of forgotten nodes that were dropped, from memory too


def folder_bytes(folder: Path) -> int:
    """Return the total size of the files in a folder."""
    total = 0
    for place, _, names in os.walk(folder):  # it passes over folders that go meanwhile
        for name in names:
            with suppress(FileNotFoundError):  # SQLite's files come and go
                total += Path(place, name).stat().st_size
    return total
