"""Rows of features and their targets, as scikit-learn's callers give them."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from evergraph.core.errors import DataError, InvalidRowsError
from evergraph.core.targets import Target, target_of
from evergraph.online.delta import Delta, NodeId, NodeTarget
from evergraph.online.identifiers import are_ids
from evergraph.online.labels import as_targets, plain_values
from evergraph.tables.frames import column_names, is_a, is_sparse, is_table


def is_rows(values: Any) -> bool:
    """Whether values are rows of features, not ids of nodes.

    >>> is_rows([[0.5, 1.0]]), is_rows(np.eye(2)), is_rows(["a", "b"]), is_rows(())
    (True, True, False, False)
    """
    if is_table(values) or is_sparse(values):
        return True
    if not hasattr(values, "ndim") and hasattr(values, "__array__"):
        values = np.asarray(values)
    if hasattr(values, "ndim"):
        return bool(values.ndim == 2)
    first = values[0] if isinstance(values, list | tuple) and values else None
    return isinstance(first, list | tuple | np.ndarray | Tensor)


def checked_rows(X: Any, *, width: int | None, name: str) -> Any:
    """Return a table as it is, and other rows as finite numbers.  -> [rows, width]

    width: of the rows that were learned, None if there are none yet; name: of the estimator
    """
    if is_table(X):
        if not len(X):
            raise InvalidRowsError("Found array with 0 sample(s): X must have a row or more")
        return X
    values = X.toarray() if is_sparse(X) else X
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.dtype.kind == "c":
        raise InvalidRowsError(f"Complex data not supported: X holds {array.dtype}")
    if array.ndim != 2:
        raise InvalidRowsError(
            f"Expected 2D array, got {array.ndim}D array instead. Reshape your data: X must be "
            "[rows, features]; a single row is [1, features]"
        )
    for count, what in zip(array.shape, ("sample", "feature"), strict=True):
        if not count:
            raise InvalidRowsError(
                f"Found array with 0 {what}(s) (shape={array.shape}) while a minimum of 1 is "
                "required."
            )
    try:
        array = array if array.dtype.kind in "biuf" else array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidRowsError(f"X must hold numbers: {error}") from None
    if not np.isfinite(array).all():
        raise InvalidRowsError(
            "Input X contains NaN or infinity: expected finite numbers; in a DataFrame gaps are "
            "filled"
        )
    if width not in (None, array.shape[1]):
        raise InvalidRowsError(
            f"X has {array.shape[1]} features, but {name} is expecting {width} features as input"
        )
    return array


def row_ids(X: Any, *, start: int = 0) -> list[NodeId]:
    """Return the ids of rows: the index of a DataFrame that has ids, else whole numbers.

    An index does not count if it is the default, or has gaps or repeats.
    """
    numbered: list[NodeId] = list(range(start, start + len(X)))
    if not is_a(X, "pandas"):
        return numbered
    index = X.index
    default = type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)
    ids = index.tolist()
    return ids if not default and index.is_unique and are_ids(ids) else numbered


def row_targets(kind: str, y: Any, count: int, *, name: str) -> list[NodeTarget | None]:
    """Return the targets of rows, None for those without one; name: of the estimator."""
    if y is None:
        raise InvalidRowsError(
            f"{name} requires y to be passed, but the target y is None: partial_fit takes nodes "
            "without labels"
        )
    target = target_of(kind)
    if is_table(y) or is_sparse(y):
        y = y.toarray() if is_sparse(y) else np.asarray(y)
    elif not hasattr(y, "__iter__") and hasattr(y, "__array__"):
        y = np.asarray(y)
    if isinstance(y, np.ndarray):
        y = _one_column(y, target)
    try:
        if target.is_class and not isinstance(y, Tensor):
            y = plain_values(y, "y")
            # NaN is a gap, as everywhere; infinity has no remainder, and is refused here.
            if any(isinstance(value, float) and value == value and value % 1 for value in y):
                raise InvalidRowsError(
                    "Unknown label type: continuous. y holds numbers with a fraction: a model of "
                    "numbers has targets='numbers'"
                )
        return as_targets(kind, y, count)
    except DataError as error:
        raise InvalidRowsError(str(error)) from None


def _one_column(y: np.ndarray[Any, Any], target: Target) -> np.ndarray[Any, Any]:
    if y.dtype.kind == "c":
        raise InvalidRowsError(f"Complex data not supported: y holds {y.dtype}")
    if target.is_named and not target.is_class:
        return y
    if y.ndim == 2 and y.shape[1] == 1:
        said = "A column-vector y was passed when a 1d array was expected: it is flattened"
        sklearn = sys.modules.get("sklearn.exceptions")
        warnings.warn(said, getattr(sklearn, "DataConversionWarning", UserWarning), stacklevel=5)
        return y[:, 0]
    if y.ndim != 1:
        more = "; several labels of a row need targets='labels'" if target.is_class else ""
        raise InvalidRowsError(f"y should be a 1d array, got an array of shape {y.shape}{more}")
    return y


def sorted_by_class(delta: Delta) -> Delta:
    """Return a delta in which the first node of each class comes before others, in sorted order.

    So a learner's classes, which are numbered as they come, are sorted.

    >>> delta = Delta(nodes=(0, 1, 2), features=Tensor([[0], [1], [2]]), labels=("b", "b", "a"))
    >>> sorted_by_class(delta).labels
    ['a', 'b', 'b']
    """
    first: dict[Any, int] = {}
    for row, label in enumerate(delta.labels):
        if label is not None:
            first.setdefault(label, row)
    classes = sorted(first, key=lambda label: (str(type(label)), label))
    leading = [first[label] for label in classes]
    order = [*leading, *sorted(set(range(len(delta.nodes))) - set(leading))]
    return replace(
        delta,
        nodes=[delta.nodes[row] for row in order],
        features=delta.features[order],
        labels=[delta.labels[row] for row in order],
        types=[delta.types[row] for row in order] if len(delta.types) else (),
    )


def names_of_rows(X: Any, called: object = "id") -> bool:
    """Whether rows have named columns, one of them the ids, or an index of this name.

    called: what the column of ids is called
    """
    named = is_table(X) and called in [str(name).strip() for name in column_names(X)]
    return named or (is_a(X, "pandas") and X.index.name == called)


def are_rows_with_targets(nodes: Any, targets: Any) -> bool:
    """Whether two arguments are rows of features and their targets, not ids and features."""
    if targets is None or not is_rows(nodes) or names_of_rows(nodes):
        return False
    return not (is_sparse(nodes) and is_rows(targets))  # an adjacency with features
