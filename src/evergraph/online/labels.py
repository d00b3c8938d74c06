"""What nodes are said to be, a class, several labels or a number, and the names for these.

A live learner numbers what nodes are said to be in the order in which it comes, whatever it is: a
set of labels or a number is written as a text, and that text is numbered as the name of a class is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.label_space import Kind
from evergraph.evaluation.yardstick import balanced_accuracy, macro_f1, micro_f1, plain_accuracy, r2
from evergraph.graphs import UNLABELLED
from evergraph.graphs.targets import Targets, read_targets
from evergraph.online.delta import Label, Told
from evergraph.online.identifiers import check_id
from evergraph.tables.frames import is_a


def check_told(kind: Kind, value: object) -> None:
    """Raise unless a value is what nodes of a kind are said to be.

    >>> check_told("labels", "art")
    Traceback (most recent call last):
    evergraph.core.errors.DataError: labels of a node must be a list of them, not 'art'
    """
    if kind == "class":
        check_id("label", value)
    elif kind == "labels":
        if not isinstance(value, list | tuple):
            raise DataError(f"labels of a node must be a list of them, not {value!r}")
        for label in value:
            check_id("label", label)
    elif type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        raise DataError(f"what a node has must be a finite number, not {value!r}")


def as_labels(values: Any, count: int) -> list[Label | None]:
    """Return classes as ``as_told`` does.

    Whole numbers among floats are integers, since a table with gaps holds floats.

    >>> as_labels([1.0, float("nan"), None], 3), as_labels(torch.tensor([0, -1]), 2)
    ([1, None, None], [0, None])
    """
    return as_told("class", values, count)  # type: ignore[return-value]


def as_told(kind: Kind, values: Any, count: int) -> list[Told | None]:
    """Return what nodes are said to be, None where it is not known.

    values: one class a node, None and NaN where there is none, in a tensor also -1; a list of
    labels a node, empty where it has none; or numbers, None and NaN where they are not known. None:
    nothing is known.

    >>> as_told("labels", [["art", "law"], [], None], 3)
    [['art', 'law'], [], None]
    >>> as_told("numbers", torch.tensor([1.5, float("nan")]), 2)
    [1.5, None]
    """
    if values is None:
        return [None] * count
    told: list[Told | None]
    if kind == "class" and isinstance(values, Tensor):
        if values.is_floating_point() or values.dtype == torch.bool:
            raise DataError(f"labels hold {values.dtype}: expected integers")
        told = [None if v == UNLABELLED else v for v in values.reshape(-1).tolist()]
    else:
        if kind != "class" and isinstance(values, Tensor | np.ndarray) and values.ndim > 1:
            if kind == "labels" or values.shape[1:] != (1,):
                rule = "a list of labels a node" if kind == "labels" else "[nodes], a number a node"
                raise DataError(f"labels have shape {tuple(values.shape)}: expected {rule}")
            values = values.reshape(-1)
        told = [_told(kind, value) for value in plain_values(values, "labels")]
    if len(told) != count:
        raise DataError(f"labels must be as many as nodes, not {len(told)} for {count} nodes")
    return told


def _told(kind: Kind, value: Any) -> Told | None:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if kind == "class" and value.is_integer():
            value = int(value)
    elif kind != "class" and isinstance(value, list | tuple | set | frozenset | np.ndarray):
        value = [v.item() if isinstance(v, np.generic) else v for v in value]
    check_told(kind, value)
    told: Told = value
    return told


def told_of_targets(kind: Kind, targets: Targets) -> list[Told | None]:
    """Return the targets of a graph as a model of a kind takes them; raise where it cannot.

    >>> told_of_targets("labels", Targets.from_lists([["b"], None, ["a", "b"]]))
    [['b'], None, ['a', 'b']]
    """
    if targets.kind != kind:
        raise DataError(f"nodes have {targets.kind}, but the model was made with targets={kind!r}")
    if kind == "numbers":
        if len(targets.names) > 1:
            names = ", ".join(targets.names)
            raise DataError(f"nodes have {len(targets.names)} numbers ({names}): expected one")
        return as_told(kind, targets.values, len(targets))
    known = targets.known
    half = known.any(1) & ~known.all(1)
    if bool(half.any()):
        node = int(half.nonzero()[0, 0])
        raise DataError(f"node {node} has labels of which some are not known: expected all or none")
    rows = zip(targets.values.tolist(), known[:, 0].tolist(), strict=True)
    return [
        [name for name, has in zip(targets.names, row, strict=True) if has] if there else None
        for row, there in rows
    ]


def told_of_y(kind: Kind, y: Tensor | None, count: int) -> list[Told | None]:
    """Return what the ``y`` of a PyG ``Data`` says of its nodes.

    Several labels are a matrix of 0 and 1, each label called by its column, ``t0``, ``t1``, ...

    >>> told_of_y("labels", torch.tensor([[0, 1], [1, 1]]), 2)
    [['t1'], ['t0', 't1']]
    """
    if kind == "labels" and y is not None and y.dim() == 2:
        return told_of_targets(kind, read_targets(y))
    return as_told(kind, y, count)


def told_score(
    kind: Kind, predicted: Sequence[Any], right: Sequence[Any], *, balanced: bool = False
) -> float:
    """Return accuracy, micro F1 of labels or R² of numbers; balanced: each class, or label, alike.

    Of three labels that are there two are found, and one is given that is not: 4 / (4 + 1 + 1).

    >>> round(told_score("labels", [["a"], ["b", "c"]], [["a", "c"], ["b"]]), 4)
    0.6667
    """
    if kind == "numbers":
        if balanced:
            raise ConfigurationError("balanced is for classes and labels, not for numbers")
        return r2(
            *(torch.tensor(part, dtype=torch.float64)[:, None] for part in (predicted, right))
        )
    if kind == "labels":
        given, there = _matrices(predicted, right)
        return (macro_f1 if balanced else micro_f1)(given, there)
    numbers = {label: number for number, label in enumerate({*right, *predicted})}
    given, there = (torch.tensor([numbers[v] for v in part]) for part in (predicted, right))
    return (balanced_accuracy if balanced else plain_accuracy)(given, there)


def _matrices(*parts: Sequence[Sequence[Label]]) -> list[Tensor]:
    """Return which labels each node has, a column for each that any has.  [nodes, labels]"""
    met = dict.fromkeys(label for part in parts for row in part for label in row)
    places = {label: place for place, label in enumerate(met)}
    found = [torch.zeros(len(part), len(places)) for part in parts]
    for matrix, part in zip(found, parts, strict=True):
        for row, labels in enumerate(part):
            matrix[row, [places[label] for label in labels]] = 1.0
    return found


def plain_values(values: Any, name: str) -> list[Any]:
    """Return a list of Python's own objects; name: what they are, for messages.

    >>> plain_values(np.array([3, 5]), "ids")
    [3, 5]
    """
    if isinstance(values, str | bytes | dict) or not hasattr(values, "__iter__"):
        raise DataError(f"{name} must be a list or an array, not {values!r}")
    if isinstance(values, Tensor | np.ndarray) and values.ndim == 0:
        raise DataError(f"{name} must be a list or an array, not a single {values.item()!r}")
    if is_a(values, "pyarrow"):
        found: list[Any] = values.to_pylist()
        return found
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    return [value.item() if isinstance(value, np.generic) else value for value in listed]
