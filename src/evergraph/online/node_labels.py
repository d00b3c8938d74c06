"""The classes of the nodes of a growing graph, as far as they are known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from evergraph.graphs import UNLABELLED
from evergraph.online.graph.growing_array import FormerRows, FrozenRows, GrowingArray


class NodeLabels:
    """The class of every position, ``UNLABELLED`` (-1) where it is not known.

    Attributes:
        counts_: how many nodes each class has.  int64 [classes]

    >>> labels = NodeLabels()
    >>> labels.extend(3)
    >>> labels.put(torch.tensor([2, 0]), torch.tensor([1, 1]))
    >>> labels.of(torch.tensor([0, 1, 2])), labels.counts_
    (tensor([ 1, -1,  1]), tensor([0, 2]))
    """

    def __init__(self) -> None:
        self._numbers = GrowingArray(dtype=np.int64)
        self._former = FormerRows()
        self.counts_ = torch.zeros(0, dtype=torch.int64)

    def extend(self, nodes: int) -> None:
        """Add nodes whose class is not known."""
        self._numbers.extend(nodes)
        self._numbers.array[len(self._numbers) - nodes :] = UNLABELLED

    def of(self, positions: Tensor) -> Tensor:
        """Return the classes of some nodes.  int64 [n] -> int64 [n]"""
        return self._numbers.tensor[positions]

    @property
    def every(self) -> Tensor:
        """The classes of all positions.  int64 [positions], a view until there are more"""
        return self._numbers.tensor

    def frozen(self) -> FrozenRows:
        """Return the classes as they are now, for those who read them while they change."""
        return FrozenRows(self._numbers, self._former.now, len(self._numbers))

    def put(self, positions: Tensor, labels: Tensor) -> None:
        """Set the classes of some nodes, each named once; ``UNLABELLED`` takes one away."""
        if not len(positions):
            return
        old = self.of(positions)
        width = max(len(self.counts_), int(labels.max()) + 1)
        more, fewer = (
            torch.bincount(part[part != UNLABELLED], minlength=width) for part in (labels, old)
        )
        known = torch.zeros(width, dtype=torch.int64)
        known[: len(self.counts_)] = self.counts_
        self.counts_ = known + more - fewer
        self._former.note(positions.numpy(), old.numpy())
        self._numbers.tensor[positions] = labels

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield the arrays that are as long as the graph."""
        yield self._numbers

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name."""
        return {"numbers": self._numbers.state(), "counts": self.counts_}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self._numbers.restore(state["numbers"])
        self.counts_ = state["counts"]
