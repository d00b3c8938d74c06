"""Checks of edges, labels and features, warnings about them, and edges that are listed twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import DataError, check_choice, say, say_ignored
from evergraph.core.mapped import RESIDENT, is_mapped, page_out

UNLABELLED = -1
MOST_NODES = 2**31 - 1  # numbered by int32
MOST_CLASSES = 1 << 24  # an array with a number for each of them takes 128 MB
# For weights within these bounds, and sums of 2^31 of them, the inverses fit into float32.
LEAST_WEIGHT = 1e-18
MOST_WEIGHT = 1e18
WEIGHT_RULE = f"0, for no edge, or a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
# The last three add no information to the others.
READ = ("x", "edge_index", "y", "num_nodes", "ptr", "batch")
TIME = ("time", "node_year")
WEIGHTS = ("edge_weight", "edge_attr")
_VALUES_PER_BLOCK = 1 << 22  # values processed together
# What becomes of an edge that one table or delta lists several times: ``last`` keeps the last weight,
# ``sum``, ``mean`` and ``count`` combine the rows, ``refuse`` raises. A row without a weight counts
# as 1, and a row of weight 0, which is no edge, adds nothing.
REPEATED = ("last", "sum", "mean", "count", "refuse")
ONCE = "expected each edge once, since repeated is 'refuse'"
_EXPLANATIONS = {
    "last": "the last weight counts, unless repeated is sum, mean or count",
    "sum": "the weights of an edge are added",
    "mean": "the weights of an edge are averaged",
    "count": "an edge weighs as much as it has rows",
}


def check_whole(name: str, values: Tensor, *, verb: str = "holds") -> None:
    """Raise unless values have an integer type; booleans do not count."""
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise DataError(f"{name} {verb} {values.dtype}: expected integers")


def check_count(nodes: int) -> None:
    """Raise if a graph has more nodes than int32 can number; entries have no limit."""
    if nodes > MOST_NODES:
        raise DataError(f"the graph has {nodes:,} nodes: at most {MOST_NODES:,} are supported")


def check_edges(edge_index: Tensor, nodes: int) -> None:
    """Raise unless every edge joins two existing nodes."""
    check_count(nodes)
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise DataError(f"edge_index has shape {tuple(edge_index.shape)}: expected [2, edges]")
    check_whole("edge_index", edge_index)
    if edge_index.numel() and (int(edge_index.min()) < 0 or int(edge_index.max()) >= nodes):
        wrong = ((edge_index < 0) | (edge_index >= nodes)).any(0).nonzero()[0, 0]
        source, target = edge_index[:, wrong].tolist()
        raise DataError(
            f"edge {int(wrong)} joins {source} and {target}, but nodes are numbered "
            f"0 to {nodes - 1}"
        )


def check_csr(indptr: Tensor, indices: Tensor, columns: int) -> None:
    """Raise unless row pointers ascend from 0 to the end of the entries, which are columns.

    indptr: integer [rows + 1]; indices: integer [entries]; either may be in a file.
    """
    if int(indptr[0]) != 0 or int(indptr[-1]) != len(indices):
        raise DataError(
            f"CSR row pointers run from {int(indptr[0])} to {int(indptr[-1])}: "
            f"expected 0 to {len(indices)}, the number of stored values"
        )
    for start in range(0, len(indptr) - 1, _VALUES_PER_BLOCK):
        block = indptr[start : start + _VALUES_PER_BLOCK + 1]
        falls = block[1:] < block[:-1]
        if bool(falls.any()):
            row = start + int(falls.nonzero()[0, 0])
            raise DataError(f"CSR row pointers fall after row {row}: expected them to ascend")
    for start in range(0, len(indices), _VALUES_PER_BLOCK):
        block = indices[start : start + _VALUES_PER_BLOCK]
        least, most = map(int, block.aminmax())
        if least < 0 or most >= columns:
            position = int(((block < 0) | (block >= columns)).nonzero()[0, 0])
            raise DataError(
                f"CSR column index {int(block[position])} at stored value {start + position}: "
                f"expected 0 to {columns - 1}"
            )
        if is_mapped(indices) and indices.nbytes > RESIDENT:
            page_out(block)


def check_labels(labels: Tensor) -> None:
    """Raise unless labels are classes 0, 1, ..., or -1 for none."""
    check_whole("labels", labels, verb="hold")
    least, most = map(int, labels.aminmax()) if labels.numel() else (0, 0)
    if least < UNLABELLED or most >= MOST_CLASSES:
        node = int(labels.argmin() if least < UNLABELLED else labels.argmax())
        raise DataError(
            f"node {node} has label {int(labels[node])}: expected a class from 0 to "
            f"{MOST_CLASSES - 1:,}, or {UNLABELLED} for none"
        )


def checked_weights(name: str, weights: Tensor, edges: int) -> Tensor:
    """Return edge weights as float32; raise unless there is one per edge and all are valid.

    >>> checked_weights("weight", torch.tensor([1, 2]), 2)
    tensor([1., 2.])
    """
    if weights.shape != (edges,):
        message = (
            f"{name}s have shape {list(weights.shape)}: expected [{edges}], one number per edge"
        )
        raise DataError(message)
    if weights.is_complex():
        raise DataError(f"{name}s hold {weights.dtype}: expected real numbers")
    wrong = unsound_weights(weights)
    if bool(wrong.any()):
        edge = int(wrong.nonzero()[0, 0])
        raise DataError(f"edge {edge} has {name} {weights[edge].item()!r}: expected {WEIGHT_RULE}")
    return weights.float()


def unsound_weights(weights: Tensor) -> Tensor:
    """Return whether weights are negative, not finite, or too small or large to divide by.

    >>> unsound_weights(torch.tensor([0.0, 2.5, -1.0, float("nan"), 1e30]))
    tensor([False, False,  True,  True,  True])
    """
    unsound: Tensor = ~(((weights >= LEAST_WEIGHT) & (weights <= MOST_WEIGHT)) | (weights == 0))
    return unsound


def check_real(features: Tensor) -> None:
    """Raise if features are complex, since their imaginary part would be lost."""
    if features.is_complex():
        raise DataError(f"features hold {features.dtype}: expected real numbers")


def check_features(features: Tensor, nodes: int) -> None:
    """Raise unless features are finite numbers, one row per node."""
    if features.dim() != 2 or features.shape[0] != nodes:
        raise DataError(
            f"features have shape {tuple(features.shape)}: expected [{nodes}, dims], a row per node"
        )
    values = features if features.layout == torch.strided else features.values()
    # A sum is finite only if every term is; the exact search runs only if it is not.
    if values.is_floating_point() and not bool(values.sum(dtype=torch.float64).isfinite()):
        bad = (~values.isfinite()).nonzero()
        if len(bad):
            where = f"{'row' if values.dim() == 2 else 'stored value'} {int(bad[0, 0])}"
            message = f"features hold NaN or infinity, first in {where}: expected finite numbers"
            raise DataError(message)


def given_weights(attributes: Mapping[str, Any]) -> tuple[str, Tensor] | tuple[None, None]:
    """Return the name and values of the edge weights among some attributes.

    They are ``edge_weight``, else ``edge_attr`` if that has one column.

    >>> given_weights({"edge_attr": torch.tensor([[2.0], [3.0]])})
    ('edge_attr', tensor([2., 3.]))
    """
    for name in WEIGHTS:
        if isinstance(values := attributes.get(name), Tensor):
            single = values.dim() == 1 or values.shape[1:] == (1,)
            if single or name == WEIGHTS[0]:
                return name, values.reshape(-1) if single else values
    return None, None


def say_unread(
    where: object,
    names: Iterable[str],
    *,
    timed: bool = True,
    weights: str | None = None,
    also: Iterable[str] = (),
) -> None:
    """Log which attributes of a ``Data`` object, or of a similar dict, are not used.

    timed: whether times of nodes are used; a growing learner does not use them. weights: the
    attribute with the edge weights, if any; also: others that are read.
    """
    read = (*READ, *(TIME if timed else ()), *([] if weights is None else [weights]), *also)
    used = "x, edge_index, y and time" if timed else "x, edge_index and y"
    if weights is not None:
        used = used.replace("edge_index", f"edge_index, {weights}")
    unread = sorted(name for name in names if name not in read)  # PyG's own order varies
    say_ignored(where, "attribute", unread, f"only {used} are used")


@dataclass(frozen=True, eq=False)
class Combined:
    """Edges, each once, unless the rule is ``last``: then the graph keeps the last of each."""

    rows: Tensor  # the first row of each edge, ascending.  int64 [edges]
    weights: Tensor | None  # of these edges; None if all are 1.  [edges]
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
    keys = edge_keys(ends, both_ways=both_ways and kinds is None and not plain)
    if kinds is not None:
        pair_numbers = np.unique(keys, return_inverse=True)[1]
        keys = pair_numbers * (int(kinds.max()) + 1 if len(kinds) else 1) + kinds.numpy()
    _, first, edge = np.unique(keys, return_index=True, return_inverse=True)
    again = (ends[0] != ends[1]).numpy()  # a self-loop is no edge
    again[first] = False
    repeats = int(again.sum())
    if repeats and repeated == "refuse":
        row = int(again.argmax())
        raise DataError(f"row {row + 1} lists the edge of row {first[edge[row]] + 1} again: {ONCE}")
    if plain or repeated in ("last", "refuse"):
        return Combined(torch.arange(len(keys)), weights, repeats)
    known_weights = np.ones(len(keys)) if weights is None else weights.double().cpu().numpy()
    totals, rows = np.bincount(edge, known_weights), np.bincount(edge, known_weights > 0)
    first_rows = np.sort(first)
    combined_weights = combined_weight(repeated, totals, rows)[edge[first_rows]]
    new_weights = torch.from_numpy(combined_weights)
    if weights is not None:
        new_weights = new_weights.to(weights.device)
    return Combined(torch.from_numpy(first_rows), new_weights, repeats)


def combined_weight(repeated: str, total: Any, rows: Any) -> Any:
    """Return the weight of an edge by the sum of its weights, and its rows of weight above 0."""
    if repeated == "sum":
        return total
    return 1.0 * rows if repeated == "count" else total / np.maximum(rows, 1)


def say_repeated(where: object, repeats: int, rows: int, repeated: str) -> None:
    """Report how many rows list an edge again, and what becomes of its weight."""
    if repeats:
        many = "row lists" if repeats == 1 else "rows list"
        say(where, f"{repeats:,} of {rows:,} {many} an edge again: {_EXPLANATIONS[repeated]}")


def edge_keys(ends: Tensor, *, both_ways: bool) -> NDArray[np.int64]:
    """Return a number for each edge, equal for equal edges.  int64 [2, m] -> int64 [m]

    both_ways: whether (a, b) and (b, a) are one edge. A position of -1 is no node.
    """
    low, high = (side.numpy() + 1 for side in ends)
    if both_ways:
        low, high = np.minimum(low, high), np.maximum(low, high)
    most = int(ends.max()) + 2 if ends.numel() else 1
    keys: NDArray[np.int64] = low * most + high
    return keys
