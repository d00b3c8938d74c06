"""Arrays that live in a file and are read from it as they are needed."""

from __future__ import annotations

import ctypes
import errno
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError, ResourceError

_PAGE_OUT = 21  # MADV_PAGEOUT of Linux: pages leave memory, contents stay


def map_array(path: Path, *, writable: bool = False) -> Tensor:
    """Return the array of an ``.npy`` file; its values are read when they are looked at.

    What is written to it stays in this process unless it is ``writable``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder, "a.npy"), np.arange(3))
    ...     map_array(Path(folder, "a.npy"))
    tensor([0, 1, 2])
    """
    try:
        array = np.load(path, mmap_mode="r+" if writable else "c", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path}: is cut short or no .npy array ({error})") from None
    return torch.from_numpy(array)


def create_array(path: Path, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Make an ``.npy`` file of zeros and return it, mapped for writing.

    The disk's room is claimed at once: a full disk is said here, not by a crash later.
    """
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    with disk_is_enough(path):
        np.lib.format.open_memmap(path, mode="w+", dtype=kind, shape=shape).flush()
        _claim(path)
    return map_array(path, writable=True)


def _claim(path: Path) -> None:
    if sys.platform == "linux":
        import os

        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, max(path.stat().st_size, 1))


def page_out(array: Tensor) -> None:
    """Let the pages of a mapped array leave memory; nothing is lost.

    Only whole pages inside the array go. Elsewhere than on Linux the system decides by itself.
    """
    if sys.platform != "linux" or array.nbytes < mmap.PAGESIZE:
        return
    start = -(-array.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    stop = (array.data_ptr() + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if stop > start:
        advise = ctypes.CDLL(None).madvise
        advise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _PAGE_OUT)


@contextmanager
def disk_is_enough(path: Path) -> Iterator[None]:
    """Say in one sentence that the disk is full, where it is."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise ResourceError(f"{path}: the disk is full ({error.strerror})") from error
