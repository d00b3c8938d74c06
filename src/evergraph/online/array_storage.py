"""Where arrays that grow lie when memory is limited: in files, of which some is in memory."""

from __future__ import annotations

import math
import mmap
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.errors import ResourceError
from evergraph.core.mapped import MappedTensor, disk_is_enough, give_memory_back
from evergraph.core.sizes import shown

Array = npt.NDArray[Any]

# Of the limit, what is left to be worked in: pages go when more than the rest is held.
WORK_SHARE = 0.25
# Of the limit, the most that one array which is computed may take; a larger one is mapped.
ARRAY_SHARE = 1 / 16
SPAN = 1 << 26  # bytes of a file that are read or written before the next look at what is held
_STATM = Path("/proc/self/statm")
_AROUND = 1 << 16  # what the system brings in around a page that is looked at


class ArrayStorage:
    """Files without names for arrays that grow, and a limit to what the process holds.

    Pages of the files come into memory when they are looked at. They are let go, all at once, when
    the process holds more than three quarters of the limit: the system keeps them as its cache and
    writes them to the disk as it likes. Nobody reads the files back: they are gone with the
    process, whatever it ends by.

    Args:
        limit: the most that this process is to hold, in bytes; pages of files count.
        folder: where the files go; the system's folder for such things unless given.

    >>> storage = ArrayStorage(limit=1 << 33)
    >>> room = RoomFile(storage)
    >>> room.grow(16)[:2].tolist()  # bytes, in a file
    [0, 0]
    """

    def __init__(self, *, limit: int, folder: Path | None = None) -> None:
        self.limit = limit
        self.folder = folder
        self._lock = threading.Lock()
        self._files: weakref.WeakSet[RoomFile] = weakref.WeakSet()
        if folder is not None and not folder.is_dir():
            raise ResourceError(f"scratch must be a folder that exists, not {folder}")
        if (there := held()) >= limit:
            raise ResourceError(
                f"memory_limit must be above the {shown(there)} that the process holds before the "
                f"first node, not {shown(limit)}"
            )

    def add(self, file: RoomFile) -> None:
        """Let the pages of a file go with those of the others."""
        with self._lock:
            self._files.add(file)

    def tidy(self) -> None:
        """Let the pages of all files go if too much is held to go on working."""
        if held() > (1 - WORK_SHARE) * self.limit:
            self.let_go()

    def let_go(self) -> None:
        """Let the pages of all files leave memory; nothing is lost."""
        with self._lock:
            files = list(self._files)
        for file in files:
            file.let_go()

    def check(self, nodes: int) -> None:
        """Raise if what cannot be let go has reached the limit.  nodes: how many are known"""
        if held() <= self.limit:
            return
        self.let_go()
        give_memory_back()
        if (there := held()) > self.limit:
            raise ResourceError(
                f"memory_limit must be above the {shown(there)} that a learner of {nodes:,} nodes "
                f"takes beside its mapped arrays, not {shown(self.limit)}"
            )

    def empty(self, *shape: int) -> Tensor:
        """Return room for an array to be computed: in memory if it is small, else in a file."""
        size = 4 * math.prod(shape)
        if size <= ARRAY_SHARE * self.limit:
            return torch.empty(shape)
        room = RoomFile(self).grow(size)
        return paged(room.view(np.float32).reshape(shape), self)


class RoomFile:
    """A file without a name that is mapped, and only grows."""

    def __init__(self, storage: ArrayStorage) -> None:
        self._path = storage.folder or Path(tempfile.gettempdir())
        with disk_is_enough(self._path):
            self._file = tempfile.TemporaryFile(dir=storage.folder, prefix="evergraph-")  # noqa: SIM115
        self._map: mmap.mmap | None = None
        storage.add(self)

    def grow(self, size: int) -> Array:
        """Make the file so large; return its bytes, zero where none were written.  uint8 [size]

        What was mapped before stays good, and shows the same bytes. The disk's room is claimed at
        once: a full disk is said here, not by a crash later.
        """
        pages = max(size, mmap.PAGESIZE)
        with disk_is_enough(self._path):
            if sys.platform == "linux":
                os.posix_fallocate(self._file.fileno(), 0, pages)
            else:
                self._file.truncate(pages)
            self._map = mmap.mmap(self._file.fileno(), pages)
        return np.frombuffer(self._map, np.uint8)[:size]

    def let_go(self) -> None:
        """Let all pages leave memory: they are the file's, so nothing is lost."""
        if self._map is not None and sys.platform == "linux":
            self._map.madvise(mmap.MADV_DONTNEED)


class PagedTensor(MappedTensor):
    """Rows in a file, taken out and put in a span of the file at a time.

    Between spans pages are let go if too much is held, so that as many rows as there are can be
    taken or put at once.
    """

    within: ArrayStorage

    def _take(self, rows: Tensor) -> Tensor:
        plain = self.as_subclass(Tensor)
        if self._few(rows):
            return plain[rows]
        taken = self.within.empty(len(rows), *self.shape[1:]).to(self.dtype)
        into = taken.as_subclass(Tensor)
        for part in self._spans(rows):
            into[part] = plain[rows[part]]
            self.within.tidy()
        return taken

    def __setitem__(self, index: Any, value: Any) -> None:
        plain = self.as_subclass(Tensor)
        if not isinstance(index, Tensor) or index.dim() != 1 or not isinstance(value, Tensor):
            plain[index] = value
            return
        rows = index.nonzero().flatten() if index.dtype == torch.bool else index
        if self._few(rows) or value.dim() != plain.dim() or len(value) != len(rows):
            plain[rows] = value
            return
        for part in self._spans(rows):
            plain[rows[part]] = value[part]
            self.within.tidy()

    def _few(self, rows: Tensor) -> bool:
        """Whether all of it may come into memory, as far as some rows touch it."""
        return min(self.nbytes, _AROUND * len(rows)) <= SPAN

    def _spans(self, rows: Tensor) -> Iterator[Tensor | slice]:
        """Yield places in ``rows``, those of one span of the file together.

        Rows that come twice keep their order: the last one put counts, as in memory.
        """
        ascending = bool((rows[1:] >= rows[:-1]).all())
        order = torch.arange(len(rows)) if ascending else rows.argsort(stable=True)
        step = max(SPAN // max(self[:1].nbytes, 1), 1)
        ends = torch.searchsorted(rows[order], torch.arange(step, len(self) + step, step)).tolist()
        for start, end in zip([0, *ends], ends, strict=False):
            if end > start:
                yield slice(start, end) if ascending else order[start:end]


def paged(array: Array, storage: ArrayStorage) -> PagedTensor:
    """Return an array of a file of a storage as a tensor."""
    found: PagedTensor = torch.from_numpy(array).as_subclass(PagedTensor)
    found.within = storage
    return found


def held() -> int:
    """Return how many bytes this process holds in memory, pages of files among them."""
    if sys.platform != "linux":
        import psutil

        return int(psutil.Process().memory_info().rss)
    return int(_STATM.read_bytes().split()[1]) * mmap.PAGESIZE
