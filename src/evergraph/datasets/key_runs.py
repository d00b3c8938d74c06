"""Sorted runs of keys on disk, read back range by range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evergraph.core.errors import DataError, ResourceError
from evergraph.core.mapped import disk_is_enough
from evergraph.core.written_aside import written_aside

Keys = NDArray[np.int64]

_KEY_BYTES = 8
_SUFFIX = ".keys"


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

    A run is there whole or not at all, so whoever counts them knows what to go on with.

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
    [(1, []), (4, [1, 2]), (6, [4, 4]), (9, [6])]
    """

    def __init__(self, folder: Path, *, count: int = 0) -> None:
        self.folder = folder
        self.count = count
        with disk_is_enough(folder):
            folder.mkdir(parents=True, exist_ok=True)
        for path in {*folder.glob(f"*{_SUFFIX}")} - {*self.paths}:
            path.unlink()

    @property
    def paths(self) -> list[Path]:
        """The files."""
        return [self.folder / f"{run:06}{_SUFFIX}" for run in range(self.count)]

    def write(self, keys: Keys) -> None:
        """Keep one more run."""
        path = self.folder / f"{self.count:06}{_SUFFIX}"
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

    def discard(self) -> None:
        """Remove all runs."""
        for path in self.paths:
            path.unlink(missing_ok=True)

    def _cuts(self, room: int) -> list[int]:
        """Return keys between any two of which all runs together hold at most ``room`` keys.

        Every ``step``-th key of each of R runs is a sample, every R-th sample in order is a cut.
        From one cut to the next there are at most R samples, R - 1 more that equal the first,
        and less than ``step`` keys of each run behind its last: not more than 3 R ``step`` keys.
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
        cuts: list[int] = np.unique(ordered[::runs]).tolist()
        return cuts

    def _map(self, path: Path) -> Keys:
        if not path.is_file():
            raise DataError(f"{path}: is gone: begin again")
        return np.memmap(path, np.int64, "r")
