"""The state of a learner as written to a snapshot: parameters, and arrays in pieces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evergraph.core.resolver import Resolver

PIECE = 1 << 24  # bytes of a piece at most, unless a single row has more


@dataclass(frozen=True, eq=False)
class Pieces:
    """An array that is produced piece by piece, so that it is never in memory as a whole.

    >>> halves = Pieces((4,), torch.int64, lambda: iter(torch.arange(4).split(2)))
    >>> halves.whole()
    tensor([0, 1, 2, 3])
    """

    shape: tuple[int, ...]  # of the whole
    dtype: torch.dtype  # of its values
    # yields its rows in order, a piece at a time; may be called again
    make: Callable[[], Iterator[Tensor]]

    def __iter__(self) -> Iterator[Tensor]:
        return self.make()

    def whole(self) -> Tensor:
        """Return a copy of the whole array."""
        found = torch.empty(self.shape, dtype=self.dtype)
        start = 0
        for piece in self:
            found[start : start + len(piece)] = piece
            start += len(piece)
        return found


def pieces_of(part: Any) -> Mapping[str, Tensor | Pieces]:
    """Return the state of a component by name, in pieces where it can."""
    made: Mapping[str, Tensor | Pieces] = part.pieces() if hasattr(part, "pieces") else part.state()
    return made


def whole(pieces: Mapping[str, Tensor | Pieces]) -> dict[str, Tensor]:
    """Return arrays by name, with pieces put together."""
    return {
        name: value.whole() if isinstance(value, Pieces) else value
        for name, value in pieces.items()
    }


def split(value: Tensor | Pieces, some: Tensor | None = None) -> Iterator[Tensor]:
    """Yield an array in order, contiguous, at most about ``PIECE`` bytes at a time.

    some: indices of the rows to yield; all by default.
    """
    if isinstance(value, Pieces):
        yield from value
        return
    rows = value.detach().reshape(1) if value.dim() == 0 else value.detach()
    step = max(PIECE // max(rows[:1].nbytes, 1), 1)
    for start in range(0, len(rows) if some is None else len(some), step):
        part = slice(start, start + step)
        yield rows[part if some is None else some[part]].cpu().contiguous()


# Parameters that a live learner cannot choose, see ``LiveEmbeddings``; no folder names them.
FIXED = ("dtype",)


def described(resolver: Resolver[Any], component: Any) -> dict[str, Any]:
    """Return a component's name and its parameters, as JSON can hold them."""
    names = [name for name in resolver.parameters(component.name) if name not in FIXED]
    values = {"name": component.name} | {name: getattr(component, name) for name in names}
    kept: dict[str, Any] = json.loads(json.dumps(values))
    return kept
