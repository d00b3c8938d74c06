"""What to search where a method's hyper-parameters are to be chosen, a TOML file a method.

The spaces follow those that CGLB searches (Zhang et al., NeurIPS 2022).
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from evergraph.experiments.config import read_toml
from evergraph.experiments.dotted import flat


def grids() -> dict[str, Path]:
    """Return every shipped grid's file by method.

    >>> "tem" in grids()
    True
    """
    folder = Path(str(resources.files(__name__)))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def shipped_grid(method: str) -> dict[str, list[Any]]:
    """Return a method's grid by dotted key; empty where there is nothing to search.

    >>> shipped_grid("finetune")
    {}
    """
    known = grids()
    return flat(read_toml(known[method])) if method in known else {}
