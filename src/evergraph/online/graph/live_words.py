"""The own words of every node of a growing graph."""

from __future__ import annotations

from torch import Tensor

from evergraph.online.graph.growing_array import GrowingArray, KeptArrays, StoredPart
from evergraph.online.graph.growing_graph import GraphChange


class LiveWords(KeptArrays):
    """The words of every node as they were given, see ``packed_words``.

    >>> import torch
    >>> words = LiveWords(2)
    >>> words.add(torch.tensor([[1.0, 7.0]]))
    >>> words.renew(torch.tensor([0]), torch.tensor([[1.0, 8.0]]))
    tensor([0])
    >>> words.of(torch.tensor([0]))
    tensor([[1., 8.]])
    """

    def __init__(self, width: int) -> None:
        self.dims = width
        self._rows = GrowingArray(width)
        self.kept = {"rows": self._rows}

    def add(self, rows: Tensor) -> None:
        """Add nodes.  float32 [new, width]"""
        self._rows.extend(len(rows))
        self._rows.tensor[len(self._rows) - len(rows) :] = rows

    def renew(self, nodes: Tensor, rows: Tensor) -> Tensor:
        """Replace the words of nodes; return those whose words differ.  [n], [n, width]"""
        former = self._rows.write(nodes, rows)
        return nodes[(former != rows).any(1)]

    def follow(self, change: GraphChange) -> None:
        """Erase the words of removed nodes."""
        self._rows.write(change.removed, 0)

    def of(self, nodes: Tensor) -> Tensor:
        """Return the words of some nodes.  int64 [n] -> float32 [n, width]"""
        return self._rows.tensor[nodes]

    def stored(self) -> list[StoredPart]:
        """Return all words without copying."""
        return [StoredPart(self._rows.array, given=True)]
