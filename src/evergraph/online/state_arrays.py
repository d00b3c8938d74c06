"""The arrays of a snapshot: how they are checked while they are restored, and packed.

Snapshots may come from anywhere, and compiled code does not check indices. So whoever restores an
array says with ``must`` and ``check_values`` what it has to be.

Positions are never reused (see ``GrowingGraph``), so a learner holds empty rows for all nodes it
ever had. A purge leaves them out and renumbers positions (``Packing``). Nodes keep their order; so
sums that run in the order of positions give the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evergraph.core.errors import DataError


class ArrayError(DataError):
    """An array of a snapshot is not what it must be.

    name: of the array, in the part that restores it; rule: what it must be
    """

    def __init__(self, name: str, rule: str) -> None:
        self.name, self.rule = name, rule
        super().__init__(f"array {name!r} must {rule}")


@contextmanager
def part_named(part: str) -> Iterator[None]:
    """Put the name of a part before those of arrays that are missing, or wrong."""
    try:
        yield
    except ArrayError as error:
        raise ArrayError(f"{part}.{error.name}", error.rule) from None
    except KeyError as error:
        raise ArrayError(f"{part}.{error.args[0]}", "be there") from None


def joined(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the arrays of parts, each after the name of its part; see ``part_of``.

    >>> joined({"labels": {"counts": torch.zeros(1)}})
    {'labels.counts': tensor([0.])}
    """
    return {f"{part}.{name}": value for part, kept in parts.items() for name, value in kept.items()}


def must(name: str, holds: object, rule: str) -> None:
    """Raise ``ArrayError`` unless something holds for an array."""
    if not holds:
        raise ArrayError(name, rule)


def check_values(name: str, values: Tensor, least: int, *, below: int) -> None:
    """Raise unless all numbers are at least ``least`` and below a limit.

    >>> check_values("numbers", torch.tensor([-1, 7]), -1, below=0)
    Traceback (most recent call last):
    evergraph.online.state_arrays.ArrayError: array 'numbers' must hold values from -1 to -1, not 7
    """
    if not values.numel():
        return
    low, high = int(values.min()), int(values.max())
    wrong = low if low < least else high
    rule = f"hold values from {least} to {below - 1}, not {wrong}"
    must(name, low >= least and high < below, rule)


def check_kind(name: str, value: Tensor, like: Tensor) -> None:
    """Raise unless an array has the type, and rows of the shape, of another."""
    must(name, value.dtype == like.dtype, f"have values of {like.dtype}, not {value.dtype}")
    width = tuple(like.shape[1:])
    fits = value.dim() and tuple(value.shape[1:]) == width
    must(name, fits, f"have rows of shape {width}, not {tuple(value.shape)}")


@dataclass(frozen=True, eq=False)
class Packing:
    """A renumbering of positions that hold a node, or of classes that a node has.

    >>> packing = Packing.of(torch.tensor([True, False, True]))
    >>> packing.living, packing.places
    (tensor([0, 2]), tensor([ 0, -1,  1, -1]))
    """

    living: Tensor  # what is kept, ascending.  int64 [kept]
    places: Tensor  # the new number of each, -1 for the others and, last, for -1.  int64 [all + 1]

    @classmethod
    def of(cls, alive: Tensor) -> Packing:
        """Return the packing that keeps what is alive.  bool [all]"""
        living = alive.nonzero().flatten()
        places = torch.full((len(alive) + 1,), -1)
        places[living] = torch.arange(len(living))
        return cls(living, places)

    def rows(self, values: Tensor) -> Tensor:
        """Return the rows of what is kept, of an array that may lack the last ones."""
        return values[self.living[self.living < len(values)]]


class Saved(ABC):
    """Part of a learner that a snapshot holds as arrays."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name; some are views in which later changes show."""

    def packed(self, nodes: Packing, classes: Packing) -> dict[str, Tensor]:
        """Return ``state`` for the nodes and classes that are left, with their new numbers."""
        return self.state()

    @abstractmethod
    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned; raise ``ArrayError`` if it cannot be that."""


@dataclass(frozen=True, eq=False)
class PackedState:
    """State of a learner without forgotten nodes, and classes that no node has, for a snapshot."""

    arrays: Mapping[str, Tensor]
    about: dict[str, Any]  # the rest, as JSON can hold it
    places: int  # how many positions were dropped


# Arrays of a head in closed form that have a row for every class.
OF_CLASSES = ("sums", "mass", "counts", "offsets", "class_weights", "chosen")


def of_classes(state: dict[str, Tensor], classes: Packing) -> dict[str, Tensor]:
    """Return the state of a head in closed form with some classes alone."""
    found = dict(state)
    for name, value in state.items():
        what = name.rpartition(".")[2]
        if what in OF_CLASSES:
            found[name] = classes.rows(value)
        elif what == "weights":  # V, which may not have the newest classes yet
            found[name] = classes.rows(value.t()).t()
    return found


def check_of_classes(state: Mapping[str, Tensor], classes: int) -> None:
    """Raise unless the arrays of a head in closed form have rows for at most so many classes."""
    for name, value in state.items():
        part, _, what = name.rpartition(".")
        if what in OF_CLASSES:
            must(name, len(value) <= classes, f"have at most {classes:,} rows, not {len(value):,}")
        if what in ("sums", "mass"):
            rows = len(state[f"{part}.counts"])
            must(name, len(value) == rows, f"have {rows:,} rows, not {len(value):,}")
