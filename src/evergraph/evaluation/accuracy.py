"""How many answers are right."""

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
