"""What a learner says of nodes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a learner says of some nodes, from one pass of its model, on the CPU.

    Attributes:
        classes: the most likely class, numbered in order of arrival.  int64 [nodes]
        confidence: the probability given to that class.  0..1 [nodes]
        novelty: larger is less like any class learned so far; any unit.  [nodes]
    """

    classes: Tensor
    confidence: Tensor
    novelty: Tensor


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
