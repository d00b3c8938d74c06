"""Whether there is room for more in a folder, where an error alone does not tell."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MOST = 1 << 26  # bytes that are tried


def has_no_room(journal: Path, size: int) -> bool:
    """Whether the log of a SQLite file cannot grow by so many bytes.

    SQLite says "disk I/O error" where a quota or the largest size of a file is reached, as it does
    where the disk is broken. So the same is tried with a file beside, which is removed again.
    """
    tried = bytes(min(max(size, 1), _MOST))
    log = journal.with_name(f"{journal.name}-wal")
    try:
        end = log.stat().st_size if log.exists() else 0
        with tempfile.TemporaryFile(dir=journal.parent) as file:
            # What lies before the end takes no room: nothing is written there.
            return os.pwrite(file.fileno(), tried, end) < len(tried)
    except OSError as error:
        return error.errno in NO_ROOM
