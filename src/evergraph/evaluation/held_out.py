"""How good predictions for held-out nodes are: overall, class by class, and as probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from evergraph.core.targets import Label, Labels, Target
from evergraph.core.targets.labels import THRESHOLD, average_precision, macro_f1, micro_f1
from evergraph.core.targets.numbers import mean_absolute_error, r2
from evergraph.core.targets.one_class import balanced_accuracy, plain_accuracy
from evergraph.evaluation.evaluator import expected_calibration_error

CONFIDENCE_BINS = 10  # of confidence


@dataclass(frozen=True)
class ClassScore:
    """How one class, or one label, is predicted; None if a share is not defined."""

    name: Label
    nodes: int  # that have it
    predicted: int  # that are given it
    right: int  # both

    @property
    def recall(self) -> float | None:
        """The share of its nodes that are given it."""
        return self.right / self.nodes if self.nodes else None

    @property
    def precision(self) -> float | None:
        """The share of nodes given it that have it."""
        return self.right / self.predicted if self.predicted else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of both: 2 right / (nodes + predicted)."""
        total = self.nodes + self.predicted
        return 2 * self.right / total if total else None


@dataclass(frozen=True)
class ConfidenceBin:
    """Predictions of similar confidence: how sure they are, and how often right."""

    nodes: int
    confidence: float  # their mean
    accuracy: float


