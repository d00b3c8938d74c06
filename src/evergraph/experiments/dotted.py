"""Nested tables as one, keys joined by dots, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evergraph.experiments.config import merged


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one, keys joined by dots.

    >>> flat({"training": {"lr": 0.1}, "seeds": [0]})
    {'training.lr': 0.1, 'seeds': [0]}
    """
    result: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        result |= flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return result


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables that dotted keys stand for.

    >>> nested({"training.lr": 0.1, "training.epochs": 3})
    {'training': {'lr': 0.1, 'epochs': 3}}
    """
    result: dict[str, Any] = {}
    for key, value in values.items():
        table: Any = value
        for part in reversed(key.split(".")):
            table = {part: table}
        result = merged(result, table)
    return result
