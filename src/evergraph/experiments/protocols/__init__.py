"""Evaluation protocols of papers: a TOML file each, with its source and open points.

A file gives the measure that the paper reports (``testing``, ``averaging``, ``pooled``), how the
graph is cut (``[run]``, values of ``RunConfig``), and differences for one dataset
(``[datasets.NAME]``). Importing this module loads neither torch nor pydantic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from evergraph.core.errors import UnknownNameError
from evergraph.experiments.seeds import with_seeds

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
    folder = Path(str(resources.files(__name__)))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


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
    from evergraph.experiments.config import Component, merged

    layers = tuple(map(with_seeds, layers))  # each separately: one may replace another's
    named = [layer["protocol"] for layer in layers if layer.get("protocol") is not None]
    if named:
        dataset = Component.model_validate(reduce(merged, layers, dict(base))["dataset"]).name
        base = merged(base, read_protocol(named[-1]).values(dataset))
    return reduce(merged, layers, dict(base))
