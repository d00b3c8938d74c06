"""Where each row of a graph begins, written as sorted keys come by."""

from __future__ import annotations

import os

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.core.mapped import map_array
from evergraph.datasets.key_runs import Keys
from evergraph.graphs.graph_folder import GraphFolderWriter

_SLICE = 1 << 20


class RowPointers:
    """``indptr`` of a graph folder; a key is ``row * 2^32 + column``.

    Every value is final when it is written, so writing a range of keys again changes nothing.

    Args:
        writer: of the graph folder.
        nodes: how many rows there are.
        fresh: whether to make the array, or to go on with the one of an earlier process.
    """

    def __init__(self, writer: GraphFolderWriter, nodes: int, *, fresh: bool) -> None:
        self._path = writer.folder / "indptr.npy"
        if fresh:
            writer.create("indptr", (nodes + 1,), torch.int32)
        self._values: NDArray[np.int32] = map_array(self._path, writable=True).numpy()

    def write(self, keys: Keys, begin: int, stop: int, *, before: int) -> None:
        """Write where every row begins whose first key is above ``begin`` and at most ``stop``."""
        first, last = (begin >> 32) + 1, (stop >> 32) + 1
        for start in range(first, last, _SLICE):
            rows = np.arange(start, min(start + _SLICE, last))
            self._values[start : start + len(rows)] = before + np.searchsorted(keys, rows << 32)

    def sync(self) -> None:
        """Return once the disk has what was written."""
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
