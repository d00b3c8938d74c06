"""Named TOML files: configurations (presets), protocols of papers, benchmarks and search grids.

A preset may begin with ``extends``, the preset that it modifies. ``[methods.NAME]`` holds values for
one method. The cells of the paper's tables are presets too, all in ``cells.toml``, with the published
values.

A protocol gives the measure that a paper reports (``testing``, ``averaging``, ``pooled``), how the
graph is cut (``[run]``, values of ``RunConfig``), and differences for one dataset
(``[datasets.NAME]``). Importing this module loads neither torch nor pydantic.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, reduce
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from evergraph.core.component import declared_parts
from evergraph.core.errors import UnknownNameError, did_you_mean
from evergraph.core.packages import tomllib

logger = logging.getLogger(__name__)


HOME = Path(str(resources.files("evergraph.experiments")))
CELLS = HOME / "presets" / "cells.toml"


@cache
def presets() -> Mapping[str, Path]:
    """Return every preset's file by name; cells of the paper's tables share one."""
    files = {path.stem: path for path in sorted(CELLS.parent.glob("*.toml")) if path != CELLS}
    return files | dict.fromkeys(_cells(), CELLS)


@cache
def _cells_file() -> dict[str, Any]:
    return tomllib.loads(CELLS.read_text("utf-8"))


@cache
def _cells() -> Mapping[str, tuple[list[dict[str, Any]], list[float]]]:
    """Return the values of each cell, one overriding the other, and its published numbers."""
    stored, cells = _cells_file(), {}
    for table, rows in stored["cells"].items():
        for row, columns in rows.items():
            for column, numbers in columns.items():
                parts = (table, row, column, f"{row}-{column}")
                values = [stored["values"].get(part, {}) for part in parts]
                cells[f"{table}/{row}-{column}"] = values, numbers
    return cells


def read_preset(name: str, method: str | None = None) -> dict[str, Any]:
    """Return the values of a preset by name, or of any TOML file by path.

    method: include the preset's values for this method.
    """
    from evergraph.experiments.config import merged, with_seeds  # imports pydantic

    if name in _cells():
        values: dict[str, Any] = reduce(merged, deepcopy(_cells()[name][0]), {})
    else:
        values = _read("preset", name, presets())
        values.pop("published", None)  # in files of earlier versions
    tables = values.pop("methods", {})
    other_methods = set(tables) - {method}
    known = declared_parts("methods", "methods") if other_methods else {}
    for other in sorted(other_methods - known.keys()):  # misspelt, or of a plug-in
        logger.warning(
            "preset %s: [methods.%s] is not used: %sno method has that name",
            name,
            other,
            did_you_mean(other, known),
        )
    values_of_method = with_seeds(tables.get(method, {}))
    base = values.pop("extends", None)
    values = values if base is None else merged(read_preset(base, method), values)
    return merged(values, values_of_method)


def published(name: str) -> dict[str, Any]:
    """Return the published values of a preset in percent; empty if there are none.

    >>> published("paper/table3/corafull-tem")["average_accuracy"]
    {'mean': 81.9, 'std': 0.1}
    """
    numbers = _cells()[name][1] if name in _cells() else []
    if not numbers:
        return {}
    second = "coverage_ratio" if name.startswith("paper/table2") else "average_forgetting"
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    metrics = ("average_accuracy", second)
    return {  # ``joint`` has the first only
        metric: {"mean": mean, "std": std}
        for metric, (mean, std) in zip(metrics, pairs, strict=False)
    }


def _read(kind: str, name: str, known: Mapping[str, Path]) -> dict[str, Any]:
    """Return the values of a file by its name, or by its path if it ends in ``.toml``."""
    from evergraph.experiments.config import read_toml

    if name not in known and not name.endswith(".toml"):
        raise UnknownNameError(kind, name, known)
    return read_toml(known.get(name) or Path(name).expanduser())


def summary(name: str, path: Path) -> str:
    """Return the comment on the first line of a file, or which cell of a table a preset is.

    >>> summary("paper/table3/corafull-tem", CELLS)
    'Table 3 of the paper, class-IL: corafull-tem.'
    """
    if path == CELLS:
        table, _, cell = name.rpartition("/")
        return f"{_cells_file()['tables'][table]}: {cell}."
    return path.read_text("utf-8").split("\n")[0].lstrip("# ")


def _named(folder: str) -> dict[str, Path]:
    return {path.stem: path for path in sorted((HOME / folder).glob("*.toml"))}


def benches() -> dict[str, Path]:
    """Return every benchmark's file by name."""
    return _named("benches")


def read_bench(name: str) -> dict[str, Any]:
    """Return the values of a benchmark by name, or of any TOML file by path."""
    return _read("bench", name, benches())


@cache
def grids() -> dict[str, dict[str, list[Any]]]:
    """Return the grid of every method that has one, by dotted key."""
    from evergraph.experiments.config import flat

    text = (HOME / "grids.toml").read_text("utf-8")
    return {method: flat(grid) for method, grid in tomllib.loads(text).items()}


POOLED = "-per-test-set"
"""Suffix of methods that predict whole test sets."""


@dataclass(frozen=True)
class Protocol:
    """Evaluation protocol of a paper."""

    name: str  # its name in evergraph
    title: str  # of the paper
    source: str  # where it is described
    # values of ``RunConfig`` that override the defaults, and are overridden by all others
    run: Mapping[str, Any]
    # testing, averaging: the measure that the paper reports
    testing: Literal["local", "global"]
    averaging: Literal["balanced", "plain"]
    pooled: bool = False  # whether whole test sets are predicted, instead of single nodes
    # differences from the paper that no setting removes, as phrases; logged by each run
    departs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what the paper leaves open
    # further values of ``RunConfig`` by dataset
    datasets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def values(self, dataset: str) -> dict[str, Any]:
        """Return the values for a dataset, given by name or by path."""
        from evergraph.experiments.config import merged  # imports pydantic

        return merged(self.run, self.datasets.get(Path(dataset).stem, {}))

    @property
    def headline(self) -> dict[str, str]:
        """The measure that is reported first."""
        return {"testing": self.testing, "averaging": self.averaging}


def protocols() -> dict[str, Path]:
    """Return every protocol's file by name.

    >>> list(protocols())
    ['cglb', 'delome', 'llm4gcl', 'ocgl', 'paper', 'puma', 'tpp']
    """
    return _named("protocols")


def read_protocol(name: str) -> Protocol:
    """Return a protocol by name.

    >>> read_protocol("llm4gcl").headline
    {'testing': 'global', 'averaging': 'plain'}
    """
    from evergraph.experiments.config import read_toml

    known = protocols()
    if name not in known:
        raise UnknownNameError("protocol", name, known)
    values = read_toml(known[name])
    lists = {key: tuple(values.get(key, ())) for key in ("departs", "notes")}
    return Protocol(name=name, **values | lists)


def layered(base: Mapping[str, Any], *layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` updated with each layer in turn.

    If a layer names a protocol, its values are applied before all layers, which override them.
    """
    from evergraph.experiments.config import Component, merged, with_seeds

    layers = tuple(map(with_seeds, layers))  # each separately: one may replace another's
    named = [layer["protocol"] for layer in layers if layer.get("protocol") is not None]
    if named:
        dataset = Component.model_validate(reduce(merged, layers, dict(base))["dataset"]).name
        base = merged(base, read_protocol(named[-1]).values(dataset))
    return reduce(merged, layers, dict(base))
