"""Edges that one table or delta lists several times, and the weight that such an edge gets.

``last`` keeps the last weight, ``sum``, ``mean`` and ``count`` combine the rows, ``refuse`` raises.
A row without a weight counts as 1, and a row of weight 0, which is no edge, adds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import DataError, check_choice, say
from evergraph.graphs.validation import checked_weights

REPEATED = ("last", "sum", "mean", "count", "refuse")
ONCE = "expected each edge once, since repeated is 'refuse'"
_SAID = {
    "last": "the last weight counts, unless repeated is sum, mean or count",
    "sum": "the weights of an edge are added",
    "mean": "the weights of an edge are averaged",
    "count": "an edge weighs as much as it has rows",
}


@dataclass(frozen=True, eq=False)
class Combined:
    """Edges, each once, unless the rule is ``last``: then the graph keeps the last of each."""

    rows: Tensor  # the first row of each edge, ascending.  int64 [edges]
    weights: Tensor | None  # of these edges; None if none are given or needed.  [edges]
    repeats: int  # rows that list an edge again

    def checked_weights(self) -> Tensor | None:
        """Return the weights as float32; raise if sums are too large."""
        if self.weights is None:
            return None
        return checked_weights("weight", self.weights, len(self.weights))


def combined(
    ends: Tensor,
    weights: Tensor | None,
    kinds: Tensor | None = None,
    *,
    repeated: str = "last",
    both_ways: bool = False,
) -> Combined:
    """Combine the rows that list the same edge.

    ends: numbers of the nodes, integer [2, rows]; weights: [rows]; kinds: the relation of each row,
    which keeps edges of different relations apart, integer [rows]; repeated: one of ``REPEATED``;
    both_ways: whether (a, b) and (b, a) are one edge, which directions of a relation never are.

    >>> found = combined(torch.tensor([[0, 1, 0], [2, 2, 2]]), torch.tensor([100.0, 7, 250]),
    ...                  repeated="sum")
    >>> found.rows, found.weights, found.repeats
    (tensor([0, 1]), tensor([350.,   7.], dtype=torch.float64), 1)
    """
    check_choice("repeated", repeated, REPEATED)
    plain = weights is None and repeated in ("last", "mean", "refuse")
    # An unweighted edge may be listed in both directions, as is usual: nothing is lost then.
    ends = ends.long().cpu()
    names = edge_names(ends, both_ways=both_ways and kinds is None and not plain)
    if kinds is not None:
        number = np.unique(names, return_inverse=True)[1]
        names = number * (int(kinds.max()) + 1 if len(kinds) else 1) + kinds.numpy()
    _, first, edge = np.unique(names, return_index=True, return_inverse=True)
    again = (ends[0] != ends[1]).numpy()  # a self-loop is no edge
    again[first] = False
    repeats = int(again.sum())
    if repeats and repeated == "refuse":
        row = int(again.argmax())
        raise DataError(f"row {row + 1} lists the edge of row {first[edge[row]] + 1} again: {ONCE}")
    if plain or repeated in ("last", "refuse"):
        return Combined(torch.arange(len(names)), weights, repeats)
    given = np.ones(len(names)) if weights is None else weights.double().cpu().numpy()
    totals, rows = np.bincount(edge, given), np.bincount(edge, given > 0)
    kept = np.sort(first)
    found = combined_weight(repeated, totals, rows)[edge[kept]]
    made = torch.from_numpy(found)
    return Combined(
        torch.from_numpy(kept), made if weights is None else made.to(weights.device), repeats
    )


def combined_weight(repeated: str, total: Any, rows: Any) -> Any:
    """Return the weight of an edge by the sum of its weights, and its rows of weight above 0."""
    if repeated == "sum":
        return total
    return 1.0 * rows if repeated == "count" else total / np.maximum(rows, 1)


def say_repeated(where: object, repeats: int, rows: int, repeated: str) -> None:
    """Report how many rows list an edge again, and what becomes of its weight."""
    if repeats:
        many = "row lists" if repeats == 1 else "rows list"
        say(where, f"{repeats:,} of {rows:,} {many} an edge again: {_SAID[repeated]}")


def edge_names(ends: Tensor, *, both_ways: bool) -> NDArray[np.int64]:
    """Return a number for each edge, equal for equal edges.  int64 [2, m] -> int64 [m]

    both_ways: whether (a, b) and (b, a) are one edge. A position of -1 is no node.
    """
    one, other = (side.numpy() + 1 for side in ends)
    if both_ways:
        one, other = np.minimum(one, other), np.maximum(one, other)
    most = int(ends.max()) + 2 if ends.numel() else 1
    names: NDArray[np.int64] = one * most + other
    return names
