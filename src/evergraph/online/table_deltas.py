"""Deltas from tables of nodes and edges, in the order of their rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from evergraph.core.checks import check_integer
from evergraph.core.errors import DataError
from evergraph.datasets.assembly import naming
from evergraph.datasets.table_columns import as_integers, column, features, ids, is_text
from evergraph.datasets.table_folder import RESERVED, read_table
from evergraph.online.delta import Delta, Label
from evergraph.online.delta_bytes import delta_to_bytes

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True, eq=False)
class TableDeltas:
    """Some nodes at a time, each with the edges that join it to nodes before it.

    A delta's key is a digest of its contents: the same tables in the same batches give the same
    keys, so that what was taken in before is passed over when it is sent again.

    Attributes:
        nodes: a table of id, label if known, and features.
        edges: the ids that edges join, both columns.
        batch: how many nodes a delta has.
    """

    nodes: pyarrow.Table
    edges: tuple[pyarrow.Array, pyarrow.Array]
    batch: int

    def __post_init__(self) -> None:
        check_integer("batch", self.batch, least=1)

    def __len__(self) -> int:
        return max(1, -(-int(self.nodes.num_rows) // self.batch))

    def __iter__(self) -> Iterator[Delta]:
        order, ends = self._edges_by_delta()
        for number in range(len(self)):
            rows = self.nodes.slice(number * self.batch, self.batch)
            edges = order[ends[number] : ends[number + 1]]
            yield keyed(self._delta(rows, edges, number * self.batch))

    def _delta(self, rows: pyarrow.Table, edges: npt.NDArray[Any], before: int) -> Delta:
        joined = [side.take(edges).to_pylist() for side in self.edges]
        names = [name for name in rows.column_names if name not in RESERVED]
        return Delta(
            nodes=tuple(column(rows, "id").to_pylist()),
            features=features(rows, names, before=before),
            labels=_labels(rows),
            edges=tuple(zip(*joined, strict=True)),
        )

    def _edges_by_delta(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return edges in the order in which they can come, and where each delta's end.

        An edge comes with the later of its nodes; ids that are not in the table are taken to be
        known already.
        """
        import pyarrow.compute as pc

        known = column(self.nodes, "id")
        places = [
            pc.fill_null(pc.index_in(side, value_set=known), -1).to_numpy(zero_copy_only=False)
            for side in self.edges
        ]
        number = np.maximum(np.maximum(*places), 0) // self.batch
        order = np.argsort(number, kind="stable")
        return order, np.searchsorted(number[order], np.arange(len(self) + 1))


def read_deltas(nodes: Path, edges: Path | None, *, batch: int, integers: bool) -> TableDeltas:
    """Read tables, each ``.csv`` or ``.parquet``, laid out as those of a folder of tables.

    integers: whether ids that a CSV writes as text are whole numbers.
    """
    import pyarrow as pa

    with naming(nodes):
        table = read_table(nodes, ("id",))
        table = table.set_column(table.column_names.index("id"), "id", _ids(table, "id", integers))
    if edges is None:
        nothing = pa.array([], type=table.schema.field("id").type)
        return TableDeltas(table, (nothing, nothing), batch)
    with naming(edges):
        found = read_table(edges, ("source", "target"))
        ends = (_ids(found, "source", integers), _ids(found, "target", integers))
    return TableDeltas(table, ends, batch)


def keyed(delta: Delta) -> Delta:
    """Return a delta named after its contents.

    >>> first, second = (keyed(Delta(edges=((1, 2),))).key for _ in range(2))
    >>> first == second
    True
    """
    digest = hashlib.sha256(delta_to_bytes(replace(delta, key=None))).hexdigest()
    return replace(delta, key=f"ingest-{digest[:40]}")


def _ids(table: pyarrow.Table, name: str, integers: bool) -> pyarrow.Array:
    import pyarrow as pa

    found = ids(table, name)
    try:
        return found.cast(pa.int64()) if integers else found
    except pa.ArrowInvalid as error:
        raise DataError(f"column {name!r} holds ids that are no integers: {error}") from None


def _labels(rows: pyarrow.Table) -> tuple[Label | None, ...]:
    if "label" not in rows.column_names:
        return (None,) * int(rows.num_rows)
    values = column(rows, "label")
    if is_text(values.type):
        return tuple(value or None for value in values.to_pylist())
    return tuple(as_integers(values, "label").to_pylist())
