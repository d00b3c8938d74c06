"""A run under a protocol: where it departs from it, and who answers whole test sets."""

from __future__ import annotations

from evergraph.core.notices import say
from evergraph.experiments.config import RunConfig
from evergraph.experiments.dotted import flat
from evergraph.experiments.protocols import POOLED, read_protocol
from evergraph.methods import methods


def departures(config: RunConfig) -> list[str]:
    """Return where a configuration is not what its protocol says, a phrase each.

    >>> config = RunConfig.of({"protocol": "cglb", "stream": {"split": [0.8, 0.1, 0.1]}})
    >>> departures(config)
    ['stream.split is [0.8, 0.1, 0.1] and not [0.6, 0.2, 0.2]']
    """
    if config.protocol is None:
        return []
    said = flat(read_protocol(config.protocol).values(config.dataset.name))
    found = flat(config.to_dict())
    return [
        f"{key} is {found.get(key)!r} and not {value!r}"
        for key, value in said.items()
        if found.get(key) != value
    ]


def pooled(config: RunConfig) -> RunConfig:
    """Return a configuration whose method answers as its protocol asks, where there is such a one.

    >>> pooled(RunConfig.of({"protocol": "tpp", "method": "tpp"})).method.name
    'tpp-per-test-set'
    >>> pooled(RunConfig.of({"protocol": "tpp", "method": "tem"})).method.name
    'tem'
    """
    asked = config.protocol is not None and read_protocol(config.protocol).pooled
    name = f"{config.method.name}{POOLED}"
    if not asked or name not in methods.names():
        return config
    return config.model_copy(update={"method": config.method.model_copy(update={"name": name})})


def say_protocol(asked: RunConfig, config: RunConfig) -> None:
    """Say how a run under a protocol is not what the paper ran.

    asked: as it was given; config: as it is going to run.
    """
    if config.protocol is None:
        return
    where = f"{asked.method.name} under protocol {config.protocol}"
    for departure in read_protocol(config.protocol).departs:
        say(where, departure)
    for departure in departures(config):
        say(where, f"{departure}, so the result is not comparable with that paper's")
    if config.method.name != asked.method.name:
        say(where, f"{config.method.name} is run instead, since test sets are answered")
    elif read_protocol(config.protocol).pooled and not config.method.name.endswith(POOLED):
        say(where, "it answers node by node, and the paper's method whole test sets")
