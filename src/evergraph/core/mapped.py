"""Arrays in files, which are read as needed."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.safe_files import disk_is_enough

_PAGE_OUT = 21  # MADV_PAGEOUT of Linux: evicts pages without losing their contents
# Most bytes of a mapped array that stay in memory while it is read.
RESIDENT = 1 << 28
MANY = 1 << 16  # rows taken at once, after which even a small array's pages are evicted
# Bytes that the system may read around a page.
_AROUND = 1 << 16
_BYTES_PER_WRITE = 1 << 26  # bytes written at a time


class MappedTensor(Tensor):
    """Tensor whose values are in a file.

    It is read like any other tensor, and results of operations on it are ordinary tensors. Rows
    taken from it do not accumulate in memory: pages are evicted during reading.

    Attributes:
        path: the file, if another process that opens it sees the same values; else None.
        file: the same file open for writing, if the tensor is writable.
        start: where in the file the values begin.
    """

    # Results of operations are ordinary tensors.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    path: Path | None = None
    file: BinaryIO | None = None
    start: int = 0
    _read: int = 0

    def __getitem__(self, index: Any) -> Tensor:
        if isinstance(index, Tensor) and index.dim() == 1:
            rows = index.nonzero().flatten() if index.dtype == torch.bool else index
            return self._take(rows)
        part: Tensor = super().__getitem__(index)
        return part

    def _take(self, rows: Tensor) -> Tensor:
        """Return some rows, in any order; many rows are read in one pass through the file."""
        plain = self.as_subclass(Tensor)
        if plain.nbytes <= RESIDENT:  # a pass in blocks would gain nothing
            values = plain[rows]
            if len(rows) > MANY:  # there may be many such arrays
                page_out(plain)
            return values
        self._read += max(_AROUND, plain[:1].nbytes) * len(rows)
        if self._read < RESIDENT:
            return plain[rows]
        order = rows.argsort()
        values = torch.empty(len(rows), *self.shape[1:], dtype=self.dtype)
        for part in order.split(max(RESIDENT // _AROUND, 1)):
            first, stop = int(rows[part[0]]), int(rows[part[-1]]) + 1
            if (stop - first) * plain[:1].nbytes <= _AROUND * len(part):  # no more than pages
                values[part] = fetch(self, first, stop)[rows[part] - first]
            else:
                values[part] = plain[rows[part]]
            page_out(plain[first:stop])
        page_out(plain)
        self._read = 0
        return values


class AppendedArray:
    """Writes an ``.npy`` file in pieces, without holding it in memory or knowing its length.

    The header has a fixed size, so it is overwritten at the end of the ``with`` block. Until then,
    and after an error, it declares an empty array.

    path: the file. dtype: type of the values. width: values per row; without it the array is flat.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with AppendedArray(Path(folder, "a.npy"), np.int32) as array:
    ...         array.append(np.array([4, 5]))
    ...         array.append(np.array([6]))
    ...     np.load(Path(folder, "a.npy")).tolist()
    [4, 5, 6]
    """

    def __init__(self, path: Path, dtype: type[np.number], *, width: int | None = None) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        self.width = width
        self.length = 0
        with disk_is_enough(path):
            self._file = path.open("wb")
            self._write_header()

    def __enter__(self) -> AppendedArray:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        with disk_is_enough(self.path), self._file:  # which writes the rest when it is closed
            if error is None:
                self._file.seek(0)
                self._write_header()
                os.fsync(self._file.fileno())

    def append(self, values: NDArray[np.number]) -> None:
        """Append values.  [rows] or [rows, width]"""
        with disk_is_enough(self.path):
            self._file.write(np.ascontiguousarray(values, self.dtype).data)
        self.length += len(values)

    def _write_header(self) -> None:
        shape = (self.length,) if self.width is None else (self.length, self.width)
        about = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(self._file, about)
        self._file.flush()


def map_array(path: Path, *, writable: bool = False) -> MappedTensor:
    """Return the array of an ``.npy`` file; its values are read when they are used.

    Unless ``writable``, changes stay in this process.
    """
    try:
        array = np.load(path, mmap_mode="r+" if writable else "c", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path} is truncated or not an .npy array ({error})") from None
    mapped = torch.from_numpy(array).as_subclass(MappedTensor)
    mapped.path = None if writable else path.absolute()
    mapped.file = path.open("r+b", buffering=0) if writable else None
    mapped.start = path.stat().st_size - mapped.nbytes
    return mapped


def create_array(path: Path, shape: tuple[int, ...], dtype: torch.dtype) -> MappedTensor:
    """Make an ``.npy`` file of zeros and return it, mapped for writing.

    The disk space is allocated at once, so that a full disk is an error here and not a crash later.
    """
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    with disk_is_enough(path):
        np.lib.format.open_memmap(path, mode="w+", dtype=kind, shape=shape).flush()
        if sys.platform == "linux":
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, max(path.stat().st_size, 1))
    return map_array(path, writable=True)


def is_mapped(array: Tensor) -> bool:
    """Return whether an array's values are in a file."""
    return isinstance(array, MappedTensor)


