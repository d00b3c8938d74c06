"""Classes that a learner gives itself to nodes whose class it is not told."""

from __future__ import annotations

import torch
from torch import Tensor


def confident(scores: Tensor, classes: Tensor, *, least: float) -> tuple[Tensor, Tensor]:
    """Return which rows are surely of one of some classes, and of which.

    Row i with p = softmax(s_i) is taken where max p >= ``least`` and argmax p is among ``classes``:
    a node that looks like a class of another task says nothing about this one's.

    scores: [rows, all classes], -inf where a class may not be given; classes: int64 [some]
    -> int64 [taken], int64 [taken]

    Odds of 9 to 1 are 0.9, of 4 to 1 are 0.8; the last row is surely of a class not asked for.

    >>> odds = torch.tensor([[9.0, 1.0, 0.0], [1.0, 4.0, 0.0], [0.0, 0.0, 1.0]])
    >>> confident(odds.log(), torch.tensor([0, 1]), least=0.85)
    (tensor([0]), tensor([0]))
    """
    surest, given = scores.softmax(1).max(1)
    taken = (surest >= least) & torch.isin(given, classes.to(given.device))
    rows = taken.nonzero().flatten()
    return rows, given[rows]
