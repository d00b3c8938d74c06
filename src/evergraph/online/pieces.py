"""The state of a learner as written to a snapshot: parameters, and arrays in pieces.

Positions are never reused (see ``GrowingGraph``), so a learner whose nodes come and go holds empty
rows for all nodes it ever had. Since a snapshot holds the complete state, these rows are left out
there and positions are renumbered (``Packing``). Nodes keep their order; so sums that run in the
order of positions give the same bits, and the restored learner is the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from evergraph.core.resolver import Resolver
from evergraph.online.array_storage import PagedTensor

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
        if isinstance(value, PagedTensor):  # mapped from a file: pages may be released again
            value.within.tidy()


Arrays = dict[str, Tensor | Pieces]

_LISTS = r"(graph|relations\.\d+\.(along|against))"
# How to pack the arrays of a snapshot, by name. Every array must be listed: of an unknown one it is
# not known whether it has a row for every position.
_ROWS = re.compile(
    r"graph\.(features|alive)|(embeddings|codes)\..+|held\.lots|labels\.numbers"
    r"|ids\.(kinds|lengths)|relations\.(typed|sent|near|vectors)"
)
_POINTERS, _INDICES = re.compile(rf"{_LISTS}\.indptr"), re.compile(rf"{_LISTS}\.indices")
_UNPLACED = re.compile(
    rf"{_LISTS}\.weights|labels\.counts|held\.learned|ids\.bytes|relations\.(names|types)\..+"
    r"|(classes|solving|wear|prequential|alarms|head|counted)\..+"
)


@dataclass(frozen=True, eq=False)
class Packing:
    """A renumbering of the positions that hold a node.

    >>> packing = Packing.of(torch.tensor([True, False, True]))
    >>> packing.living, packing.places
    (tensor([0, 2]), tensor([ 0, -1,  1]))
    """

    living: Tensor  # these positions, ascending.  int64 [nodes]
    places: Tensor  # new number of every position, -1 for those without a node.  int64 [positions]

    @classmethod
    def of(cls, alive: Tensor) -> Packing:
        """Return the packing that keeps positions with nodes.  alive: bool [positions]"""
        living = alive.nonzero().flatten()
        places = torch.full((len(alive),), -1)
        places[living] = torch.arange(len(living))
        return cls(living, places)


@dataclass(frozen=True, eq=False)
class PackedState:
    """State of a learner without the rows of forgotten nodes, for a snapshot."""

    arrays: Mapping[str, Tensor | Pieces]
    about: dict[str, Any]  # the rest, as JSON can hold it
    places: int  # how many positions were dropped


def taken(value: Tensor, rows: Tensor) -> Pieces:
    """Return some rows of an array, in pieces of about ``PIECE`` bytes."""
    return Pieces((len(rows), *value.shape[1:]), value.dtype, partial(split, value, rows))


def packed(arrays: Mapping[str, Tensor | Pieces], packing: Packing) -> Arrays:
    """Return the arrays of a snapshot without the rows of positions that hold no node.

    Arrays of the head are returned unchanged, see ``OnlineHead.packed``.
    """
    found: Arrays = {}
    for name, value in arrays.items():
        if _ROWS.fullmatch(name):
            array = value.whole() if isinstance(value, Pieces) else value
            found[name] = taken(array, packing.living)
        elif _POINTERS.fullmatch(name):
            assert isinstance(value, Tensor), "pointers are small, so never in pieces"
            found[name] = torch.cat([value[packing.living], value[-1:]])  # removed rows are empty
        elif _INDICES.fullmatch(name):
            found[name] = Pieces(
                tuple(value.shape), value.dtype, partial(_renumbered, value, packing)
            )
        else:
            assert _UNPLACED.fullmatch(name), f"{name} must be listed in pieces.py"
            found[name] = value
    # What is counted: rows in the order of positions, and no free slots.
    slots, rows, marks = (arrays[f"counted.{name}"] for name in ("slots", "rows", "marks"))
    assert isinstance(slots, Tensor)
    assert isinstance(rows, Tensor)
    assert isinstance(marks, Tensor)
    kept, there = slots.new_zeros(len(packing.living)), packing.living < len(slots)
    kept[there] = slots[packing.living[there]]  # later nodes have no slot yet
    counted = kept > 0
    held = kept[counted] - 1
    kept[counted] = torch.arange(1, len(held) + 1)
    free = torch.empty(0, dtype=torch.int64)
    anew: Arrays = {"slots": kept, "rows": taken(rows, held), "marks": marks[held], "free": free}
    return found | {f"counted.{name}": value for name, value in anew.items()}


def _renumbered(positions: Tensor | Pieces, packing: Packing) -> Iterator[Tensor]:
    return (packing.places[part.long()].to(positions.dtype) for part in split(positions))


# Parameters that a live learner cannot choose, see ``LiveEmbeddings``; no folder names them.
FIXED = ("dtype",)


def described(resolver: Resolver[Any], component: Any) -> dict[str, Any]:
    """Return a component's name and its parameters, as JSON can hold them."""
    names = [name for name in resolver.parameters(component.name) if name not in FIXED]
    values = {"name": component.name} | {name: getattr(component, name) for name in names}
    kept: dict[str, Any] = json.loads(json.dumps(values))
    return kept
