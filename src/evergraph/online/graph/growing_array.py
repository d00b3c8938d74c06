"""An array that grows at its end."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]


class GrowingArray:
    """Rows that are added at the end, at a cost that does not grow with how many there are.

    Room is doubled whenever it runs out: over its life a row is copied about once. Rows are zero
    when they come.

    Args:
        shape: of a row; none for single values.
        dtype: of the values.

    >>> ages = GrowingArray(dtype=np.int64)
    >>> ages.extend(2)
    >>> ages.array[1] = 7
    >>> ages.extend(1)
    >>> ages.array.tolist()
    [0, 7, 0]
    """

    def __init__(self, *shape: int, dtype: npt.DTypeLike = np.float32) -> None:
        self._room: Array = np.zeros((0, *shape), dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def array(self) -> Array:
        """The rows, in a view that is good until the array grows.  [length, *shape]"""
        return self._room[: self._length]

    @property
    def tensor(self) -> Tensor:
        """The same view as a tensor."""
        return torch.from_numpy(self.array)

    @property
    def nbytes(self) -> int:
        """How many bytes the rows take, the room for more left out."""
        return self.array.nbytes

    def extend(self, rows: int) -> None:
        """Add rows of zeros."""
        length = self._length + rows
        if length > len(self._room):
            room: Array = np.zeros((2 * length, *self._room.shape[1:]), self._room.dtype)
            room[: self._length] = self.array
            self._room = room
        self._length = length

    def state(self) -> Tensor:
        """Return a copy of the rows: what happens later does not show in it."""
        return self.tensor.clone()

    def restore(self, state: Tensor) -> None:
        """Take back what ``state`` returned."""
        assert state.shape[1:] == self._room.shape[1:]
        self._room = state.numpy().astype(self._room.dtype)  # a copy
        self._length = len(state)
