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
