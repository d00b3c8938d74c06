"""A mean and how far repeats lie apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

SPREADS = (
    "average_accuracy", "average_forgetting", "anytime_accuracy", "area_under_curve", "measures",
)  # fmt: skip


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean and the sample standard deviation, which a single value does not have.

    >>> spread([0.5, 0.7])["mean"], spread([0.5])
    (0.6, {'mean': 0.5, 'std': None})
    """
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "std": deviation}


def main_key(result: Mapping[str, Any]) -> str:
    """Return under which key the main measure of a stored result stands.

    Results of earlier versions know of classes only.

    >>> main_key({"metric": {"name": "micro F1", "key": "micro_f1"}}), main_key({})
    ('micro_f1', 'balanced')
    """
    return str(result.get("metric", {}).get("key", "balanced"))


def main_name(result: Mapping[str, Any]) -> str:
    """Return what the main measure of a stored result is called.

    >>> main_name({"metric": {"name": "micro F1", "key": "micro_f1"}}), main_name({})
    ('micro F1', 'accuracy')
    """
    return str(result.get("metric", {}).get("name", "accuracy"))


def measured(result: dict[str, Any]) -> dict[str, Any]:
    """Return a stored result without deviations of a single repeat, which were once stored as 0.

    >>> measured({"accuracy_matrix": [{}], "average_accuracy": {"mean": 0.5, "std": 0.0}})
    {'accuracy_matrix': [{}], 'average_accuracy': {'mean': 0.5, 'std': None}}
    """
    if len(result.get("accuracy_matrix", ())) != 1:
        return result
    return result | {key: _without(result[key]) for key in SPREADS if key in result}


def _without(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: None if key == "std" else _without(part) for key, part in value.items()}
