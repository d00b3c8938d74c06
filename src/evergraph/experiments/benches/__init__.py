"""Benchmarks with a name, a TOML file each."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from evergraph.core.errors import UnknownNameError


def benches() -> dict[str, Path]:
    """Return every benchmark's file by name.

    >>> "quick" in benches()
    True
    """
    folder = Path(str(resources.files(__name__)))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_bench(name: str) -> dict[str, Any]:
    """Return the values of a benchmark by name, or of any TOML file by path."""
    from evergraph.experiments.config import read_toml  # takes pydantic, and names alone do not

    if name.endswith(".toml"):
        return read_toml(Path(name).expanduser())
    known = benches()
    if name not in known:
        raise UnknownNameError("bench", name, known)
    return read_toml(known[name])
