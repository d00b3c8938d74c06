"""Arrays that are written down without being in memory as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evergraph.online.graph.array_storage import PagedTensor

PIECE = 1 << 24  # bytes that a piece has at the most, unless a row has more


@dataclass(frozen=True, eq=False)
class Pieces:
    """An array that is made a piece at a time, as often as it is asked for.

    Attributes:
        shape: of the whole.
        dtype: of its values.
        make: yields its rows in order, some at a time.

    >>> halves = Pieces((4,), torch.int64, lambda: iter(torch.arange(4).split(2)))
    >>> halves.whole()
    tensor([0, 1, 2, 3])
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    make: Callable[[], Iterator[Tensor]]

    def __iter__(self) -> Iterator[Tensor]:
        return self.make()

    def whole(self) -> Tensor:
        """Return the array, a copy."""
        found = torch.empty(self.shape, dtype=self.dtype)
        start = 0
        for piece in self:
            found[start : start + len(piece)] = piece
            start += len(piece)
        return found


def pieces_of(part: Any) -> Mapping[str, Tensor | Pieces]:
    """Return a part's state by name, what it can make in pieces as such."""
    made: Mapping[str, Tensor | Pieces] = part.pieces() if hasattr(part, "pieces") else part.state()
    return made


def whole(pieces: Mapping[str, Tensor | Pieces]) -> dict[str, Tensor]:
    """Return arrays by name, those in pieces put together.

    >>> whole({"one": Pieces((1,), torch.float32, lambda: iter([torch.ones(1)]))})
    {'one': tensor([1.])}
    """
    return {
        name: value.whole() if isinstance(value, Pieces) else value
        for name, value in pieces.items()
    }


def split(value: Tensor | Pieces) -> Iterator[Tensor]:
    """Yield an array in order, contiguous, at most about ``PIECE`` bytes at a time."""
    if isinstance(value, Pieces):
        yield from value
        return
    rows = value.detach().reshape(1) if value.dim() == 0 else value.detach()
    step = max(PIECE // max(rows[:1].nbytes, 1), 1)
    for start in range(0, len(rows), step):
        yield rows[start : start + step].cpu().contiguous()
        if isinstance(value, PagedTensor):
            value.within.tidy()
