"""Edges of any number, sorted into compressed rows on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evergraph.core.errors import DataError, ResourceError
from evergraph.datasets.appended_array import AppendedArray
from evergraph.datasets.key_runs import KeyRuns, Keys
from evergraph.datasets.row_pointers import RowPointers
from evergraph.graphs.graph_folder import GraphFolderWriter

MOST = 2**31 - 1  # what an int32 can count
# Of every pair in memory: its key, the key again once doubles are gone, its column, and masks.
_BYTES_A_PAIR = 32
_SLICE = 1 << 20

Ends = NDArray[np.integer]


@dataclass(frozen=True)
class Sorted:
    """How far a sort has come.

    Attributes:
        key: every pair with a smaller key is written.
        entries: how many those are.
        seen: of how many pairs, doubles and all.
    """

    key: int = 0
    entries: int = 0
    seen: int = 0


class EdgeSorter:
    """An external merge sort of (target, source) pairs.

    A pair is one key, ``target * 2^32 + source``. Pairs are held until ``memory`` is used up, then
    sorted and written as a run. In the end the keys are cut into ranges so that what all runs hold
    of a range fits in memory; each range is read, sorted, freed of doubles and appended. Ranges
    are of keys, not of rows, so a hub with more neighbours than fit is no special case.

    Args:
        folder: where runs go; they are removed when all is done.
        nodes: how many nodes the graph has.
        undirected: whether every edge is to run both ways.
        memory: how many bytes to use.
        runs: how many runs of an earlier process in ``folder`` to keep.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     sorter = EdgeSorter(Path(place, "runs"), nodes=3, undirected=True, memory=10**6)
    ...     sorter.add(np.array([0, 2, 1, 2]), np.array([1, 1, 0, 2]))
    ...     entries = sorter.finish(GraphFolderWriter(Path(place, "graph")))
    ...     entries, np.load(Path(place, "graph", "indptr.npy")).tolist()
    (4, [0, 1, 3, 4])
    """

    def __init__(
        self, folder: Path, *, nodes: int, undirected: bool, memory: int, runs: int = 0
    ) -> None:
        if nodes > MOST:
            raise DataError(f"the graph has {nodes:,} nodes: at most {MOST:,} are supported")
        if memory < 2 * _BYTES_A_PAIR:
            raise ResourceError(f"memory must be {2 * _BYTES_A_PAIR} bytes or more, not {memory}")
        self.folder = folder
        self.nodes = nodes
        self.undirected = undirected
        self.memory = memory
        self.runs = KeyRuns(folder, count=runs)
        self.room = memory // _BYTES_A_PAIR  # how many pairs may be held
        self.held = 0
        self.pairs = sum(path.stat().st_size // 8 for path in self.runs.paths if path.exists())
        self._keys: Keys = np.empty(self.room, np.int64)

    def add(self, sources: Ends, targets: Ends) -> None:
        """Take edges; self-loops are dropped.  integer [edges], integer [edges]"""
        self._check(sources)
        self._check(targets)
        step = min(self.room // 2, _SLICE)
        for start in range(0, len(sources), step):
            self._take(sources[start : start + step], targets[start : start + step])

    def spill(self) -> None:
        """Write what is held as a run, so that another process can go on from here."""
        if self.held:
            keys = _once(self._keys[: self.held])
            self.runs.write(keys)
            self.held = 0
            self.pairs += len(keys)

    def finish(
        self,
        writer: GraphFolderWriter,
        *,
        begin: Sorted | None = None,
        on_range: Callable[[Sorted], None] | None = None,
    ) -> int:
        """Write ``indptr`` and ``indices`` of the graph; return how many entries there are.

        begin: how far an earlier process came. on_range: is told how far this one has come, once
        that is safe on the disk.
        """
        self.spill()
        done = Sorted() if begin is None else begin
        pointers = RowPointers(writer, self.nodes, fresh=done.key == 0)
        indices = AppendedArray(writer.folder / "indices.npy", np.int32, length=done.entries)
        try:
            for each in self.runs.ranges(done.key, self.nodes << 32, room=self.room):
                keys = _once(self.runs.read(each, out=self._keys))
                if done.entries + len(keys) > MOST:
                    raise DataError(f"the graph has more than {MOST:,} edges: too many for int32")
                indices.append(keys.astype(np.int32))  # the lower half of a key
                pointers.write(keys, done.key, each.stop, before=done.entries)
                done = Sorted(each.stop, done.entries + len(keys), each.seen)
                if on_range is not None:
                    indices.sync()
                    pointers.sync()
                    on_range(done)
            indices.finish()
        finally:
            indices.close()
        self.runs.discard()
        return done.entries

    def _check(self, ends: Ends) -> None:
        if len(ends):
            lowest, highest = int(ends.min()), int(ends.max())
            if lowest < 0 or highest >= self.nodes:
                wrong = lowest if lowest < 0 else highest
                raise DataError(f"an edge ends at node {wrong}: expected 0 to {self.nodes - 1}")

    def _take(self, sources: Ends, targets: Ends) -> None:
        distinct = sources != targets
        sources, targets = sources[distinct], targets[distinct]
        ways = [(targets, sources), (sources, targets)] if self.undirected else [(targets, sources)]
        if self.held + len(ways) * len(sources) > self.room:
            self.spill()
        for rows, columns in ways:
            keys = self._keys[self.held : self.held + len(rows)]
            np.left_shift(rows, 32, out=keys, dtype=np.int64)
            keys |= columns.astype(np.int64, copy=False)
            self.held += len(rows)


def _once(keys: Keys) -> Keys:
    """Sort keys in place and return each once."""
    keys.sort()
    first = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return keys if first.all() else keys[first]
