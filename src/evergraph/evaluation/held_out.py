"""How good predictions for held-out nodes are: overall, class by class, and as probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

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


def score_classes(names: Sequence[Label], found: Tensor, right: Sequence[Any]) -> HeldOutScores:
    """Return the scores of class probabilities; a true class that has none counts as missed.

    names: of the columns; found: probabilities [nodes, classes]; right: the true classes.

    One of two nodes of a is found, and the one of c, a class that is not known, cannot be.

    >>> given = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]])
    >>> scores = score_classes(["a", "b"], given, ["a", "a", "c"])
    >>> scores.measures["balanced accuracy"], scores.confusion  # of a, c and b
    (0.25, ((1, 0, 1), (0, 0, 1), (0, 0, 0)))
    """
    numbers = {name: number for number, name in enumerate(dict.fromkeys((*names, *right)))}
    labels = torch.tensor([numbers[name] for name in right], dtype=torch.int64)
    confidence, predicted = found.max(1)
    same = predicted == labels
    table = torch.bincount(labels * len(numbers) + predicted, minlength=len(numbers) ** 2)
    table = table.view(len(numbers), -1)
    nodes, given = table.sum(1), table.sum(0)
    order = [i for i in nodes.argsort(descending=True, stable=True).tolist() if nodes[i] + given[i]]
    every = [*numbers]
    return HeldOutScores(
        nodes=len(labels),
        measures={
            "accuracy": plain_accuracy(predicted, labels),
            "balanced accuracy": balanced_accuracy(predicted, labels),
            "calibration error": expected_calibration_error(confidence, same),
        },
        classes=tuple(
            ClassScore(every[i], int(nodes[i]), int(given[i]), int(table[i, i])) for i in order
        ),
        confusion=tuple(map(tuple, table[order][:, order].tolist())),
        calibration=confidence_bins(confidence, same),
    )


def confidence_bins(confidence: Tensor, right: Tensor) -> tuple[ConfidenceBin, ...]:
    """Return predictions by confidence, in bins of equal width.  [n], bool [n]

    >>> [(b.nodes, b.accuracy) for b in
    ...  confidence_bins(torch.tensor([0.95, 0.92, 0.5]), torch.tensor([True, False, True]))]
    [(1, 1.0), (2, 0.5)]
    """
    owner = (confidence.double() * CONFIDENCE_BINS).ceil().long().clamp(1, CONFIDENCE_BINS)
    bins = []
    for number in owner.unique().tolist():
        inside = owner == number
        shares = (part[inside].double().mean() for part in (confidence, right))
        bins.append(ConfidenceBin(int(inside.sum()), *map(float, shares)))
    return tuple(bins)


def score_labels(names: Sequence[Label], found: Tensor, right: Sequence[Any]) -> HeldOutScores:
    """Return the scores of label probabilities.

    names: of the columns; found: probabilities [nodes, labels]; right: the labels of each node.

    >>> scores = score_labels(["a", "b"], torch.tensor([[0.9, 0.8], [0.2, 0.6]]), [["a"], ["b"]])
    >>> [(each.name, each.nodes, each.predicted, each.right) for each in scores.classes]
    [('a', 1, 1, 1), ('b', 1, 2, 1)]
    """
    every = dict.fromkeys((*names, *(label for labels in right for label in labels)))
    columns = {label: column for column, label in enumerate(every)}
    there = Labels().matrix(right, columns)
    given = torch.nn.functional.pad(found, (0, len(columns) - found.shape[1]))
    chosen = given > THRESHOLD
    counts = zip(
        columns,
        there.sum(0).int().tolist(),
        chosen.sum(0).tolist(),
        (chosen & (there == 1)).sum(0).tolist(),
        strict=True,
    )
    precision = average_precision(given, there)
    return HeldOutScores(
        nodes=len(there),
        measures={
            "micro F1": micro_f1(given, there),
            "macro F1": macro_f1(given, there),
            "average precision": None if math.isnan(precision) else precision,
        },
        classes=tuple(sorted((ClassScore(*each) for each in counts), key=lambda c: -c.nodes)),
    )


def score_numbers(names: Sequence[Label], found: Tensor, right: Sequence[Any]) -> HeldOutScores:
    """Return the scores of numbers.

    found: numbers [nodes, 1]; right: the true numbers.

    >>> scores = score_numbers((), torch.tensor([[1.0], [4.0]]), [1.0, 3.0])
    >>> {name: round(value, 3) for name, value in scores.measures.items()}
    {'R2': 0.5, 'mean absolute error': 0.5, 'root mean squared error': 0.707}
    """
    there = torch.tensor(right, dtype=torch.float64)[:, None]
    return HeldOutScores(
        nodes=len(there),
        measures={
            "R2": r2(found, there),
            "mean absolute error": mean_absolute_error(found, there),
            "root mean squared error": float((found.double() - there).square().mean().sqrt()),
        },
        values=tuple(zip(there[:, 0].tolist(), found[:, 0].tolist(), strict=True)),
    )


def score(
    target: Target, names: Sequence[Label], found: Tensor, right: Sequence[Any]
) -> HeldOutScores:
    """Return the scores of predictions for a kind of targets.

    names: of classes or labels; found: their probabilities, or numbers [nodes, columns]; right: the
    true targets.
    """
    if target.is_class:
        return score_classes(names, found, right)
    return (score_labels if target.is_named else score_numbers)(names, found, right)
