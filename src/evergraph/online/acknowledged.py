"""How many deltas were acknowledged, noted apart from the journal."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from evergraph.core.errors import DataError

FILE = "acknowledged"
logger = logging.getLogger(__name__)


class Acknowledged:
    """The number of the last delta that a caller was told is safe.

    SQLite takes a damaged or missing end of its WAL for a transaction that was never finished, and
    says nothing. This number is written after the disk has the delta, so it never runs ahead of the
    journal; a journal that ends before it has lost something, and is refused. It does not wait for
    the disk itself: after a power cut it may lag behind, and less is noticed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     noted = Acknowledged(Path(folder, FILE))
    ...     noted.note(12)
    ...     noted.close()
    ...     acknowledged_in(Path(folder, FILE))
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
