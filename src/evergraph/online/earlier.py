"""Rows as they were before a delta touched them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from evergraph.online.graph.growing_array import GrowingArray


class Earlier:
    """What rows were when they were first noted, until ``clear``.

    A node may move more than once in a delta; what learns from it needs to know only where it was
    before the first time.

    Args:
        dims: how long a row is.

    >>> earlier = Earlier(1)
    >>> earlier.note(torch.tensor([2]), torch.tensor([[5.]]))
    >>> earlier.note(torch.tensor([2]), torch.tensor([[6.]]))
    >>> earlier.of(torch.tensor([1, 2]), torch.tensor([[1.], [7.]])).flatten()
    tensor([1., 5.])
    """

    def __init__(self, dims: int) -> None:
        self.dims = dims
        self._places = GrowingArray(dtype=np.int64)  # in what was noted, from 1 on; 0: not noted
        self.clear()

    def clear(self) -> None:
        """Forget what was noted."""
        for nodes in getattr(self, "_nodes", []):
            self._places.array[nodes.numpy()] = 0
        self._nodes: list[Tensor] = []
        self._rows: list[Tensor] = []
        self._noted = 0

    def note(self, nodes: Tensor, rows: Tensor) -> None:
        """Keep the rows of nodes that are not noted yet.  int64 [n], each once; [n, dims]"""
        if not len(nodes):
            return
        self._places.extend(max(int(nodes.max()) + 1 - len(self._places), 0))
        fresh = self._places.tensor[nodes] == 0
        nodes = nodes[fresh]
        self._places.tensor[nodes] = torch.arange(len(nodes)) + self._noted + 1
        self._noted += len(nodes)
        self._nodes.append(nodes)
        self._rows.append(rows[fresh])

    def of(self, nodes: Tensor, now: Tensor) -> Tensor:
        """Return what rows were; now: what they are.  int64 [n]; [n, dims] -> [n, dims]"""
        if not self._noted or not len(nodes):
            return now
        known = nodes < len(self._places)
        places = torch.where(known, self._places.tensor[nodes.where(known, 0)], 0)
        noted = places > 0
        if bool(noted.all()):
            return torch.cat(self._rows)[places - 1]
        rows = now.clone()
        rows[noted] = torch.cat(self._rows)[places[noted] - 1]
        return rows
