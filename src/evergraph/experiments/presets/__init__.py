"""Configurations with a name, a TOML file each."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from evergraph.core.errors import UnknownNameError
from evergraph.experiments.config import read_toml


def presets() -> dict[str, Path]:
    """Return every preset's file by name.

    >>> "paper" in presets()
    True
    """
    folder = Path(str(resources.files(__name__)))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_preset(name: str) -> dict[str, Any]:
    """Return the values of a preset by name, or of any TOML file by path."""
    if name.endswith(".toml"):
        return read_toml(Path(name).expanduser())
    known = presets()
    if name not in known:
        raise UnknownNameError("preset", name, known)
    return read_toml(known[name])


def summary(path: Path) -> str:
    """Return the comment that opens a preset."""
    return path.read_text("utf-8").split("\n")[0].lstrip("# ")
