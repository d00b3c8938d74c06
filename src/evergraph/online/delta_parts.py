"""What the parts of a delta must be by themselves, whatever the graph holds.

Each rule is looked at for a whole part at once. Only where something is wrong the part is gone
through one by one, for the sentence that names the first mistake.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.label_space import Kind
from evergraph.graphs.validation import LEAST_WEIGHT, MOST_WEIGHT, WEIGHT_RULE
from evergraph.online.answers import check_told
from evergraph.online.delta import Delta, NodeId, Told
from evergraph.online.edge_columns import EdgeColumns, edge_columns
from evergraph.online.identifiers import check_ids

# Squares of embeddings of larger values leave the range of float32.
LARGEST_FEATURE = 1e12
LONGEST_NAME = 200  # characters of a relation or a type
LONGEST_ID = 1024  # of an id or a label
LONGEST_KEY = 200


def check_parts(delta: Delta, *, num_features: int | None, kind: Kind = "class") -> None:
    """Raise unless the parts of a delta are sound by themselves, whatever the graph holds."""
    _check_features("features", delta.features, len(delta.nodes), num_features)
    updated = delta.updated_features
    _check_features("updated_features", updated, len(delta.updated), num_features)
    _check_labels(delta, kind)
    edges = _paired("edge", delta.edges)
    removed = _paired("removed edge", delta.removed_edges)
    check_weights(delta.weights, len(delta.edges))
    _check_names("relations", "edges", delta.relations, len(delta.edges))
    _check_names("types", "nodes", delta.types, len(delta.nodes), gaps=True)
    late = _told_late(delta.late, kind)
    for part in (delta.nodes, delta.updated, delta.forgotten):
        check_ids("id of a node", list(part))  # an array would be a column, and is none here
    for sides in (edges.sides, removed.sides, (late,)):
        check_ids("id of a node", *sides)
    if delta.key is not None and type(delta.key) is not str:
        raise DataError(f"key must be text, not {delta.key!r}")


def check_lengths(delta: Delta, *, kind: Kind = "class") -> None:
    """Raise unless all names that a delta brings are of a length that may be taken in.

    The one place for it, whatever way a delta comes. It is not part of ``check_parts``: what a
    journal holds was taken in, whatever the rule was then.

    >>> check_lengths(Delta(nodes=("",)))
    Traceback (most recent call last):
    evergraph.core.errors.DataError: id of a node must be a text of 1 to 1024 characters, not ''
    """
    told: list[Any] = [
        *(label for label in delta.labels if label is not None),
        *(t for _, t in delta.late),
    ]
    _check_length("id of a node", delta.nodes, LONGEST_ID)
    if kind != "numbers":
        _check_length("label", chain.from_iterable(told) if kind == "labels" else told, LONGEST_ID)
    if delta.key is not None:
        _check_length("key", [delta.key], LONGEST_KEY)


def _check_length(what: str, names: Iterable[Any], most: int) -> None:
    texts = [name for name in names if type(name) is str]
    lengths = list(map(len, texts))
    if texts and (min(lengths) < 1 or max(lengths) > most):
        wrong = next(text for text in texts if not 0 < len(text) <= most)
        said = f"{wrong[:20]!r}... of {len(wrong):,}" if wrong else "''"
        raise DataError(f"{what} must be a text of 1 to {most} characters, not {said}")


def _paired(what: str, edges: Sequence[tuple[NodeId, NodeId]]) -> EdgeColumns:
    found = edge_columns(edges)
    if found is not None:
        return found
    for place, edge in enumerate(edges):
        if len(edge) != 2:
            raise DataError(f"{what} {place} must join two nodes, not {edge!r}")
    raise AssertionError("edges that are no pairs")


def late_nodes(late: Sequence[tuple[NodeId, Told]]) -> list[NodeId]:
    """Return the nodes of late labels.

    >>> late_nodes([("a", "x"), ("b", "y")])
    ['a', 'b']
    """
    flat: list[Any] = list(chain.from_iterable(late))
    return flat[::2]


def _told_late(late: Sequence[tuple[NodeId, Told]], kind: Kind) -> list[NodeId]:
    """Return the nodes of late labels; raise unless each has one that is sound."""
    if set(map(len, late)) <= {2}:
        flat: list[Any] = list(chain.from_iterable(late))
        if _are_told(kind, flat[1::2]):
            return flat[::2]
    for pair in late:
        if len(pair) != 2:
            raise DataError(f"a late label must be a node and its label, not {pair!r}")
        check_told(kind, pair[1])
    return late_nodes(late)


def _are_told(kind: Kind, values: Sequence[Any]) -> bool:
    """Whether all values are what nodes are said to be; False where it takes a closer look."""
    kinds = set(map(type, values))
    if kind == "numbers":
        return kinds <= {int, float} and all(map(math.isfinite, values))
    if kind == "labels":
        return kinds <= {list, tuple} and _are_names(list(chain.from_iterable(values)))
    return _are_names(values)


def _are_names(values: Sequence[Any]) -> bool:
    try:
        check_ids("label", values)
    except DataError:
        return False
    return True


def _check_labels(delta: Delta, kind: Kind) -> None:
    if len(delta.labels) not in (0, len(delta.nodes)):
        raise DataError(
            f"labels must be as many as nodes or none at all, not {len(delta.labels)} for "
            f"{len(delta.nodes)} nodes"
        )
    told = [label for label in delta.labels if label is not None]
    if not _are_told(kind, told):
        for label in told:
            check_told(kind, label)


def _check_names(
    what: str, of: str, names: Sequence[str | None], count: int, *, gaps: bool = False
) -> None:
    """Raise unless there is a name for each or none at all; gaps: whether some may have none."""
    if len(names) not in (0, count):
        raise DataError(
            f"{what} must be as many as {of} or none at all, not {len(names)} for {count} {of}"
        )
    plain = {str, type(None)} if gaps else {str}
    if set(map(type, names)) <= plain and all(_is_name(name, gaps) for name in set(names)):
        return
    for place, name in enumerate(names):
        if not _is_name(name, gaps):
            raise DataError(
                f"{what} must be names of 1 to {LONGEST_NAME} characters, but number {place} is "
                f"{name!r}"
            )


def _is_name(name: object, gaps: bool) -> bool:
    if name is None:
        return gaps
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME


def plain_names(names: Sequence[str | None]) -> Sequence[str | None]:
    """Return names as Python's own texts: those of NumPy are no names to a table of names."""
    if set(map(type, names)) <= {str, type(None)}:
        return names
    return [None if name is None else str(name) for name in names]


