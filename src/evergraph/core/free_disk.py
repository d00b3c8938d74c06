"""Whether a disk has room, asked before hours of work and not after them."""

from __future__ import annotations

import shutil
from pathlib import Path

from evergraph.core.errors import ResourceError
from evergraph.core.sizes import shown


def check_room(folder: Path, needed: float, purpose: str, *, remedy: str = "make room") -> None:
    """Raise unless so many bytes are free where a folder is, or will be.

    >>> check_room(Path("/"), 1e18, "this")
    Traceback (most recent call last):
    evergraph.core.errors.ResourceError: /: this takes about 1000000000.0 GB of disk, but only ...
    """
    free = shutil.disk_usage(there(folder)).free
    if needed > free:
        raise ResourceError(
            f"{folder}: {purpose} takes about {shown(needed)} of disk, but only {shown(free)} are "
            f"free, {shown(needed - free)} too few: {remedy}"
        )


def there(folder: Path) -> Path:
    """Return a folder, or the nearest one above it that exists."""
    return next(place for place in (folder, *folder.absolute().parents) if place.is_dir())
