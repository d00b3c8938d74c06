"""What a learner was made with, as JSON can hold it, and the way back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from evergraph.core.resolver import Resolver

T = TypeVar("T")

# What a live learner has no choice of, see ``LiveEmbeddings``: older folders do not name it either.
FIXED = ("rows",)


def described(resolver: Resolver[Any], component: Any) -> dict[str, Any]:
    """Return a component's name and the parameters that it stores under their own names.

    >>> from evergraph.topology import SGC, topologies
    >>> described(topologies, SGC(hops=3))
    {'name': 'sgc', 'hops': 3, 'self_loops': True}
    """
    names = [name for name in resolver.parameters(component.name) if name not in FIXED]
    values = {"name": component.name} | {name: getattr(component, name) for name in names}
    kept: dict[str, Any] = json.loads(json.dumps(values))
    return kept


def made(resolver: Resolver[T], description: Mapping[str, Any]) -> T:
    """Return a component as ``described`` tells it.

    >>> from evergraph.topology import topologies
    >>> made(topologies, {"name": "sgc", "hops": 3}).hops
    3
    """
    given = dict(description)
    return resolver.make(given.pop("name"), **given)
