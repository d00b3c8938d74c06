"""What answers are measured by: the one place that says what each measure is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from evergraph.core.label_space import Kind
from evergraph.evaluation.accuracy import balanced_accuracy, plain_accuracy
from evergraph.evaluation.target_metrics import (
    average_precision,
    macro_f1,
    mean_absolute_error,
    micro_f1,
    r2,
)

Metric = Callable[[Tensor, Tensor], float]


@dataclass(frozen=True)
class Yardstick:
    """The measures of one kind of answers.

    Attributes:
        name: what the main one is called, such as ``accuracy``.
        main: its key, under which matrices and averages of it stand.
        rows: those measured on every task, by key; larger is better.
        beside: those measured on all nodes together, by key.
    """

    name: str
    main: str
    rows: Mapping[str, Metric]
    beside: Mapping[str, Metric]


YARDSTICKS: Mapping[Kind, Yardstick] = {
    "class": Yardstick(
        "accuracy", "balanced", {"balanced": balanced_accuracy, "plain": plain_accuracy}, {}
    ),
    "labels": Yardstick(
        "micro F1",
        "micro_f1",
        {"micro_f1": micro_f1, "macro_f1": macro_f1},
        {"average_precision": average_precision},
    ),
    "numbers": Yardstick("R2", "r2", {"r2": r2}, {"mae": mean_absolute_error}),
}
NAMES = {
    "balanced": "accuracy, class-balanced",
    "plain": "accuracy",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "average_precision": "average precision",
    "r2": "R2",
    "mae": "mean absolute error",
}
BESIDE: tuple[str, ...] = tuple(name for each in YARDSTICKS.values() for name in each.beside)
