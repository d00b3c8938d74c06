"""Values as parts of names that can be a folder's."""

from __future__ import annotations

import json
import re
from typing import Any


def short_text(value: Any) -> str:
    """Return a value in few letters, all of them fit for a folder's name.

    >>> short_text(1e4), short_text("mean-feature"), short_text([64, 32])
    ('10000', 'mean-feature', '64-32')
    """
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, int):
        return str(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return re.sub(r"[^\w.+-]+", "-", text).strip("-")
