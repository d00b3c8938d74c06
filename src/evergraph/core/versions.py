"""Versions of what is installed, told without failing where nothing is written down."""

from __future__ import annotations

import sys
from importlib import metadata

UNKNOWN = "0+unknown"


def installed_version(name: str) -> str | None:
    """Return the version of a package; None where neither its metadata nor the package says.

    A source tree on the path and a frozen program have no metadata.

    >>> installed_version("there-is-no-such-package") is None
    True
    """
    return _recorded(name) or getattr(sys.modules.get(name.replace("-", "_")), "__version__", None)


def own_version() -> str:
    """Return the version of evergraph, ``0+unknown`` in a source tree that was never installed."""
    return _recorded("evergraph") or UNKNOWN


def _recorded(name: str) -> str | None:
    try:
        found: str | None = metadata.version(name)
    except (metadata.PackageNotFoundError, KeyError):
        return None
    return found
