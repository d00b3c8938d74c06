"""Targets of nodes as users hold them, and rows of features as scikit-learn's callers give them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from evergraph.core.errors import ConfigurationError, DataError, InvalidRowsError
from evergraph.core.targets import Target, target_of
from evergraph.graphs.csr import as_scipy
from evergraph.graphs.targets import Targets, read_targets
from evergraph.online.delta import Delta, NodeId, NodeTarget
from evergraph.online.identifiers import are_ids
from evergraph.online.sparse_rows import csr_features, is_sparse_tensor
from evergraph.tables.frames import column_names, is_a, is_sparse, is_table


def as_targets(kind: str, values: Any, count: int) -> list[NodeTarget | None]:
    """Return the targets of nodes as a list, None for those without one.

    values: a class per node, None or NaN (in a tensor -1) for none; a list of labels per node,
    empty for a node that has none of them, or a matrix of 0 and 1; or numbers, None or NaN for
    unknown. None for no targets at all.

    >>> import torch
    >>> as_targets("labels", [["art", "law"], [], None], 3)
    [['art', 'law'], [], None]
    >>> as_targets("numbers", torch.tensor([1.5, float("nan")]), 2)
    [1.5, None]
    """
    if values is None:
        return [None] * count
    target = target_of(kind)
    if isinstance(values, Tensor | np.ndarray) and values.ndim:
        values = target.of_array(values)
    targets = [target.read(value) for value in plain_values(values, "labels")]
    if len(targets) != count:
        raise DataError(f"labels must be as many as nodes, not {len(targets)} for {count} nodes")
    return targets


def graph_targets(kind: str, targets: Targets) -> list[NodeTarget | None]:
    """Return the targets of a graph for a model of this kind; raise if it cannot learn them."""
    if targets.kind != kind:
        raise DataError(f"nodes have {targets.kind}, but the model was made with targets={kind!r}")
    return targets.target.of_matrix(targets.values, targets.names)


def targets_of_y(kind: str, y: Tensor | None, count: int) -> list[NodeTarget | None]:
    """Return the targets in ``y`` of a PyG ``Data``."""
    if y is not None and y.dim() == 2 and y.shape[1] > 1 and not target_of(kind).is_class:
        return graph_targets(kind, read_targets(y))
    return as_targets(kind, y, count)


def target_score(
    kind: str, predicted: Sequence[Any], right: Sequence[Any], *, balanced: bool = False
) -> float:
    """Return accuracy, micro F1 of labels or R² of numbers.

    balanced: average over classes or labels, each counting alike.

    Two of three true labels are predicted, and one that is not true: 4 / (4 + 1 + 1).

    >>> round(target_score("labels", [["a"], ["b", "c"]], [["a", "c"], ["b"]]), 4)
    0.6667
    """
    target = target_of(kind)
    measure = target.balanced_score if balanced else target.score
    if not measure:
        raise ConfigurationError(f"balanced is for classes and labels, not for {target.plural}")
    return target.rows[measure](*target.compared(predicted, right))


def plain_values(values: Any, name: str) -> list[Any]:
    """Return values as a list of plain Python objects; name: of the parameter, for errors."""
    if isinstance(values, str | bytes | dict) or not hasattr(values, "__iter__"):
        hint = ""
        if isinstance(values, str):
            is_file = values.endswith((".csv", ".parquet"))
            hint = (
                ": pandas.read_csv reads a file" if is_file else f": a single one is [{values!r}]"
            )
        raise DataError(f"{name} must be a list or an array, not {values!r}{hint}")
    if isinstance(values, Tensor | np.ndarray) and values.ndim == 0:
        raise DataError(f"{name} must be a list or an array, not a single {values.item()!r}")
    if is_a(values, "pyarrow"):
        listed: list[Any] = values.to_pylist()
        return listed
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    return [value.item() if isinstance(value, np.generic) else value for value in listed]


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
    sparse = is_sparse(X) or is_sparse_tensor(X)
    array: Any = as_scipy(csr_features(X)) if sparse else X
    if not sparse:
        array = X.detach().cpu().numpy() if isinstance(X, Tensor) else np.asarray(X)
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
    if not np.isfinite(array.data if sparse else array).all():
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
    count = X.shape[0] if is_sparse(X) else len(X)
    numbered: list[NodeId] = list(range(start, start + count))
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
        sentence = "A column-vector y was passed when a 1d array was expected: it is flattened"
        sklearn = sys.modules.get("sklearn.exceptions")
        warnings.warn(
            sentence, getattr(sklearn, "DataConversionWarning", UserWarning), stacklevel=5
        )
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
