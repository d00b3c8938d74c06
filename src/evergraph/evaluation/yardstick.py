"""Names of measures, and the spread of repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

NAMES = {
    "balanced": "accuracy, class-balanced", "plain": "accuracy", "micro_f1": "micro F1",
    "macro_f1": "macro F1", "average_precision": "average precision", "r2": "R2",
    "mae": "mean absolute error",
}  # fmt: skip
SPREADS = (
    "average_accuracy", "average_forgetting", "anytime_accuracy", "area_under_curve", "measures",
)  # fmt: skip


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean and the sample standard deviation, None for a single value."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "std": deviation}


def main_key(result: Mapping[str, Any]) -> str:
    """Return the key of the main measure of a stored result; earlier versions had classes only.

    >>> main_key({"metric": {"name": "micro F1", "key": "micro_f1"}}), main_key({})
    ('micro_f1', 'balanced')
    """
    return str(result.get("metric", {}).get("key", "balanced"))


def measured(result: dict[str, Any]) -> dict[str, Any]:
    """Return a stored result without deviations of a single repeat, formerly stored as 0.

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
