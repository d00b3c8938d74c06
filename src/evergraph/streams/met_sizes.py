"""How many nodes of each class have arrived by each step."""

from __future__ import annotations

import torch
from torch import Tensor


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
        here = (owner >= 0) & (labels >= 0)
        classes = int(labels.max()) + 1
        cells = owner[here].long() * classes + labels[here]
        counts = torch.bincount(cells, minlength=steps * classes).view(steps, classes)
        self._sizes = counts.cumsum(0).int()  # [steps, classes]

    def upto(self, step: int) -> dict[int, int]:
        """Return the size of every class of which a node has arrived."""
        return {c: size for c, size in enumerate(self._sizes[step].tolist()) if size}
