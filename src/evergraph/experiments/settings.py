"""Arguments of ``run`` as a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from pathlib import Path
from typing import Any

from evergraph.core.component import Part
from evergraph.core.errors import ConfigurationError, UnknownNameError
from evergraph.experiments.build import unused
from evergraph.experiments.config import SEEDING, RunConfig, Section, merged, with_seeds
from evergraph.experiments.presets import layered
from evergraph.graphs import Graph

IN_MEMORY = "in memory"
"""Dataset name of a graph that was passed as an object."""


@cache
def section_of_field() -> dict[str, str]:
    """Return the section of each field; ``hops`` belongs to the topology."""
    return {"hops": "topology"} | {
        key: name
        for name, field in RunConfig.model_fields.items()
        if isinstance(field.default, Section)
        for key in type(field.default).model_fields
    }


def configured(base: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """Return a configuration updated with settings.

    A setting is a field of ``RunConfig``, a field of one of its sections (``setting``, ``epochs``,
    ``budget``, ...) or ``hops``; ``outer__inner`` reaches any parameter, named as by
    ``get_params(deep=True)``. A component may be given by name, as a table with its ``name``, or as
    an object. ``repeats=3`` means seeds 0, 1 and 2, and ``seed=5`` means only seed 5. All other
    settings override those of ``protocol``.
    """
    if not settings:
        return base
    settings = with_seeds(settings)
    layers: list[dict[str, Any]] = []
    for key in sorted(settings, key=lambda key: key.count("__")):  # a name before its parameters
        path = key.split("__")
        if len(path) == 1 and key in section_of_field():
            path = [section_of_field()[key], key]
        if path[0] not in RunConfig.model_fields:
            known = [*RunConfig.model_fields, *SEEDING, *section_of_field()]
            raise UnknownNameError("setting", key, known)
        layers.append(reduce(lambda inner, name: {name: inner}, path[::-1], _plain(settings[key])))
        topology = getattr(settings[key], "topology", None) if key == "backbone" else None
        if isinstance(topology, Part) and "topology" not in settings:
            layers.append({"topology": _plain(topology)})
    config = RunConfig.of(layered(base.to_dict(), *layers))
    if ignored := unused(config, reduce(merged, layers, {})):
        raise ConfigurationError(
            f"{config.method.name} does not use {', '.join(ignored)}: leave that out, or choose "
            "another method"
        )
    return config


def _plain(value: Any) -> Any:
    """Return a component as a table with its name, without inner components."""
    if isinstance(value, type) and issubclass(value, Part):
        return value.name  # type: ignore[attr-defined]
    if isinstance(value, Part):
        named = {"name": value.name} if hasattr(value, "name") else {}
        inner = {k: _plain(v) for k, v in value.get_params().items() if k != "topology"}
        return named | inner
    return str(value) if isinstance(value, Path) else value


def config_of(
    source: object,
    graph: Graph | None,
    method: str | Mapping[str, Any] | None,
    settings: dict[str, Any],
) -> RunConfig:
    """Return the configuration for the arguments of ``run``."""
    settings = settings if method is None else settings | {"method": method}
    if source is None or isinstance(source, RunConfig):
        return configured(source or RunConfig(), settings)
    if "dataset" in settings:
        raise ConfigurationError(f"dataset must be given once, not also as {settings['dataset']!r}")
    dataset: str | dict[str, Any] = str(source)
    if graph is not None:  # a description by which it is recognised on resume
        facts = ("nodes", "edges", "features", "classes")
        dataset = {"name": IN_MEMORY} | {fact: getattr(graph, f"num_{fact}") for fact in facts}
    return configured(RunConfig(), {"method": "auto", "dataset": dataset} | settings)
