"""What a learner says of nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.label_space import Kind

THRESHOLD = 0.5  # a node is given the labels that are more likely


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a learner says of some nodes, from one pass of its model, on the CPU.

    Attributes:
        classes: the most likely class, numbered in order of arrival.  int64 [nodes]
        confidence: the probability given to that class.  0..1 [nodes]
        novelty: larger is less like any class learned so far; any unit.  [nodes]
        values: where nodes have several labels, the probability of each, where they have numbers,
            these; None where they have classes. ``classes`` are then those of the largest value,
            ``confidence`` is that value, and ``novelty`` is not known (NaN).  [nodes, targets]
    """

    classes: Tensor
    confidence: Tensor
    novelty: Tensor
    values: Tensor | None = None


def likeliest(scores: Tensor, *, top: int = 1) -> tuple[Tensor, Tensor]:
    """Return the classes with the highest scores, and their probabilities: softmax over all.

    Of equal scores the class that came first wins.  [n, classes] -> int64 [n, top], [n, top]

    >>> import math, torch
    >>> likeliest(torch.tensor([[0.0, math.log(3), -math.inf]]))
    (tensor([[1]]), tensor([[0.7500]]))
    >>> likeliest(torch.zeros(1, 4), top=2)
    (tensor([[0, 1]]), tensor([[0.2500, 0.2500]]))
    """
    if top == 1:  # without a sort
        classes = scores.argmax(dim=1, keepdim=True)
    else:
        classes = scores.argsort(dim=1, descending=True, stable=True)[:, :top]
    return classes, scores.softmax(dim=1).gather(1, classes)


def target_values(scores: Tensor, kind: Kind) -> Tensor:
    """Return the probability of each label, or numbers as they are.  [n, targets] -> same"""
    return scores.sigmoid() if kind == "labels" else scores


def answered_values(scores: Tensor, kind: Kind) -> Predictions:
    """Return what a learner says of nodes with several labels or numbers.

    >>> answered_values(torch.tensor([[0.0, -9.0]]), "labels").classes
    tensor([0])
    """
    values = target_values(scores, kind).cpu()
    largest, classes = values.max(dim=1)
    return Predictions(classes, largest, torch.full_like(largest, torch.nan), values)
