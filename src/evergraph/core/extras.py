"""Optional packages, how to install them, versions of installed packages, and TOML."""

from __future__ import annotations

import sys
from importlib import metadata
from importlib.util import find_spec

from evergraph.core.errors import ConfigurationError

if sys.version_info >= (3, 11):  # part of Python since then, a package before
    import tomllib
else:
    import tomli as tomllib

__all__ = ["installed", "installed_version", "own_version", "require", "tomllib"]
UNKNOWN = "0+unknown"


def require(package: str, *, extra: str, why: str) -> None:
    """Raise unless ``package`` is installed, naming the command that installs it.

    Called before work starts, so that a missing package is reported early; nothing is imported.
    package: its import name. extra: what of evergraph installs it. why: what needs it.

    >>> require("absent", extra="all", why="learning")
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: learning needs the package absent, which is missing: \
    pip install 'evergraph[all]'
    """
    if not installed(package):
        raise ConfigurationError(
            f"{why} needs the package {package}, which is missing: pip install 'evergraph[{extra}]'"
        )


def installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    return find_spec(package) is not None


def installed_version(name: str) -> str | None:
    """Return the version of a package; None if neither its metadata nor the package has it.

    A source tree on the path and a frozen program have no metadata.
    """
    return _recorded(name) or getattr(sys.modules.get(name.replace("-", "_")), "__version__", None)


def own_version() -> str:
    """Return the version of evergraph; ``0+unknown`` in a source tree that is not installed."""
    return _recorded("evergraph") or UNKNOWN


def _recorded(name: str) -> str | None:
    try:
        found: str | None = metadata.version(name)
    except (metadata.PackageNotFoundError, KeyError):
        return None
    return found
