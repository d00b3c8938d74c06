"""Columns of a node table that hold several labels a node, or numbers to predict.

``labels``: texts with semicolons between, such as ``art;law``, or a list of texts in Parquet. They
are not known where a field is empty or says so as a missing ``label`` does; ``;`` alone, or an
empty list, says that a node has none. ``target``, or several columns ``target_...``: numbers; a gap
is a value that is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from evergraph.core.errors import DataError
from evergraph.datasets.files.table_columns import column, is_number, is_text
from evergraph.datasets.files.table_labels import SPELLINGS
from evergraph.graphs import Targets

if TYPE_CHECKING:
    import pyarrow

LABELS, TARGET, TARGETS = "labels", "target", "target_"
BETWEEN = ";"


def target_names(columns: Sequence[str]) -> list[str]:
    """Return which columns of a node table hold targets.

    A table with a column ``label`` has one class a node: its other columns are features.

    >>> target_names(["id", "age", "target_height", "target_weight"]), target_names(["id", "label"])
    (['target_height', 'target_weight'], [])
    """
    if "label" in columns:
        return []
    found = [name for name in columns if name == TARGET or name.startswith(TARGETS)]
    if LABELS in columns and found:
        raise DataError(
            f"has columns {LABELS!r} and {found[0]!r}: expected several labels a node or numbers, "
            "not both"
        )
    return [LABELS] if LABELS in columns else found


def called(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the numbers that some columns hold."""
    return tuple(name.removeprefix(TARGETS) for name in columns)


def targets(table: pyarrow.Table) -> Targets:
    """Return what the target columns of a node table hold."""
    names = target_names(table.column_names)
    if names == [LABELS]:
        return Targets.from_lists(label_lists(column(table, LABELS)))
    values = [numbers(column(table, name), name) for name in names]
    return Targets(torch.from_numpy(np.stack(values, axis=1)), "numbers", called(names))


def label_lists(values: pyarrow.Array) -> list[list[str] | None]:
    """Return the labels of each node, None where they are not known.

    >>> import pyarrow as pa
    >>> label_lists(pa.array(["law; art", None, "", ";"]))
    [['law', 'art'], None, None, []]
    """
    import pyarrow as pa

    types = pa.types
    if types.is_list(values.type) or types.is_large_list(values.type):
        rows = values.to_pylist()
        return [None if row is None else [str(label) for label in row] for row in rows]
    if not is_text(values.type) and not types.is_null(values.type):
        raise DataError(
            f"column {LABELS!r} holds {values.type}: expected texts such as 'art{BETWEEN}law', or "
            "lists of them"
        )
    return [None if text is None else label_parts(text) for text in values.to_pylist()]


def label_parts(text: str) -> list[str] | None:
    """Return the labels in a text, None where it says that they are not known.

    >>> label_parts("law; art"), label_parts(";"), label_parts("NA")
    (['law', 'art'], [], None)
    """
    if text.strip() in ("", *SPELLINGS):
        return None
    return [part.strip() for part in text.split(BETWEEN) if part.strip()]


def numbers(values: pyarrow.Array, name: str) -> Any:
    """Return a column of numbers, NaN where there is none.  float32 [rows]"""
    import pyarrow as pa

    if pa.types.is_null(values.type):
        return np.full(len(values), np.nan, dtype=np.float32)
    if not is_number(values.type):
        raise DataError(f"column {name!r} holds {values.type}: expected numbers to predict")
    found = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return found.astype(np.float32)
