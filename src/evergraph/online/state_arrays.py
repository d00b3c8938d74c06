"""The arrays of a snapshot: what each is, how they are checked and packed.

Snapshots may come from anywhere, and compiled code does not check indices: ``check_arrays`` does,
once, before anything is restored.

Positions are never reused (see ``GrowingGraph``), so a learner holds empty rows for all nodes it
ever had. A purge leaves them out and renumbers positions (``Packing``). Nodes keep their order; so
sums that run in the order of positions give the same bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evergraph.core.errors import DataError

POSITIONS = "graph.alive"  # whose length is their number
CLASSES = "classes"  # as many as one of these arrays has rows, see ``target_table``
_CLASS_ROWS = ("classes.kinds", "classes.set_sizes", "classes.numbers")


@dataclass(frozen=True)
class ArrayKind:
    """What an array is. Counts are given as the name of an array that has so many rows.

    In a name, ``{0}`` stands for what the group of the array's own pattern has matched.
    """

    dtype: torch.dtype | None = None  # None for several
    rows: str | None = None  # how many rows it has; None for any number
    more: int = 0  # rows beyond these
    fewer: bool = False  # whether the last rows may be missing
    least: int | None = None  # its least value; None if it holds no indices
    below: str | None = None  # how many values there are from 0 on
    finite: bool = False


_LISTS, _NAMES = (
    r"(graph|relations\.\d+\.\w+)",
    r"(ids|classes|classes\.names|relations\.names|relations\.types)",
)
_SUMS = r"(head\.(?:view_\d+|statistics|sums\.\d+))"
_whole, _single = torch.int64, torch.float32
# By name, the first that matches. Every array must be listed: of an unknown one it is not known
# whether it has a row for every position.
KINDS = {
    re.compile(names): kind
    for names, kind in {
        r"graph\.alive": ArrayKind(torch.bool, POSITIONS),
        r"graph\.features": ArrayKind(_single, POSITIONS, finite=True),
        rf"{_LISTS}\.indptr": ArrayKind(_whole, POSITIONS, more=1, least=0),
        rf"{_LISTS}\.indices": ArrayKind(torch.int32, least=0, below=POSITIONS),
        rf"{_LISTS}\.weights": ArrayKind(_single, "{0}.indices", least=0, finite=True),
        r"(embeddings|codes|shape|words)\..+": ArrayKind(_single, POSITIONS),
        r"relations\.(sent|near|vectors)": ArrayKind(_single, POSITIONS),
        r"relations\.typed": ArrayKind(_whole, POSITIONS, least=-1, below="relations.types.kinds"),
        r"ids\.kinds": ArrayKind(torch.uint8, POSITIONS),
        r"ids\.lengths": ArrayKind(_whole, POSITIONS, least=0),
        rf"{_NAMES}\.lengths": ArrayKind(_whole, "{0}.kinds", least=0),
        rf"{_NAMES}\.(?:kinds|bytes)": ArrayKind(torch.uint8),
        r"classes\.numbers": ArrayKind(torch.float64, finite=True),
        r"classes\.set_sizes": ArrayKind(_whole, least=0),
        r"classes\.members": ArrayKind(_whole, least=0, below="classes.names.kinds"),
        r"held\.lots": ArrayKind(_whole, POSITIONS),
        r"labels\.numbers": ArrayKind(_whole, POSITIONS, least=-1, below=CLASSES),
        r"labels\.counts": ArrayKind(_whole, CLASSES, fewer=True, least=0),
        r"counted\.slots": ArrayKind(_whole, POSITIONS, fewer=True, least=0),
        r"counted\.rows": ArrayKind(_single),
        r"counted\.marks": ArrayKind(torch.bool, "counted.rows"),
        r"counted\.free": ArrayKind(_whole, least=0, below="counted.rows"),
        r"prequential\.pairs": ArrayKind(_whole, least=-1, below=CLASSES),
        r"head\.landmark_nodes": ArrayKind(_whole, least=-1, below=POSITIONS),
        r"head\.landmarks": ArrayKind(_single, "head.landmark_nodes"),
        r"head\.(chosen|class_weights)": ArrayKind(None, CLASSES, fewer=True),
        r"head\.tem\.memory\.nodes": ArrayKind(_whole, least=0, below=POSITIONS),
        r"head\.tem\.memory\.labels": ArrayKind(_whole, least=0, below=CLASSES),
        rf"{_SUMS}\.counts": ArrayKind(_whole, CLASSES, fewer=True),
        rf"{_SUMS}\.(?:sums|mass)": ArrayKind(torch.float64, "{0}.counts"),
        r"(solving|wear|prequential|alarms|head|held)\..+": ArrayKind(),
    }.items()
}
_LATER = re.compile(r"(counted|solving|wear|head)\..+")  # there once something is learned


def kind_of(name: str) -> tuple[ArrayKind, str]:
    """Return what an array is, and what ``{0}`` stands for in it."""
    for names, kind in KINDS.items():
        if (found := names.fullmatch(name)) is not None:
            return kind, found[1] if names.groups else ""
    raise DataError(f"array {name!r} is not one of a learner")


def check_arrays(state: Mapping[str, Tensor], empty: Mapping[str, Tensor]) -> None:
    """Raise ``DataError`` unless arrays can be those of a learner.

    Types, lengths and widths are checked, and every number that is used as an index. Whether values
    are those of the graph and its labels is another question: not asked here.

    empty: the arrays of the learner before it has nodes, which have the same names and widths.

    >>> check_arrays({"graph.alive": torch.ones(2, dtype=torch.bool),
    ...               "labels.numbers": torch.tensor([-1, 7])}, {})
    Traceback (most recent call last):
    evergraph.core.errors.DataError: array 'labels.numbers' must hold values from -1 to -1, not 7
    """
    for name in empty.keys() - state.keys():
        if not _LATER.fullmatch(name):
            raise DataError(f"array {name!r} is missing")
    for find in (_fault, _relation_fault):  # what holds between arrays relies on each
        for name in state:
            if (wrong := find(name, state, empty)) is not None:
                raise DataError(f"array {name!r} must {wrong}")


def _fault(name: str, state: Mapping[str, Tensor], empty: Mapping[str, Tensor]) -> str | None:
    """Return what an array must be and is not, None if nothing is wrong."""
    value, (kind, group) = state[name], kind_of(name)

    def count(other: str) -> int:
        names = _CLASS_ROWS if other == CLASSES else (other.format(group),)
        return next((len(state[name]) for name in names if name in state), 0)

    if kind == ArrayKind():
        return None
    if kind.dtype not in (None, value.dtype):
        return f"have values of {kind.dtype}, not {value.dtype}"
    width = tuple(empty[name].shape[1:]) if name in empty and name[:5] != "head." else None
    if not value.dim() or width not in (None, tuple(value.shape[1:])):
        return f"have rows of shape {width}, not {tuple(value.shape)}"
    rows = None if kind.rows is None else count(kind.rows) + kind.more
    if rows is not None and not (len(value) <= rows if kind.fewer else len(value) == rows):
        return f"have {rows:,} rows, not {len(value):,}"
    if kind.finite and not bool(value.isfinite().all()):
        return "hold finite numbers"
    if kind.least is not None and value.numel():
        most = None if kind.below is None else count(kind.below) - 1
        low, high = value.min().item(), value.max().item()
        if low < kind.least or (most is not None and high > most):
            wrong = low if low < kind.least else high
            limits = f"of {kind.least} or more" if most is None else f"from {kind.least} to {most}"
            return f"hold values {limits}, not {wrong}"
    return None


def _relation_fault(
    name: str, state: Mapping[str, Tensor], empty: Mapping[str, Tensor]
) -> str | None:
    part, _, word = name.rpartition(".")
    return _RELATIONS[word](part, state) if word in _RELATIONS else None


def _pointers(lists: str, state: Mapping[str, Tensor]) -> str | None:
    indptr, indices = state[f"{lists}.indptr"], state[f"{lists}.indices"]
    if int(indptr[0]) != 0 or int(indptr[-1]) != len(indices) or bool((indptr.diff() < 0).any()):
        return f"ascend from 0 to the {len(indices):,} entries of {lists}.indices"
    starts = torch.zeros(len(indices) + 1, dtype=torch.bool)
    starts[indptr] = True
    if bool(((indices.diff() <= 0) & ~starts[1:-1]).any()):
        return f"be of rows that ascend in {lists}.indices"
    return None


def _lengths(names: str, state: Mapping[str, Tensor]) -> str | None:
    size = len(state[f"{names}.bytes"])
    lengths = state[f"{names}.lengths"]
    fits = not len(lengths) or int(lengths.max()) <= size
    return None if fits and int(lengths.sum()) == size else f"add up to {size:,} bytes"


def _sets(classes: str, state: Mapping[str, Tensor]) -> str | None:
    members = len(state[f"{classes}.members"])
    fits = int(state[f"{classes}.set_sizes"].sum()) == members
    return None if fits else f"add up to {members:,} members"


def _slots(counted: str, state: Mapping[str, Tensor]) -> str | None:
    slots, labels = state[f"{counted}.slots"], state["labels.numbers"]
    if len(slots) and int(slots.max()) > len(state[f"{counted}.rows"]):
        return f"be at most {len(state[f'{counted}.rows'])}"
    there = torch.zeros(len(labels), dtype=torch.bool)
    there[: len(slots)] = slots > 0
    return None if bool(there[labels >= 0].all()) else "be above 0 for labelled nodes"


# What holds between arrays, by the last word of a name.
_RELATIONS: dict[str, Callable[[str, Mapping[str, Tensor]], str | None]]
_RELATIONS = {"indptr": _pointers, "lengths": _lengths, "slots": _slots, "set_sizes": _sets}


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


@dataclass(frozen=True, eq=False)
class PackedState:
    """State of a learner without forgotten nodes, and classes that no node has, for a snapshot."""

    arrays: Mapping[str, Tensor]
    about: dict[str, Any]  # the rest, as JSON can hold it
    places: int  # how many positions were dropped


def packed(arrays: Mapping[str, Tensor], nodes: Packing, classes: Packing) -> dict[str, Tensor]:
    """Return the arrays of a snapshot without nodes that are gone, and classes without nodes.

    Arrays of the head and names of classes are left out, see ``FusedHead.packed``.
    """
    found: dict[str, Tensor] = {}
    kept = {POSITIONS: nodes, CLASSES: classes}
    for name, value in arrays.items():
        kind, _ = kind_of(name)
        if name.startswith(("head.", "classes.", "counted.")):
            continue
        if kind.more:
            found[name] = torch.cat([value[nodes.living], value[-1:]])  # removed rows are empty
            continue
        if kind.rows in kept:
            living = kept[kind.rows].living
            value = value[living[living < len(value)]]
        if kind.below in kept:
            value = kept[kind.below].places[value.long()].to(value.dtype)
        found[name] = value
    # What is counted: rows in the order of positions, and no free slots.
    slots, rows, marks = (arrays[f"counted.{name}"] for name in ("slots", "rows", "marks"))
    own, there = slots.new_zeros(len(nodes.living)), nodes.living < len(slots)
    own[there] = slots[nodes.living[there]]  # later nodes have no slot yet
    counted = own > 0
    held = own[counted] - 1
    own[counted] = torch.arange(1, len(held) + 1)
    free = torch.empty(0, dtype=torch.int64)
    anew = {"slots": own, "rows": rows[held], "marks": marks[held], "free": free}
    return found | {f"counted.{name}": value for name, value in anew.items()}


# Arrays of a head in closed form that have a row for every class.
OF_CLASSES = ("sums", "mass", "counts", "offsets", "class_weights", "chosen")


def of_classes(state: dict[str, Tensor], kept: Tensor) -> dict[str, Tensor]:
    """Return the state of a head in closed form with some classes alone.  kept: int64 [classes]"""
    found = dict(state)
    for name, value in state.items():
        what = name.rpartition(".")[2]
        if what in OF_CLASSES:
            found[name] = value[kept[kept < len(value)]]
        elif what == "weights":  # V, which may not have the newest classes yet
            found[name] = value[:, kept[kept < value.shape[1]]]
    return found
