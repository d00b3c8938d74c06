"""Packages that a plain install does not hold, and how to get them."""

from __future__ import annotations

from importlib.util import find_spec

from evergraph.core.errors import ConfigurationError


def require(package: str, *, extra: str, why: str) -> None:
    """Raise unless ``package`` is installed, naming the command that installs it.

    Called before work starts, so that nobody waits for what cannot end well. Nothing is imported.

    Args:
        package: what is imported, such as ``"pyarrow"``.
        extra: of evergraph, which holds it, such as ``"tables"``.
        why: who asks, the beginning of a sentence that goes on with "needs".

    >>> require("torch", extra="all", why="learning")
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
    """Whether a package can be imported, without importing it.

    >>> installed("torch"), installed("absent")
    (True, False)
    """
    return find_spec(package) is not None
