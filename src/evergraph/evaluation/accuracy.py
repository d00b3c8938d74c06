"""How many answers are right, and whether a learner knows how sure it may be."""

from __future__ import annotations

import torch
from torch import Tensor


def plain_accuracy(predicted: Tensor, labels: Tensor) -> float:
    """Return the share of nodes that got the right class.  int64 [n], int64 [n] -> 0..1"""
    return float((predicted == labels).float().mean())


def balanced_accuracy(predicted: Tensor, labels: Tensor) -> float:
    """Return the mean over classes of each class's share of right answers (the paper's accuracy).

    >>> balanced_accuracy(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 0, 0, 1]))
    0.5
    >>> plain_accuracy(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 0, 0, 1]))
    0.75
    """
    counts = torch.bincount(labels)
    right = torch.bincount(labels, weights=(predicted == labels).double())
    return float((right / counts)[counts > 0].mean())


BINS = 15


def expected_calibration_error(confidence: Tensor, right: Tensor, *, bins: int = BINS) -> float:
    """Return how far confidence and accuracy are apart (Guo et al., ICML 2017).

    ECE = Σ_b n_b/n · |accuracy_b - confidence_b| over bins of equal width in (0, 1], b holding the
    nodes whose confidence lies in ((b-1)/bins, b/bins]. Every node counts the same, as in the
    paper: unlike our accuracies it is not class-balanced. 0 where a learner that is 80 % sure is
    right in 80 of 100 cases; NaN where a confidence is.

    confidence: [nodes]; right: whether the answer is, bool [nodes] -> 0..1

    Two of three answers at 0.9 are right, and none of one at 0.5: 3/4 · 0.233 + 1/4 · 0.5.

    >>> sure = torch.tensor([0.9, 0.9, 0.9, 0.5])
    >>> round(expected_calibration_error(sure, torch.tensor([True, True, False, False])), 3)
    0.3
    """
    sure = confidence.double()
    edges = torch.arange(1, bins, dtype=torch.float64) / bins
    # Compared as they came: a float32 on an edge must not cross it for being widened.
    owner = torch.bucketize(confidence, edges.to(confidence.dtype))
    gap = torch.zeros(bins, dtype=torch.float64).index_add_(0, owner, right.double() - sure)
    return float(gap.abs().sum() / len(sure))
