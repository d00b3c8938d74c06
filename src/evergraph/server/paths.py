"""Sentences without places on the disk: whoever asks from elsewhere need not know them."""

from __future__ import annotations

import re
from pathlib import Path

from evergraph.core.errors import ResourceError, StoppedError

# Begins where no word does, so that "and/or" and "1/2" are none.
_ABSOLUTE = re.compile(r"(?<![\w./])/(?:[^\s/:'\"()]+/)*([^\s/:'\"()]+)")


def without_paths(error: Exception | str, folder: Path | None = None) -> str:
    """Return what an error says, with files named as within the learner's folder.

    What is said of the machine has no other absolute path either. Other sentences may hold ids,
    which can look like paths and stay as they are.

    >>> without_paths("/srv/papers/journal.sqlite: the disk is full", Path("/srv/papers"))
    'journal.sqlite: the disk is full'
    """
    text = str(error)
    if folder is not None:
        for base in {folder, folder.absolute(), folder.resolve()}:
            if base.is_absolute():
                text = text.replace(f"{base}/", "").replace(str(base), base.name)
    if isinstance(error, str | StoppedError | ResourceError):
        text = _ABSOLUTE.sub(r"\1", text)
    return text
