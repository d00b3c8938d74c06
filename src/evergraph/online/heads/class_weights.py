"""The weights of nodes on landmarks, by their class."""

from __future__ import annotations

import torch
from torch import Tensor


class ClassWeights:
    """The weight of every class: about one over its size, so that all shape A of a view alike.

    Set once, when landmarks are chosen or the class is first counted, since a node is subtracted
    with the weight with which it was added. A power of two, so that a weight tells little about a
    node that was forgotten since.

    Attributes:
        values_: 0 for a class without nodes.  float32 [classes]

    >>> weights = ClassWeights(torch.tensor([5, 1]))
    >>> weights.of(torch.tensor([0, 1]))  # 5 is nearest to 4
    tensor([0.2500, 1.0000])
    >>> weights.of(torch.tensor([0, 2, 2]))  # with a new class
    tensor([0.2500, 0.5000, 0.5000])
    >>> weights.forget(torch.tensor([3, 1, 0]))  # the new class has no nodes left
    >>> weights.values_
    tensor([0.2500, 1.0000, 0.0000])
    """

    def __init__(self, sizes: Tensor) -> None:
        self.values_ = torch.zeros(0)
        self._add_classes(sizes)

    def of(self, labels: Tensor) -> Tensor:
        """Return the weights of nodes with these classes.  int64 [n] -> float32 [n]"""
        self._add_classes(torch.bincount(labels))
        return self.values_[labels]

    def _add_classes(self, sizes: Tensor) -> None:
        """Set the weights of classes that have nodes and no weight.  sizes: int64 [classes]"""
        classes = max(len(sizes), len(self.values_))
        sizes = torch.nn.functional.pad(sizes, (0, classes - len(sizes)))
        values = torch.nn.functional.pad(self.values_, (0, classes - len(self.values_)))
        fresh = sizes.log2().round().neg().exp2().where(sizes > 0, 0.0)
        self.values_ = values.where(values > 0, fresh)

    def forget(self, counts: Tensor) -> None:
        """Clear the weights of classes that have no nodes left.  counts: int64 [classes]"""
        empty = (counts == 0).nonzero().flatten()
        self.values_[empty[empty < len(self.values_)]] = 0.0
