"""Files for growable arrays when memory is limited, paged in on demand."""

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

# Share of the limit reserved for computation: pages are released when more than the rest is held.
WORK_SHARE = 0.25
# Share of the limit that one computed array may take in memory; a larger one is mapped to a file.
ARRAY_SHARE = 1 / 16
# Bytes of a file that are read or written between two checks of memory: at most this many, and at
# most this share of the limit.
SPAN, SPAN_SHARE = 1 << 26, 1 / 64
_STATM = Path("/proc/self/statm")
_AROUND = 1 << 16  # bytes that the system reads ahead around a page


class ArrayStorage:
    """Unnamed files for growable arrays, and a limit on the memory of the process.

    Pages of the files come into memory when they are read. They are all released when the process
    holds more than three quarters of the limit; the system then keeps them in its cache and writes
    them to disk as it sees fit. The files have no names, so they vanish with the process however it
    ends.

    Args:
        limit: of the memory of this process in bytes; pages of files count.
        folder: for the files; by default the system's temporary folder.

    >>> storage = ArrayStorage(limit=1 << 33)
    >>> room = RoomFile(storage)
    >>> room.grow(16)[:2].tolist()  # bytes, in a file
    [0, 0]
    """

    def __init__(self, *, limit: int, folder: Path | None = None) -> None:
        self.limit, self.folder = limit, folder
        self._lock = threading.Lock()
        self._in_use = 0  # bytes, after freed memory was last given back
        self._maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()  # as long as an array is in it
        if folder is not None and not folder.is_dir():
            raise ResourceError(f"scratch must be an existing folder, not {folder}")
        if (there := held()) >= limit:
            raise ResourceError(
                f"memory_limit must be above the {shown(there)} that the process holds before the "
                f"first node, not {shown(limit)}"
            )

    def add(self, mapped: mmap.mmap) -> None:
        """Register a mapped file, whose pages are then released with those of the others."""
        with self._lock:
            self._maps.add(mapped)

    def tidy(self) -> None:
        """Release the pages of all files, and freed memory, if little of the limit is left."""
        most = (1 - WORK_SHARE) * self.limit
        if held() <= most:
            return
        self.let_go()
        # The allocator keeps what is freed: after a delta that is felt everywhere, a sixth of the
        # limit. It is asked only if there may be something new: what is in use may stay above.
        there = held()
        self._in_use = min(self._in_use, there)
        if there > max(most, self._in_use + ARRAY_SHARE * self.limit):
            give_memory_back()
            self._in_use = held()

    def let_go(self) -> None:
        """Release the pages of all files from memory; nothing is lost."""
        with self._lock:
            maps = list(self._maps)
        if sys.platform == "linux":
            for mapped in maps:
                mapped.madvise(mmap.MADV_DONTNEED)

    def check(self, nodes: int) -> None:
        """Raise if memory that cannot be released exceeds the limit.  nodes: for the message"""
        if held() <= self.limit:
            return
        self.let_go()
        give_memory_back()
        if (there := held()) > self.limit:
            raise ResourceError(
                f"memory_limit must be above the {shown(there)} that a learner of {nodes:,} nodes "
                f"takes beside its mapped arrays, not {shown(self.limit)}"
            )

    @property
    def span(self) -> int:
        """How many bytes of a file are read or written before the next look at what is held."""
        return min(SPAN, int(SPAN_SHARE * self.limit))

    def empty(self, *shape: int) -> Tensor:
        """Return an uninitialised array: in memory if it is small, else in a file."""
        size = 4 * math.prod(shape)
        if size <= ARRAY_SHARE * self.limit:
            return torch.empty(shape)
        room = RoomFile(self).grow(size)
        return paged(room.view(np.float32).reshape(shape), self)


class RoomFile:
    """An unnamed, memory-mapped file that only grows."""

    def __init__(self, storage: ArrayStorage) -> None:
        self._path = storage.folder or Path(tempfile.gettempdir())
        with disk_is_enough(self._path):
            self._file = tempfile.TemporaryFile(dir=storage.folder, prefix="evergraph-")  # noqa: SIM115
        self._storage = storage

    def grow(self, size: int) -> Array:
        """Grow the file; return its bytes, zero where nothing was written.  uint8 [size]"""
        # Earlier mappings stay valid and show the same bytes. Disk space is allocated at once, so
        # that a full disk raises an error here instead of a crash later.
        pages = max(size, mmap.PAGESIZE)
        with disk_is_enough(self._path):
            if sys.platform == "linux":
                os.posix_fallocate(self._file.fileno(), 0, pages)
            else:
                self._file.truncate(pages)
            mapped = mmap.mmap(self._file.fileno(), pages)
        self._storage.add(mapped)
        return np.frombuffer(mapped, np.uint8)[:size]


class PagedTensor(MappedTensor):
    """Rows in a file, read and written a span of the file at a time.

    Between spans pages are released if too much is held, so that any number of rows can be read or
    written by one call.
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
        """Whether the pages that some rows touch fit into one span."""
        return min(self.nbytes, _AROUND * len(rows)) <= self.within.span

    def _spans(self, rows: Tensor) -> Iterator[Tensor | slice]:
        """Yield indices into ``rows``, grouped by span of the file."""
        # Repeated rows keep their order, so that the last one written counts, as in memory.
        ascending = bool((rows[1:] >= rows[:-1]).all())
        order = torch.arange(len(rows)) if ascending else rows.argsort(stable=True)
        step = max(self.within.span // max(self[:1].nbytes, 1), 1)
        ends = torch.searchsorted(rows[order], torch.arange(step, len(self) + step, step)).tolist()
        for start, end in zip([0, *ends], ends, strict=False):
            if end > start:
                yield slice(start, end) if ascending else order[start:end]


def paged(array: Array, storage: ArrayStorage) -> PagedTensor:
    """Return an array in a file of a storage as a tensor."""
    found: PagedTensor = torch.from_numpy(array).as_subclass(PagedTensor)
    found.within = storage
    return found


def held() -> int:
    """Return how many bytes this process holds in memory, pages of files among them."""
    if sys.platform != "linux":
        import psutil

        return int(psutil.Process().memory_info().rss)
    return int(_STATM.read_bytes().split()[1]) * mmap.PAGESIZE
