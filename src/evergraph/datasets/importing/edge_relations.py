"""What the edges of an import stand for: kept aside as they are read, sorted when all are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.resources import Resources
from evergraph.datasets.files.table_relations import RELATION
from evergraph.datasets.importing.appended_array import AppendedArray
from evergraph.datasets.importing.chunks import Chunk
from evergraph.datasets.importing.names_met import NamesMet
from evergraph.graphs.graph_folder import RELATION_ARRAYS, GraphFolderWriter
from evergraph.graphs.relations import MOST_RELATIONS, Relations

_BYTES_AN_EDGE = 300  # while relations are sorted: measured, 280 to 305


class ListedRelations:
    """Keeps, in files aside, ends, relation and weight of every edge in the order listed.

    Args:
        folder: where the files are.
        weighted: whether edges have weights.
        names: of the relations that an earlier process met.
        rows: how many edges it kept; what lies behind them is cut off.
    """

    def __init__(
        self, folder: Path, *, weighted: bool, names: Sequence[str] = (), rows: int = 0
    ) -> None:
        self._met = NamesMet(RELATION, most=MOST_RELATIONS, names=names)
        self._edges = AppendedArray(_edges(folder), np.int32, width=3, length=rows)
        self._weights = (
            AppendedArray(_weights(folder), np.float32, length=rows) if weighted else None
        )

    @property
    def names(self) -> list[str]:
        """The relations that were met so far, by number."""
        return self._met.names

    def add(
        self,
        piece: Chunk,
        sources: NDArray[np.int64],
        targets: NDArray[np.int64],
        weights: Tensor | None,
    ) -> None:
        """Take the edges of a piece."""
        numbers = self._met.numbers(piece.table, before=piece.before)
        self._edges.append(np.stack([sources, targets, numbers], axis=1))
        if self._weights is not None and weights is not None:
            self._weights.append(weights.numpy())

    def sync(self) -> None:
        """Return once the disk has what was kept."""
        for array in self._arrays():
            array.sync()

    def finish(self) -> None:
        """Complete the files."""
        for array in self._arrays():
            array.finish()

    def close(self) -> None:
        """Close the files as they are."""
        for array in self._arrays():
            array.close()

    def _arrays(self) -> list[AppendedArray]:
        return [array for array in (self._edges, self._weights) if array is not None]


def write_relations(
    folder: Path,
    writer: GraphFolderWriter,
    names: Sequence[str] | None,
    *,
    nodes: int,
    weighted: bool,
    resources: Resources,
) -> None:
    """Write the arrays of the relations that were kept in a folder; none where names are None."""
    for array in RELATION_ARRAYS:
        (writer.folder / f"{array}.npy").unlink(missing_ok=True)  # of edges that were others
    if names is None:
        return
    listed = np.load(_edges(folder), mmap_mode="r")
    resources.check(_BYTES_AN_EDGE * len(listed), f"sorting {len(listed):,} edges by relation")
    edges = torch.from_numpy(np.ascontiguousarray(listed.T))
    weights = torch.from_numpy(np.load(_weights(folder))) if weighted else None
    made = Relations.of(edges[:2], edges[2], names, nodes=nodes, weights=weights)
    for array, values in zip(
        RELATION_ARRAYS, (made.indptr, made.indices, made.kinds, made.weights), strict=True
    ):
        if values is not None:
            _write(writer.folder / f"{array}.npy", values.numpy())


def _write(path: Path, values: NDArray[Any]) -> None:
    array = AppendedArray(path, values.dtype.type)
    try:
        array.append(values)
        array.finish()
    finally:
        array.close()


def _edges(folder: Path) -> Path:
    return folder / "listed_relations.npy"


def _weights(folder: Path) -> Path:
    return folder / "listed_weights.npy"
