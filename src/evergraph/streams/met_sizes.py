"""How many nodes of each class have arrived by each step."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 1 << 24  # nodes counted at a time, of which there may be 10^8


class MetSizes:
    """Answers how large each class is once a step has arrived, whatever the number of nodes.

    Counted once for all steps: a stream of many small ones would count the same nodes over and
    over.

    Args:
        owner: the step of each node, -1 for nodes of none.  integer [nodes]
        labels: their classes, -1 for none.  integer [nodes]
        steps: how many.

    >>> MetSizes(torch.tensor([0, 1, 1, -1]), torch.tensor([0, 0, 2, 1]), steps=2).upto(1)
    {0: 2, 2: 1}
    """

    def __init__(self, owner: Tensor, labels: Tensor, *, steps: int) -> None:
        classes = int(labels.max()) + 1
        counts = torch.zeros(steps * classes, dtype=torch.int64)
        for steps_of, classes_of in zip(owner.split(BLOCK), labels.split(BLOCK), strict=True):
            here = (steps_of >= 0) & (classes_of >= 0)
            cells = steps_of[here].long() * classes + classes_of[here]
            counts += torch.bincount(cells, minlength=len(counts))
        self._sizes = counts.view(steps, classes).cumsum(0).int()  # [steps, classes]

    def upto(self, step: int) -> dict[int, int]:
        """Return the size of every class of which a node has arrived."""
        return {c: size for c, size in enumerate(self._sizes[step].tolist()) if size}
