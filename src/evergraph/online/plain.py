"""Python's own objects out of what libraries hold them in: arrays, tensors, Series, Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.datasets.doors.recognising import is_a


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