@dataclass(frozen=True)
class HeldOutScores:
    """Scores of predictions.

    Attributes:
        nodes: that were predicted.
        measures: by name; None if one is not defined.
        classes: the classes or labels, the most frequent first; none for numbers.
        confusion: nodes of each of ``classes`` (rows) by the class that they are given (columns);
            empty unless a node has one class.
        calibration: bins of confidence that hold predictions, the least sure first; likewise.
        values: true and predicted numbers; empty for other targets.
    """

    nodes: int
    measures: Mapping[str, float | None]
    classes: tuple[ClassScore, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()
    calibration: tuple[ConfidenceBin, ...] = ()
    values: tuple[tuple[float, float], ...] = ()


def score_classes(
    names: Sequence[Label], probabilities: Tensor, true: Sequence[Any]
) -> HeldOutScores:
    """Return the scores of class probabilities; a true class that has none counts as missed.

    names: of the columns; probabilities: [nodes, classes]; true: the true classes.

    One of two nodes of a is found, and the one of c, a class that is not known, cannot be.

    >>> probabilities = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]])
    >>> scores = score_classes(["a", "b"], probabilities, ["a", "a", "c"])
    >>> scores.measures["balanced accuracy"], scores.confusion  # of a, c and b
    (0.25, ((1, 0, 1), (0, 0, 1), (0, 0, 0)))
    """
    classes = list(dict.fromkeys((*names, *true)))
    number_of = {name: number for number, name in enumerate(classes)}
    labels = torch.tensor([number_of[name] for name in true], dtype=torch.int64)
    confidence, predicted = probabilities.max(1)
    right = predicted == labels
    table = torch.bincount(labels * len(classes) + predicted, minlength=len(classes) ** 2)
    table = table.view(len(classes), -1)
    nodes_true, nodes_predicted = table.sum(1), table.sum(0)
    by_size = nodes_true.argsort(descending=True, stable=True).tolist()
    order = [i for i in by_size if nodes_true[i] + nodes_predicted[i]]
    return HeldOutScores(
        nodes=len(labels),
        measures={
            "accuracy": plain_accuracy(predicted, labels),
            "balanced accuracy": balanced_accuracy(predicted, labels),
            "calibration error": expected_calibration_error(confidence, right),
        },
        classes=tuple(
            ClassScore(classes[i], int(nodes_true[i]), int(nodes_predicted[i]), int(table[i, i]))
            for i in order
        ),
        confusion=tuple(map(tuple, table[order][:, order].tolist())),
        calibration=confidence_bins(confidence, right),
    )


def confidence_bins(confidence: Tensor, right: Tensor) -> tuple[ConfidenceBin, ...]:
    """Return predictions by confidence, in bins of equal width.  [n], bool [n]

    >>> [(b.nodes, b.accuracy) for b in
    ...  confidence_bins(torch.tensor([0.95, 0.92, 0.5]), torch.tensor([True, False, True]))]
    [(1, 1.0), (2, 0.5)]
    """
    bin_of_node = (confidence.double() * CONFIDENCE_BINS).ceil().long().clamp(1, CONFIDENCE_BINS)
    bins = []
    for number in bin_of_node.unique().tolist():
        inside = bin_of_node == number
        bins.append(
            ConfidenceBin(
                nodes=int(inside.sum()),
                confidence=float(confidence[inside].double().mean()),
                accuracy=float(right[inside].double().mean()),
            )
        )
    return tuple(bins)


def score_labels(
    names: Sequence[Label], probabilities: Tensor, true: Sequence[Any]
) -> HeldOutScores:
    """Return the scores of label probabilities.

    names: of the columns; probabilities: [nodes, labels]; true: the labels of each node.

    >>> scores = score_labels(["a", "b"], torch.tensor([[0.9, 0.8], [0.2, 0.6]]), [["a"], ["b"]])
    >>> [(label.name, label.nodes, label.predicted, label.right) for label in scores.classes]
    [('a', 1, 1, 1), ('b', 1, 2, 1)]
    """
    labels = dict.fromkeys((*names, *chain.from_iterable(true)))
    columns = {label: column for column, label in enumerate(labels)}
    targets = Labels().matrix(true, columns)
    # A label that has no column is never predicted.
    probabilities = pad(probabilities, (0, len(columns) - probabilities.shape[1]))
    predicted = probabilities > THRESHOLD
    counts = zip(
        columns,
        targets.sum(0).int().tolist(),
        predicted.sum(0).tolist(),
        (predicted & (targets == 1)).sum(0).tolist(),
        strict=True,
    )
    scores = [ClassScore(*counts_of_label) for counts_of_label in counts]
    precision = average_precision(probabilities, targets)
    return HeldOutScores(
        nodes=len(targets),
        measures={
            "micro F1": micro_f1(probabilities, targets),
            "macro F1": macro_f1(probabilities, targets),
            "average precision": None if math.isnan(precision) else precision,
        },
        classes=tuple(sorted(scores, key=lambda score: -score.nodes)),
    )


def score_numbers(names: Sequence[Label], predicted: Tensor, true: Sequence[Any]) -> HeldOutScores:
    """Return the scores of numbers.

    predicted: numbers [nodes, 1]; true: the true numbers.

    >>> scores = score_numbers((), torch.tensor([[1.0], [4.0]]), [1.0, 3.0])
    >>> {name: round(value, 3) for name, value in scores.measures.items()}
    {'R2': 0.5, 'mean absolute error': 0.5, 'root mean squared error': 0.707}
    """
    targets = torch.tensor(true, dtype=torch.float64)[:, None]
    return HeldOutScores(
        nodes=len(targets),
        measures={
            "R2": r2(predicted, targets),
            "mean absolute error": mean_absolute_error(predicted, targets),
            "root mean squared error": float((predicted.double() - targets).square().mean().sqrt()),
        },
        values=tuple(zip(targets[:, 0].tolist(), predicted[:, 0].tolist(), strict=True)),
    )


def score(
    target: Target, names: Sequence[Label], predicted: Tensor, true: Sequence[Any]
) -> HeldOutScores:
    """Return the scores of predictions for a kind of targets.

    names: of classes or labels; predicted: their probabilities, or numbers [nodes, columns]; true:
    the true targets.
    """
    if target.is_class:
        return score_classes(names, predicted, true)
    if target.is_named:
        return score_labels(names, predicted, true)
    return score_numbers(names, predicted, true)
