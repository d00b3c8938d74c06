"""A configuration from layers: the defaults, what a protocol says, and what else is given."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from evergraph.experiments.config import Component, merged
from evergraph.experiments.protocols import read_protocol


def layered(base: Mapping[str, Any], *layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with layers laid over it, each over the one before.

    What the protocol says that the last of them names lies under them all: whatever is given wins.

    >>> from evergraph.experiments.config import RunConfig
    >>> protocol, own = {"protocol": "llm4gcl"}, {"stream": {"split": [100, 20, 100]}}
    >>> values = layered(RunConfig().to_dict(), own, protocol)
    >>> values["stream"]["classes_per_task"], values["stream"]["split"]
    (3, [100, 20, 100])
    """
    named = [layer["protocol"] for layer in layers if layer.get("protocol") is not None]
    if named:
        dataset = Component.model_validate(reduce(merged, layers, dict(base))["dataset"]).name
        base = merged(base, read_protocol(named[-1]).values(dataset))
    return reduce(merged, layers, dict(base))
