"""Targets of nodes: a class, several labels or a number.

A live learner numbers distinct targets in order of arrival, whatever their kind. A set of labels or
a number is encoded as a text, and that text is numbered like the name of a class.
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
from evergraph.online.delta import Label, NodeTarget
from evergraph.online.identifiers import check_id
from evergraph.tables.frames import is_a
from evergraph.tables.labels import boolean_name


def check_target(kind: Kind, value: object) -> None:
    """Raise unless a value is a target of this kind.

    >>> check_target("labels", "art")
    Traceback (most recent call last):
    evergraph.core.errors.DataError: labels of a node must be a list, not 'art'
    """
    if kind == "class":
        check_id("label", value)
    elif kind == "labels":
        if not isinstance(value, list | tuple):
            raise DataError(f"labels of a node must be a list, not {value!r}")
        for label in value:
            check_id("label", label)
    elif type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        raise DataError(f"a target must be a finite number, not {value!r}")


def as_labels(values: Any, count: int) -> list[Label | None]:
    """Return classes as a list, like ``as_targets``.

    Whole numbers among floats are integers, since a table with gaps holds floats.
    """
    return as_targets("class", values, count)  # type: ignore[return-value]


def as_targets(kind: Kind, values: Any, count: int) -> list[NodeTarget | None]:
    """Return the targets of nodes as a list, None for those without one.

    values: a class per node, None or NaN (in a tensor -1) for none; a list of labels per node,
    empty for a node that has none of them; or numbers, None or NaN for unknown. None for no targets
    at all.

    >>> as_targets("labels", [["art", "law"], [], None], 3)
    [['art', 'law'], [], None]
    >>> as_targets("numbers", torch.tensor([1.5, float("nan")]), 2)
    [1.5, None]
    """
    if values is None:
        return [None] * count
    targets: list[NodeTarget | None]
    if kind == "class" and isinstance(values, Tensor):
        if values.is_floating_point():
            raise DataError(f"labels hold {values.dtype}: expected integers or booleans")
        listed = values.reshape(-1).tolist()
        targets = [None if v == UNLABELLED else v for v in listed]
        if values.dtype == torch.bool:
            targets = [*map(boolean_name, listed)]
    else:
        if kind != "class" and isinstance(values, Tensor | np.ndarray) and values.ndim > 1:
            if kind == "labels" or values.shape[1:] != (1,):
                rule = "a list of labels a node" if kind == "labels" else "[nodes], a number a node"
                raise DataError(f"labels have shape {tuple(values.shape)}: expected {rule}")
            values = values.reshape(-1)
        targets = [_as_target(kind, value) for value in plain_values(values, "labels")]
    if len(targets) != count:
        raise DataError(f"labels must be as many as nodes, not {len(targets)} for {count} nodes")
    return targets


def _as_target(kind: Kind, value: Any) -> NodeTarget | None:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if kind == "class" and value.is_integer():
            value = int(value)
    elif kind == "class" and isinstance(value, bool):
        value = boolean_name(value)
    elif kind != "class" and isinstance(value, list | tuple | set | frozenset | np.ndarray):
        value = [v.item() if isinstance(v, np.generic) else v for v in value]
    check_target(kind, value)
    target: NodeTarget = value
    return target


def graph_targets(kind: Kind, targets: Targets) -> list[NodeTarget | None]:
    """Return the targets of a graph for a model of this kind; raise if it cannot learn them."""
    if targets.kind != kind:
        raise DataError(f"nodes have {targets.kind}, but the model was made with targets={kind!r}")
    if kind == "numbers":
        if len(targets.names) > 1:
            names = ", ".join(targets.names)
            raise DataError(f"nodes have {len(targets.names)} numbers ({names}): expected one")
        return as_targets(kind, targets.values, len(targets))
    known = targets.known
    half = known.any(1) & ~known.all(1)
    if bool(half.any()):
        node = int(half.nonzero()[0, 0])
        raise DataError(f"the labels of node {node} must be known or unknown all together")
    rows = zip(targets.values.tolist(), known[:, 0].tolist(), strict=True)
    return [
        [name for name, has in zip(targets.names, row, strict=True) if has] if there else None
        for row, there in rows
    ]


def targets_of_y(kind: Kind, y: Tensor | None, count: int) -> list[NodeTarget | None]:
    """Return the targets in ``y`` of a PyG ``Data``.

    Several labels are a matrix of 0 and 1, with labels named by column: ``t0``, ``t1``, ...

    >>> targets_of_y("labels", torch.tensor([[0, 1], [1, 1]]), 2)
    [['t1'], ['t0', 't1']]
    """
    if kind == "labels" and y is not None and y.dim() == 2:
        return graph_targets(kind, read_targets(y))
    return as_targets(kind, y, count)


def target_score(
    kind: Kind, predicted: Sequence[Any], right: Sequence[Any], *, balanced: bool = False
) -> float:
    """Return accuracy, micro F1 of labels or R² of numbers.

    balanced: average over classes or labels, each counting alike.

    Two of three true labels are predicted, and one that is not true: 4 / (4 + 1 + 1).

    >>> round(target_score("labels", [["a"], ["b", "c"]], [["a", "c"], ["b"]]), 4)
    0.6667
    """
    if kind == "numbers":
        if balanced:
            raise ConfigurationError("balanced is for classes and labels, not for numbers")
        return r2(
            *(torch.tensor(part, dtype=torch.float64)[:, None] for part in (predicted, right))
        )
    if kind == "labels":
        met = dict.fromkeys(label for part in (predicted, right) for row in part for label in row)
        columns = {label: column for column, label in enumerate(met)}
        given, there = (torch.zeros(len(part), len(columns)) for part in (predicted, right))
        for matrix, part in ((given, predicted), (there, right)):
            for row, labels in enumerate(part):
                matrix[row, [columns[label] for label in labels]] = 1.0
        return (macro_f1 if balanced else micro_f1)(given, there)
    numbers = {label: number for number, label in enumerate({*right, *predicted})}
    given, there = (torch.tensor([numbers[v] for v in part]) for part in (predicted, right))
    return (balanced_accuracy if balanced else plain_accuracy)(given, there)


def plain_values(values: Any, name: str) -> list[Any]:
    """Return values as a list of plain Python objects; name: of the parameter, for errors."""
    if isinstance(values, str | bytes | dict) or not hasattr(values, "__iter__"):
        raise DataError(f"{name} must be a list or an array, not {values!r}")
    if isinstance(values, Tensor | np.ndarray) and values.ndim == 0:
        raise DataError(f"{name} must be a list or an array, not a single {values.item()!r}")
    if is_a(values, "pyarrow"):
        found: list[Any] = values.to_pylist()
        return found
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    return [value.item() if isinstance(value, np.generic) else value for value in listed]
