"""Names of measures, and the spread of repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

NAMES = {
    "balanced": "accuracy, class-balanced",
    "plain": "accuracy",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "average_precision": "average precision",
    "r2": "R2",
    "mae": "mean absolute error",
}


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean and the sample standard deviation, None for a single value."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "std": deviation}


def main_key(result: Mapping[str, Any]) -> str:
    """Return the key of the main measure of a stored result.

    >>> main_key({"metric": {"name": "micro F1", "key": "micro_f1"}})
    'micro_f1'
    """
    return str(result["metric"]["key"])
