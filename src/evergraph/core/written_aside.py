"""Files that are either whole or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def written_aside(path: Path) -> Iterator[IO[bytes]]:
    """Open a file next to ``path`` for writing, and rename it to ``path`` once it is written.

    If writing fails, ``path`` is what it was before and nothing is left beside it.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with written_aside(Path(folder, "a.txt")) as file:
    ...         _ = file.write(b"whole")
    ...     Path(folder, "a.txt").read_text()
    'whole'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    aside = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # a power cut must not leave the new name on empty blocks
        aside.chmod(0o644)  # mkstemp allows the owner only; a cache may be shared
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