def check_weights(weights: Sequence[float], edges: int) -> None:
    """Raise unless there is a weight for every edge or none at all, and all are sound.

    >>> check_weights([1.0, -2.0], 2)
    Traceback (most recent call last):
    evergraph.core.errors.DataError: edge 1 has weight -2.0: expected 0, for no edge, or a number \
from 1e-18 to 1e+18
    """
    if not len(weights):
        return
    if len(weights) != edges:
        raise DataError(
            f"weights must be as many as edges or none at all, not {len(weights)} for {edges} edges"
        )
    if _are_weights(weights):
        return
    for place, weight in enumerate(weights):
        if not is_weight(weight):
            raise DataError(f"edge {place} has weight {weight!r}: expected {WEIGHT_RULE}")


def _are_weights(weights: Sequence[float]) -> bool:
    """Whether all are sound; False where it takes a closer look."""
    # An integer above the largest weight may be rounded down to it, but is not the largest then.
    if not set(map(type, weights)) <= {int, float, np.float64} or max(weights) > MOST_WEIGHT:
        return False
    values = np.array(weights, dtype=np.float64)
    return bool(((values == 0) | ((values >= LEAST_WEIGHT) & (values <= MOST_WEIGHT))).all())


def is_weight(value: object) -> bool:
    """Whether a value may be the weight of an edge.

    >>> is_weight(2), is_weight(-1.0), is_weight(True)
    (True, False, False)
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return value == 0 or LEAST_WEIGHT <= value <= MOST_WEIGHT


def weight_values(weights: Sequence[float]) -> NDArray[np.float32]:
    """Return weights as they are written and applied, by the same rounding.  float32 [weights]"""
    return np.array(weights, dtype=np.float64).astype(np.float32)


def row_by_row(features: Tensor) -> Tensor:
    """Return features as they are written and applied: row by row, in the memory of the processor.

    Strides too are those of a matrix that was read back, even where a width of 1 leaves a choice.
    """
    plain = features.device.type == "cpu" and not features.requires_grad
    rows = features.dim() == 2 and features.stride() == (features.shape[1], 1)
    if plain and (rows or not features.numel()):
        return features  # as nearly all are
    return features.detach().cpu().contiguous().reshape(-1).view(features.shape)


def _check_features(what: str, features: Tensor, nodes: int, width: int | None) -> None:
    if not nodes:
        if len(features):
            named = "new" if what == "features" else "updated"
            raise DataError(f"{what} have {len(features)} rows, but there are 0 {named} nodes")
        return
    if features.dim() != 2 or len(features) != nodes or not features.shape[1]:
        raise DataError(
            f"{what} have shape {tuple(features.shape)}: expected [{nodes}, dims], a row a node"
        )
    if width is not None and features.shape[1] != width:
        raise DataError(
            f"{what} have {features.shape[1]} columns, but those of the graph have {width}"
        )
    if features.dtype != torch.float32:
        raise DataError(f"{what} hold {features.dtype}: expected torch.float32")
    within = features.abs() <= LARGEST_FEATURE  # False for NaN
    if not bool(within.all()):
        row, column = (~within).nonzero()[0].tolist()
        raise DataError(
            f"{what} must be finite numbers of at most {LARGEST_FEATURE:g}, but row {row}, "
            f"column {column} holds {features[row, column].item()!r}"
        )
