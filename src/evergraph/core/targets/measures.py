"""Measures of predictions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Metric = Callable[[Tensor, Tensor], float]
THRESHOLD = 0.5  # a node gets the labels with a higher probability


def plain_accuracy(predicted: Tensor, labels: Tensor) -> float:
    """Return the share of correctly classified nodes.  int64 [n], int64 [n] -> 0..1"""
    return float((predicted == labels).double().mean())


def balanced_accuracy(predicted: Tensor, labels: Tensor) -> float:
    """Return the mean over classes of each class's accuracy (the paper's accuracy).

    >>> balanced_accuracy(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 0, 0, 1]))
    0.5
    >>> plain_accuracy(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 0, 0, 1]))
    0.75
    """
    counts = torch.bincount(labels)
    right = torch.bincount(labels, weights=(predicted == labels).double())
    return float((right / counts)[counts > 0].mean())


def micro_f1(predicted: Tensor, right: Tensor) -> float:
    """Return F1 = 2 tp / (2 tp + fp + fn) over all labels of all nodes together.

    predicted: probabilities; a label is predicted above 0.5.  [nodes, labels]. It is 1 if there is
    no label to find and none is predicted. With one label per node, and one predicted, it is the
    accuracy.

    Of two true labels one is found, and one label is predicted wrongly: 2 / (2 + 1 + 1).

    >>> micro_f1(torch.tensor([[0.9, 0.2], [0.7, 0.1]]), torch.tensor([[1., 1.], [0., 0.]]))
    0.5
    """
    hits, wrong = (each.sum() for each in _counted(predicted, right))
    total = 2 * hits + wrong
    return float(2 * hits / total) if total else 1.0


def macro_f1(predicted: Tensor, right: Tensor) -> float:
    """Return the mean of each label's own F1, see ``micro_f1``: rare labels have equal weight.

    A label that no node has and that is never predicted is left out; 1 if all are.

    >>> macro_f1(torch.tensor([[0.9, 0.2], [0.7, 0.1]]), torch.tensor([[1., 1.], [0., 0.]]))
    0.3333333333333333
    """
    hits, wrong = _counted(predicted, right)
    total = 2 * hits + wrong
    met = total > 0
    return float((2 * hits / total)[met].mean()) if bool(met.any()) else 1.0


def _counted(predicted: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return, per label, the true positives, and the false positives plus false negatives."""
    given, there, known = predicted > THRESHOLD, right == 1, ~right.isnan()
    hits = (given & there).sum(0).double()
    wrong = ((given != there) & known).sum(0).double()
    return hits, wrong


def average_precision(predicted: Tensor, right: Tensor) -> float:
    """Return the mean over labels of AP = Σ_k (R_k - R_k-1) P_k, as in scikit-learn.

    P_k and R_k are precision and recall of the nodes whose probability is at least the k-th
    highest; no threshold is needed. Labels that all nodes have, or none, are left out; NaN if all
    are.

    Ranks 1 and 3 of three are right: 1/2 · 1 + 1/2 · 2/3.

    >>> given, right = torch.tensor([[0.9], [0.5], [0.1]]), torch.tensor([[1.], [0.], [1.]])
    >>> round(average_precision(given, right), 4)
    0.8333
    """
    found = []
    for place, known in enumerate((~right.isnan()).t()):
        scores, there = predicted[known, place], right[known, place]
        if len(there.unique()) != 2:
            continue
        order = scores.argsort(descending=True, stable=True)
        scores, hits = scores[order], there[order].double().cumsum(0)
        # Nodes of equal score are taken together: the last of them has their counts.
        last = torch.cat([scores[1:] != scores[:-1], torch.tensor([True])])
        hits, taken = hits[last], (torch.arange(len(scores)) + 1)[last].double()
        gained = hits.diff(prepend=hits.new_zeros(1)) / hits[-1]
        found.append(float((gained * hits / taken).sum()))
    return sum(found) / len(found) if found else float("nan")


def r2(predicted: Tensor, right: Tensor) -> float:
    """Return the mean over targets of R² = 1 - Σ (y - ŷ)² / Σ (y - ȳ)².

    1 is perfect, 0 is as good as the mean, below 0 is worse. For a target that is the same for all
    nodes it is 1 if predicted exactly and 0 otherwise, as in scikit-learn; a target without known
    values is left out.

    >>> r2(torch.tensor([[1.], [2.], [3.]]), torch.tensor([[1.], [2.], [6.]]))  # 1 - 9 / 14
    0.3571428571428571
    """
    known = ~right.isnan()
    right = right.double()
    error = (predicted.double() - right).square().nansum(0)
    spread = (right - right.nanmean(0)).square().nansum(0)
    share = torch.where(spread > 0, error / spread.clamp_min(1e-300), (error > 0).double())
    met = known.any(0)
    return float((1 - share)[met].mean()) if bool(met.any()) else 0.0


def mean_absolute_error(predicted: Tensor, right: Tensor) -> float:
    """Return the mean of |y - ŷ| over all known values, in their own units.

    >>> mean_absolute_error(torch.tensor([[1.], [2.]]), torch.tensor([[1.5], [float("nan")]]))
    0.5
    """
    return float((predicted.double() - right.double()).abs().nanmean())
