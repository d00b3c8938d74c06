"""Named TOML files: configurations (presets), benchmarks, and search grids.

A file may begin with ``extends``, the preset that it modifies, and end with ``[published]``: the
table of the paper that it reproduces, the published values in percent and the tolerance in points.
``[methods.NAME]`` holds values for one method. Grids follow those of CGLB (Zhang et al., NeurIPS
2022).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from evergraph.core.errors import UnknownNameError, did_you_mean
from evergraph.core.resolver import declared_parts
from evergraph.experiments.seeds import with_seeds

logger = logging.getLogger(__name__)


@cache
def presets() -> Mapping[str, Path]:
    """Return every preset's file by name."""
    folder = Path(str(resources.files(__name__)))
    files = sorted(folder.rglob("*.toml"), key=lambda path: (len(path.parts), path))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in files}


def read_preset(name: str, method: str | None = None) -> dict[str, Any]:
    """Return the values of a preset by name, or of any TOML file by path.

    method: include the preset's values for this method.
    """
    from evergraph.experiments.config import merged  # imports pydantic

    values = _read("preset", name, presets())
    values.pop("published", None)
    tables = values.pop("methods", {})
    others = set(tables) - {method}
    known = declared_parts("methods", "methods") if others else {}
    for other in sorted(others - known.keys()):  # misspelt, or of a plug-in
        logger.warning(
            "preset %s: [methods.%s] is not used: %sno method has that name",
            name,
            other,
            did_you_mean(other, known),
        )
    own = with_seeds(tables.get(method, {}))
    base = values.pop("extends", None)
    values = values if base is None else merged(read_preset(base, method), values)
    return merged(values, own)


def published(name: str) -> dict[str, Any]:
    """Return the published values of a preset; empty if there are none."""
    found: dict[str, Any] = _read("preset", name, presets()).get("published", {})
    return found


def _read(kind: str, name: str, known: Mapping[str, Path]) -> dict[str, Any]:
    """Return the values of a file by its name, or by its path if it ends in ``.toml``."""
    from evergraph.experiments.config import read_toml

    if name not in known and not name.endswith(".toml"):
        raise UnknownNameError(kind, name, known)
    return read_toml(known.get(name) or Path(name).expanduser())


def summary(path: Path) -> str:
    """Return the comment on the first line of a preset."""
    return path.read_text("utf-8").split("\n")[0].lstrip("# ")


def _named(folder: str) -> dict[str, Path]:
    home = Path(str(resources.files("evergraph.experiments"))) / folder
    return {path.stem: path for path in sorted(home.glob("*.toml"))}


def benches() -> dict[str, Path]:
    """Return every benchmark's file by name."""
    return _named("benches")


def read_bench(name: str) -> dict[str, Any]:
    """Return the values of a benchmark by name, or of any TOML file by path."""
    return _read("bench", name, benches())


def grids() -> dict[str, Path]:
    """Return every shipped grid's file by method."""
    return _named("grids")


def shipped_grid(method: str) -> dict[str, list[Any]]:
    """Return a method's grid by dotted key; empty if there is nothing to search."""
    from evergraph.experiments.config import flat, read_toml

    known = grids()
    return flat(read_toml(known[method])) if method in known else {}
