"""Answers in the form in which ids were given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.online.delta import Label
from evergraph.online.inputs import of_library


def label_array(labels: Sequence[Label]) -> np.ndarray[Any, Any]:
    """Return labels as an array of integers, of text, or of both as objects.

    >>> label_array(["b", "a"]).tolist(), label_array([1, "1"]).dtype
    (['b', 'a'], dtype('O'))
    """
    kinds = {type(label) for label in labels}
    if kinds == {int}:
        return np.array(labels, dtype=np.int64)
    if kinds == {str}:
        return np.array(labels, dtype=np.str_)
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array


def labels_like(ids: Any, labels: Sequence[Label]) -> Any:
    """Return predictions: a Series for pandas, a tensor for a tensor if classes are integers."""
    array = label_array(labels)
    if of_library(ids, "pandas"):
        import pandas as pd

        return pd.Series(array, index=_index(ids), dtype=None if len(array) else object)
    if isinstance(ids, Tensor) and array.dtype == np.int64:
        return torch.from_numpy(array)
    return array


def matrix_like(ids: Any, matrix: Tensor, columns: Sequence[Label] | None = None) -> Any:
    """Return rows of numbers: a DataFrame for pandas, a tensor for a tensor, else an array."""
    if of_library(ids, "pandas"):
        import pandas as pd

        return pd.DataFrame(matrix.numpy(), index=_index(ids), columns=columns)
    return matrix if isinstance(ids, Tensor) else matrix.numpy()


def _index(ids: Any) -> Any:
    """Return what rows of the answer are called: as in a Series, or the ids of an Index."""
    return getattr(ids, "index", ids) if type(ids).__name__ == "Series" else ids
