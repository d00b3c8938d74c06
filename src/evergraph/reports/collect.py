"""Finding finished runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evergraph.core.errors import ResultsError

RESULT = "result.json"


@dataclass(frozen=True)
class Finished:
    """A finished run: where it lies and what its ``result.json`` says."""

    folder: Path
    result: dict[str, Any]

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.result["config"]["method"]["name"])

    @property
    def task(self) -> str:
        """The dataset and the setting."""
        config = self.result["config"]
        return f"{Path(config['dataset']['name']).stem}, {config['stream']['setting']}"


def collect(folder: Path) -> list[Finished]:
    """Return every finished run in a folder and below, by time of completion."""
    if not folder.exists():
        raise ResultsError(f"no such results folder: {folder}")
    paths = sorted(folder.rglob(RESULT), key=lambda path: path.stat().st_mtime)
    if not paths:
        raise ResultsError(f"{folder} holds no finished run: expected a {RESULT} in it or below")
    return [Finished(path.parent, _read(path)) for path in paths]


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ResultsError(f"{path} is not a result of evergraph: {error}") from None
    return content
