"""Columns that tell what edges stand for, and of what type nodes are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.datasets.files.table_columns import check_filled, column, is_text
from evergraph.graphs.relations import NodeTypes, Relations

if TYPE_CHECKING:
    import pyarrow

RELATION, TYPE = "relation", "type"


def is_typed(table: pyarrow.Table) -> bool:
    """Whether a table of nodes has a column ``type`` of texts; one of numbers is a feature."""
    return TYPE in table.column_names and is_text(column(table, TYPE).type)


def node_types(table: pyarrow.Table) -> NodeTypes | None:
    """Return the types of a table's nodes, in the order in which they are met; None without any."""
    if not is_typed(table):
        return None
    names, numbers = numbered_texts(table, TYPE)
    return NodeTypes(names, numbers.to(torch.int16))


def edge_relations(
    table: pyarrow.Table, ends: Tensor, weights: Tensor | None, *, nodes: int
) -> Relations | None:
    """Return the relations of a table's edges; None without any.  ends: int64 [2, edges]"""
    if RELATION not in table.column_names:
        return None
    names, numbers = numbered_texts(table, RELATION)
    return Relations.of(ends, numbers, names, nodes=nodes, weights=weights)


def relation_names(table: pyarrow.Table) -> list[str] | None:
    """Return what each edge of a table stands for; None without any."""
    if RELATION not in table.column_names:
        return None
    names, numbers = numbered_texts(table, RELATION)
    return [names[number] for number in numbers.tolist()]


def numbered_texts(
    table: pyarrow.Table, name: str, *, before: int = 0
) -> tuple[tuple[str, ...], Tensor]:
    """Return the distinct texts of a column, and which of them each row has.  int64 [rows]

    before: how many rows came before this piece of a table.
    """
    coded = filled_texts(table, name, before=before).dictionary_encode()
    numbers = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return tuple(coded.dictionary.to_pylist()), torch.from_numpy(numbers)


def filled_texts(table: pyarrow.Table, name: str, *, before: int = 0) -> pyarrow.Array:
    """Return a column of texts, of which none may be missing; whole numbers are texts, too."""
    import pyarrow as pa

    values = column(table, name)
    if pa.types.is_integer(values.type):
        values = values.cast(pa.string())
    if not is_text(values.type) and len(values):
        raise DataError(f"column {name!r} holds {values.type}: expected texts")
    check_filled(values, name, before=before)
    return values.cast(pa.string())
