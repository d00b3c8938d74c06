"""Edges of any number, sorted into compressed rows on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evergraph.core.errors import DataError, ResourceError
from evergraph.core.mapped import disk_is_enough, map_array
from evergraph.core.written_aside import written_aside
from evergraph.datasets.importing.appended_array import AppendedArray
from evergraph.graphs.csr import pointer_type
from evergraph.graphs.graph_folder import GraphFolderWriter
from evergraph.graphs.validation import check_count

Keys = NDArray[np.int64]
Weights = NDArray[np.float32]

_KEY_BYTES = 8
_WEIGHT_BYTES = 4
_SUFFIX = ".keys"
_WEIGHTS_SUFFIX = ".weights"
_SUFFIXES = (_SUFFIX, _WEIGHTS_SUFFIX)


@dataclass(frozen=True)
class KeyRange:
    """What all runs hold of the keys below ``stop`` that no earlier range has.

    Attributes:
        stop: the first key that is not in it.
        spans: from where to where it lies in each run.
    """

    stop: int
    spans: tuple[tuple[int, int], ...]

    @property
    def seen(self) -> int:
        """How many keys of all runs are in this range or an earlier one."""
        return sum(last for _, last in self.spans)


class KeyRuns:
    """Runs that are each sorted and without doubles.

    A run is there whole or not at all, so whoever counts them knows what to go on with. Where keys
    have weights, these lie beside them.

    Args:
        folder: where they lie.
        count: how many runs of an earlier process to keep; others are removed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs = KeyRuns(Path(folder))
    ...     runs.write(np.array([1, 4, 6]))
    ...     runs.write(np.array([2, 4]))
    ...     ranges = runs.ranges(0, 9, room=6)
    ...     [(each.stop, runs.read(each).tolist()) for each in ranges]
    [(4, [1, 2]), (6, [4, 4]), (9, [6])]
    """

    def __init__(self, folder: Path, *, count: int = 0) -> None:
        self.folder = folder
        self.count = count
        with disk_is_enough(folder):
            folder.mkdir(parents=True, exist_ok=True)
        kept = {path.with_suffix(end) for path in self.paths for end in _SUFFIXES}
        for path in {path for end in _SUFFIXES for path in folder.glob(f"*{end}")} - kept:
            path.unlink()

    @property
    def paths(self) -> list[Path]:
        """The files."""
        return [self.folder / f"{run:06}{_SUFFIX}" for run in range(self.count)]

    def write(self, keys: Keys, weights: Weights | None = None) -> None:
        """Keep one more run."""
        path = self.folder / f"{self.count:06}{_SUFFIX}"
        if weights is not None:
            beside = path.with_suffix(_WEIGHTS_SUFFIX)
            with disk_is_enough(beside), written_aside(beside) as file:
                file.write(weights.data)
        with disk_is_enough(path), written_aside(path) as file:
            file.write(keys.data)
        self.count += 1

    def ranges(self, begin: int, end: int, *, room: int) -> Iterator[KeyRange]:
        """Cut the keys from ``begin`` to ``end`` into ranges of at most ``room`` keys in all."""
        if begin >= end:
            return
        cuts = [cut for cut in self._cuts(room) if begin < cut < end]
        bounds = np.array([begin, *cuts, end])
        places = [np.searchsorted(self._map(path), bounds).tolist() for path in self.paths]
        for number, stop in enumerate([*cuts, end]):
            spans = tuple((place[number], place[number + 1]) for place in places)
            yield KeyRange(stop, spans)

    def read(self, where: KeyRange, *, out: Keys | None = None) -> Keys:
        """Return the keys of a range, run after run, in ``out`` where that is given."""
        lengths = [last - first for first, last in where.spans]
        kept = np.empty(sum(lengths), np.int64) if out is None else out[: sum(lengths)]
        filled = 0
        for path, (first, last) in zip(self.paths, where.spans, strict=True):
            part = np.fromfile(path, np.int64, last - first, offset=_KEY_BYTES * first)
            kept[filled : filled + last - first] = part
            filled += last - first
        return kept

    def read_weights(self, where: KeyRange) -> Weights:
        """Return the weights of the keys of a range, run after run."""
        parts = [
            np.fromfile(
                path.with_suffix(_WEIGHTS_SUFFIX),
                np.float32,
                last - first,
                offset=_WEIGHT_BYTES * first,
            )
            for path, (first, last) in zip(self.paths, where.spans, strict=True)
        ]
        return np.concatenate([np.empty(0, np.float32), *parts])

    def discard(self) -> None:
        """Remove all runs."""
        for path in self.paths:
            path.unlink(missing_ok=True)
            path.with_suffix(_WEIGHTS_SUFFIX).unlink(missing_ok=True)

    def _cuts(self, room: int) -> list[int]:
        """Return keys between any two of which all runs together hold at most ``room`` keys.

        Every ``step``-th key of each of R runs is a sample, every R-th sample in order is a cut.
        From one cut to the next there are at most R samples, R - 1 more that equal the first,
        and less than ``step`` keys of each run behind its last: not more than 3 R ``step`` keys.
        Of that, R is to spare: cuts are even, so that no cut parts two keys that differ in their
        last bit alone.
        """
        runs = max(self.count, 1)
        step = room // (3 * runs)
        if not step:
            raise ResourceError(
                f"{self.folder}: {runs:,} sorted runs of edges are too many for the memory limit: "
                f"give a higher one"
            )
        samples = [np.array(self._map(path)[step - 1 :: step]) for path in self.paths]
        ordered = np.sort(np.concatenate([np.empty(0, np.int64), *samples]))
        cuts: list[int] = np.unique(ordered[::runs] & ~1).tolist()
        return cuts

    def _map(self, path: Path) -> Keys:
        if not path.is_file():
            raise DataError(f"{path}: is gone: begin again")
        return np.memmap(path, np.int64, "r")


_POINTERS = 1 << 20


class RowPointers:
    """``indptr`` of a graph folder; a key is ``row * 2^32 + column``.

    Every value is final when it is written, so writing a range of keys again changes nothing.

    Args:
        writer: of the graph folder.
        nodes: how many rows there are.
        entries: how many entries there may be.
        fresh: whether to make the array, or to go on with the one of an earlier process.
    """

    def __init__(self, writer: GraphFolderWriter, nodes: int, entries: int, *, fresh: bool) -> None:
        self._path = writer.folder / "indptr.npy"
        if fresh:
            writer.create("indptr", (nodes + 1,), pointer_type(entries))
        self._values: NDArray[np.integer] = map_array(self._path, writable=True).numpy()

    def write(self, keys: Keys, begin: int, stop: int, *, before: int) -> None:
        """Write where every row begins whose first key is above ``begin`` and at most ``stop``."""
        first, last = (begin >> 32) + 1, (stop >> 32) + 1
        for start in range(first, last, _POINTERS):
            rows = np.arange(start, min(start + _POINTERS, last))
            self._values[start : start + len(rows)] = before + np.searchsorted(keys, rows << 32)

    def sync(self) -> None:
        """Return once the disk has what was written."""
        with self._path.open("rb") as file:
            os.fsync(file.fileno())


# Of every pair in memory: its key, the key again once doubles are gone, its column, and masks.
_BYTES_A_PAIR = 32
# Of a pair with a weight also that, the order it is sorted by, and all once more in that order.
_BYTES_A_WEIGHTED_PAIR = 64
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

    With weights the key is ``target * 2^32 + 2 * source``, and one more for the direction that was
    listed. Of equal keys the last counts, and an edge that was listed takes the weight it had there
    rather than that of its reverse, as in ``Graph.to_undirected``. What weighs 0 is dropped.

    Args:
        folder: where runs go; they are removed when all is done.
        nodes: how many nodes the graph has.
        undirected: whether every edge is to run both ways.
        memory: how many bytes to use.
        runs: how many runs of an earlier process in ``folder`` to keep.
        weighted: whether edges have weights.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     sorter = EdgeSorter(Path(place, "runs"), nodes=3, undirected=True, memory=10**6)
    ...     sorter.add(np.array([0, 2, 1, 2]), np.array([1, 1, 0, 2]))
    ...     entries = sorter.finish(GraphFolderWriter(Path(place, "graph")))
    ...     entries, np.load(Path(place, "graph", "indptr.npy")).tolist()
    (4, [0, 1, 3, 4])
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int,
        undirected: bool,
        memory: int,
        runs: int = 0,
        weighted: bool = False,
    ) -> None:
        check_count(nodes)
        each = _BYTES_A_WEIGHTED_PAIR if weighted else _BYTES_A_PAIR
        if memory < 2 * each:
            raise ResourceError(f"memory must be {2 * each} bytes or more, not {memory}")
        self.folder = folder
        self.nodes = nodes
        self.undirected = undirected
        self.memory = memory
        self.weighted = weighted
        self.runs = KeyRuns(folder, count=runs)
        self.room = memory // each  # how many pairs may be held
        self.held = 0
        self.pairs = sum(path.stat().st_size // 8 for path in self.runs.paths if path.exists())
        self._keys: Keys = np.empty(self.room, np.int64)
        self._weights: Weights = np.empty(self.room if weighted else 0, np.float32)

    def add(self, sources: Ends, targets: Ends, weights: Weights | None = None) -> None:
        """Take edges; self-loops are dropped.  integer [edges], integer [edges], float32 [edges]"""
        assert self.weighted == (weights is not None)
        self._check(sources)
        self._check(targets)
        step = min(self.room // 2, _SLICE)
        for start in range(0, len(sources), step):
            some = slice(start, start + step)
            self._take(sources[some], targets[some], None if weights is None else weights[some])

    def spill(self) -> None:
        """Write what is held as a run, so that another process can go on from here."""
        if self.held:
            if self.weighted:
                keys, weights = _last(self._keys[: self.held], self._weights[: self.held])
                self.runs.write(keys, weights)
            else:
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
        """Write ``indptr``, ``indices`` and ``weights``; return how many entries there are.

        begin: how far an earlier process came. on_range: is told how far this one has come, once
        that is safe on the disk.
        """
        self.spill()
        done = Sorted() if begin is None else begin
        pointers = RowPointers(writer, self.nodes, self.pairs, fresh=done.key == 0)
        indices = AppendedArray(writer.folder / "indices.npy", np.int32, length=done.entries)
        weighed = self._weighed(writer, done)
        arrays = [indices] if weighed is None else [indices, weighed]
        try:
            for each in self.runs.ranges(done.key, self.nodes << 32, room=self.room):
                keys, weights = self._merged(each)
                indices.append(keys.astype(np.int32))  # the lower half of a key
                if weighed is not None:
                    weighed.append(weights)
                pointers.write(keys, done.key, each.stop, before=done.entries)
                done = Sorted(each.stop, done.entries + len(keys), each.seen)
                if on_range is not None:
                    for array in arrays:
                        array.sync()
                    pointers.sync()
                    on_range(done)
            for array in arrays:
                array.finish()
        finally:
            for array in arrays:
                array.close()
        self.runs.discard()
        return done.entries

    def _weighed(self, writer: GraphFolderWriter, done: Sorted) -> AppendedArray | None:
        path = writer.folder / "weights.npy"
        if self.weighted:
            return AppendedArray(path, np.float32, length=done.entries)
        path.unlink(missing_ok=True)  # of an import whose edges were others
        return None

    def _merged(self, where: KeyRange) -> tuple[Keys, Weights]:
        """Return what is to be written of a range: keys target · 2^32 + source, and weights."""
        keys = self.runs.read(where, out=self._keys)
        if not self.weighted:
            return _once(keys), self._weights
        return _listed_first(*_last(keys, self.runs.read_weights(where)))

    def _check(self, ends: Ends) -> None:
        if len(ends):
            lowest, highest = int(ends.min()), int(ends.max())
            if lowest < 0 or highest >= self.nodes:
                wrong = lowest if lowest < 0 else highest
                raise DataError(f"an edge ends at node {wrong}: expected 0 to {self.nodes - 1}")

    def _take(self, sources: Ends, targets: Ends, weights: Weights | None) -> None:
        distinct = sources != targets
        sources, targets = sources[distinct], targets[distinct]
        ways = [(targets, sources), (sources, targets)] if self.undirected else [(targets, sources)]
        if self.held + len(ways) * len(sources) > self.room:
            self.spill()
        for listed, (rows, columns) in zip((True, False), ways, strict=False):
            held = slice(self.held, self.held + len(rows))
            keys = self._keys[held]
            np.left_shift(rows, 32, out=keys, dtype=np.int64)
            if weights is None:
                keys |= columns.astype(np.int64, copy=False)
            else:
                keys |= columns.astype(np.int64) << 1 | listed
                self._weights[held] = weights[distinct]
            self.held += len(rows)


def _last(keys: Keys, weights: Weights) -> tuple[Keys, Weights]:
    """Sort keys and return each once, with the weight that came last."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    last = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=last[:-1])
    return keys[last], weights[order[last]]


def _listed_first(keys: Keys, weights: Weights) -> tuple[Keys, Weights]:
    """Return target · 2^32 + source of what weighs more than 0, with the weight it was listed with.

    keys: target · 2^32 + 2 · source + 1 if listed, ascending, each once
    """
    there = weights > 0
    keys, weights = keys[there], weights[there]
    last = np.ones(len(keys), bool)
    np.not_equal(keys[1:] >> 1, keys[:-1] >> 1, out=last[:-1])  # listed ones come second
    keys = keys[last]
    return keys >> 32 << 32 | (keys & 0xFFFFFFFF) >> 1, weights[last]


def _once(keys: Keys) -> Keys:
    """Sort keys in place and return each once."""
    keys.sort()
    first = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return keys if first.all() else keys[first]
