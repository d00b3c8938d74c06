"""Versions of what is installed, told without failing where nothing is written down."""

from __future__ import annotations

from importlib import metadata

UNKNOWN = "0+unknown"


def installed_version(name: str) -> str | None:
    """Return the version of an installed package; None where its metadata is missing.

    >>> installed_version("there-is-no-such-package") is None
    True
    """
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def own_version() -> str:
    """Return the version of evergraph, ``0+unknown`` in a source tree that was never installed."""
    return installed_version("evergraph") or UNKNOWN