def put(array: Tensor, first: int, rows: Tensor) -> None:
    """Write whole rows to an array, from row ``first`` on.

    A mapped array is written through its file: pages written in memory would stay there until they
    are on disk, and a slow disk would let them fill the memory.
    """
    if not isinstance(array, MappedTensor):
        array[first : first + len(rows)] = rows
        return
    assert array.file is not None, "mapped for reading"
    values = rows.to(array.dtype).contiguous()
    offset = array.start + first * array[:1].nbytes
    with disk_is_enough(Path(str(array.file.name))):
        view = memoryview(values.view(torch.uint8).reshape(-1).numpy())  # type: ignore[arg-type]
        while len(view):
            written = os.pwrite(array.file.fileno(), view[:_BYTES_PER_WRITE], offset)
            view, offset = view[written:], offset + written


def fetch(array: Tensor, first: int, stop: int) -> Tensor:
    """Return some rows of an array: a view, or a copy if it is mapped for writing.

    The copy is read through the file: pages that are still being written would stay in memory until
    they are on disk.

    >>> fetch(torch.arange(4), 1, 3)
    tensor([1, 2])
    """
    if not isinstance(array, MappedTensor) or array.file is None:
        return array[first:stop]
    rows = torch.empty(min(stop, len(array)) - first, *array.shape[1:], dtype=array.dtype)
    offset = array.start + first * array[:1].nbytes
    view = memoryview(rows.view(torch.uint8).reshape(-1).numpy())  # type: ignore[arg-type]
    while len(view):
        read = os.preadv(array.file.fileno(), [view[:_BYTES_PER_WRITE]], offset)
        view, offset = view[read:], offset + read
    return rows


def in_memory(array: Tensor) -> Tensor:
    """Return an array in memory (itself if it already is)."""
    return array.as_subclass(Tensor).clone() if is_mapped(array) else array


def shortened(array: Tensor, length: int) -> Tensor:
    """Return the first rows of an array, mapped if the array is."""
    if not isinstance(array, MappedTensor):
        return array[:length]
    part = array[:length].as_subclass(MappedTensor)
    part.path, part.file, part.start = array.path, array.file, array.start
    return part


def page_out(array: Tensor) -> None:
    """Evict the pages of a mapped array, or of a slice of one, from memory; nothing is lost.

    Only whole pages inside the array are evicted. Outside Linux this is left to the system.
    """
    if sys.platform != "linux" or array.nbytes < mmap.PAGESIZE:
        return
    start = -(-array.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    stop = (array.data_ptr() + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if stop > start:
        advise = ctypes.CDLL(None).madvise
        advise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _PAGE_OUT)


def give_memory_back() -> None:
    """Evict all pages of mapped arrays, and return freed memory to the system.

    The system would do both when memory is short, but until then they count as used.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *_, name = line.split(maxsplit=5)
        if name.endswith((".npy", ".npy (deleted)")):
            start, stop = (int(end, 16) for end in span.split("-"))
            library.madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _PAGE_OUT)
    if hasattr(library, "malloc_trim"):  # glibc only
        library.malloc_trim(0)
