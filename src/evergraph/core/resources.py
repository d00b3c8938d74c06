"""What work may use: engines, devices, threads, memory, and files for arrays that do not fit."""

from __future__ import annotations

import math
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, Protocol, TypeVar, get_args
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError, DeviceError, ResourceError, check_choice
from evergraph.core.mapped import create_array, give_memory_back
from evergraph.core.sizes import shown

T = TypeVar("T")
Work = Callable[..., Any]
EngineName = Literal["local", "ray"]
ENGINES: tuple[str, ...] = get_args(EngineName)
# Share of the memory that is free at the start, if no limit is given.
FREE_SHARE = 0.8
# Largest share of the remaining memory for one array; a larger array goes to disk.
ARRAY_SHARE = 0.25
# Share of a limit that is reserved as working memory: many small arrays would fill it as well.
WORK_SHARE = 0.5


class Engine(Protocol):
    """Runs one function over many items that share some arrays.

    Only this differs between one machine and many: propagation, reach and statistics split their
    work into items and use this interface.
    """

    @property
    def workers(self) -> int:
        """Number of items worked on at a time."""
        ...

    @property
    def machines(self) -> int:
        """Number of machines they run on."""
        ...

    def map(
        self, work: Work, items: Sequence[Any], *, shared: Mapping[str, Any] | None = None
    ) -> Iterator[Any]:
        """Yield ``work(item, **shared)`` for every item, in order, as results arrive.

        ``work`` is a pure, module-level function: it may run again if a worker dies.
        shared: tensors, arrays, paths and plain values, sent to a worker once.
        """
        ...


@dataclass(frozen=True, eq=False)
class ColumnSlice:
    """Some columns of an array; if it is dense, only these are sent to a worker.

    Attributes:
        first: index of the first of them in the whole array.

    >>> import torch
    >>> ColumnSlice(torch.arange(6).reshape(2, 3), 1, 3, first=1).sent().array
    tensor([[1, 2],
            [4, 5]])
    """

    array: Tensor
    start: int
    stop: int
    first: int

    def sent(self) -> ColumnSlice:
        """Return the same columns without the others."""
        columns = self.array[:, self.start : self.stop].contiguous()
        return ColumnSlice(columns, 0, self.stop - self.start, self.first)


class LocalEngine:
    """Processes items one after another in this process, with all of its threads.

    >>> list(LocalEngine().map(pow, [2, 3], shared={"exp": 2}))
    [4, 9]
    """

    workers = 1
    machines = 1

    def map(
        self, work: Work, items: Sequence[Any], *, shared: Mapping[str, Any] | None = None
    ) -> Iterator[Any]:
        """Yield ``work(item, **shared)`` for every item, in order."""
        return (work(item, **(shared or {})) for item in items)


def check_engine(name: str, address: str | None, threads: int | None = None) -> None:
    """Raise unless the engine exists and takes the options that are given."""
    check_choice("engine", name, ENGINES)
    for option, value in (("address", address), ("worker threads", threads)):
        if value is not None and name != "ray":
            raise ConfigurationError(f"{option} {value!r} needs engine 'ray', not {name!r}")


class SharedCache:
    """Cache of values derived from an object, which lives as long as the object.

    ``saved``: seconds that making values took which were then taken again.
    """

    def __init__(self) -> None:
        self._values: WeakKeyDictionary[Any, dict[Hashable, tuple[Any, float]]] = (
            WeakKeyDictionary()
        )
        self.saved = 0.0

    def take(self, owner: object, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached value for ``thing`` and ``way``, calling ``make`` the first time."""
        values = self._values.setdefault(owner, {})
        if key in values:
            self.saved += values[key][1]
        else:
            start = perf_counter()
            values[key] = make(), perf_counter() - start
        value: T = values[key][0]
        return value


@dataclass(frozen=True)
class Resources:
    """Resources that work may use.

    Attributes:
        memory_limit: the most memory of this process, in bytes; by default its current memory and
            four fifths of the free memory.
        scratch: folder for arrays that do not fit; the system's temporary folder by default.
        engine: runs work that can be split into blocks.
        on_gpu: the most bytes of graphs and embeddings on a GPU; by default its free memory. 0
            keeps them in main memory, and only training batches go to the GPU.
        cache: cache shared by learners that run together; None if each computes its own values.
    """

    memory_limit: int | None = None
    scratch: Path | None = None
    engine: Engine = field(default_factory=LocalEngine)
    cache: SharedCache | None = None
    on_gpu: int | None = None

    @property
    def left(self) -> int:
        """Bytes that may still be allocated."""
        import psutil

        if self.memory_limit is None:
            return int(FREE_SHARE * psutil.virtual_memory().available)
        used: int = psutil.Process().memory_info().rss
        return max(self.memory_limit - used, 0)

    def left_on(self, device: torch.device) -> int:
        """Return the bytes that may still be allocated on a device."""
        if device.type == "cpu":
            return self.left
        if self.on_gpu is not None:
            return self.on_gpu
        free: int = torch.cuda.mem_get_info(device)[0]
        cached_by_torch = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(FREE_SHARE * (free + cached_by_torch))

    def tidy(self) -> None:
        """Release unused memory if there is a limit."""
        if self.memory_limit is not None:
            give_memory_back()

    def fits(self, size: int) -> bool:
        """Return whether an array of ``size`` bytes may stay in memory."""
        left = self.left
        working_memory = 0 if self.memory_limit is None else int(WORK_SHARE * self.memory_limit)
        return size <= ARRAY_SHARE * left and left - size >= working_memory

    def array(self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """Return an empty array, in memory if it fits, else mapped from a temporary file.

        The file is already unlinked when this returns, so even a killed process leaves nothing
        behind.
        """
        size = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
        if self.fits(size):
            return torch.empty(shape, dtype=dtype)
        self.tidy()
        folder = self.scratch if self.scratch is not None else Path(tempfile.gettempdir())
        with tempfile.TemporaryDirectory(dir=folder, prefix="evergraph-") as aside:
            return create_array(Path(aside, "array.npy"), shape, dtype)

    def check(self, size: int, purpose: str) -> None:
        """Raise unless ``size`` bytes, the least that is needed, can be allocated."""
        if size > self.left:
            raise ResourceError(
                f"{purpose} takes at least {shown(size)}, but only {shown(self.left)} of "
                f"memory {'are free' if self.memory_limit is None else 'are left within the limit'}"
            )


DEVICES = ("auto", "cpu", "cuda")
STATUS = Path("/proc/self/status")  # of Linux


def choose_device(name: str = "auto") -> torch.device:
    """Return the device called ``name``; ``auto`` chooses a GPU if there is one."""
    check_choice("device", name, DEVICES)
    if name == "cuda" and not torch.cuda.is_available():
        raise DeviceError("device must be 'cpu' or 'auto', not 'cuda': torch finds no CUDA device")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def _use_one_thread() -> None:
    """Let a forked child use one thread: of torch's it has none, and would wait for them for ever.

    oneDNN asks for as many as the parent had, on Arm, and is left out.
    """
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)
        torch._C._set_mkldnn_enabled(False)


os.register_at_fork(after_in_child=_use_one_thread)


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Round numbers below 1e-38 to zero on this CPU thread and on threads started within.

    Adam's moments of unused weights decay into that range, where every operation is many times
    slower on a CPU. Threads inherit the mode when they start, so enter this before any work.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)  # torch's default; the previous mode cannot be read


def peak_rss_bytes() -> int:
    """Return the peak resident size of this process so far; 0 if unknown."""
    if STATUS.exists():  # getrusage would include the parent process
        line = next(x for x in STATUS.read_text().splitlines() if x.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def cpu_count() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Multiplications that keep one thread busy for a few milliseconds. With less work per thread,
# threads would wait for each other longer than they work: decision record 30.
WORK_A_THREAD = 50_000_000
_SHARED: ContextVar[int | None] = ContextVar("threads that share pieces of work", default=None)


def available_threads() -> int:
    """Return the number of threads for work that is split without splitting a sum."""
    return _SHARED.get() or torch.get_num_threads()


@contextmanager
def fixed_sums() -> Iterator[None]:
    """Make every sum the same, bit for bit, for any number of threads.

    Torch and its BLAS split long sums by the number of threads, so within this context they have
    one. The other threads remain available for work in pieces whose size does not depend on their
    number, see ``evergraph.graphs.kernels.row_ranges``.

    >>> with exactly_threads(2), fixed_sums():
    ...     torch.get_num_threads(), available_threads()
    (1, 2)
    """
    before = _SHARED.set(available_threads())
    try:
        with exactly_threads(1):
            yield
    finally:
        _SHARED.reset(before)


def worthwhile_threads(work: int | None) -> AbstractContextManager[None]:
    """Return a context in which torch has as many threads as work of this size is worth.

    It depends only on sizes, never on time: the last bits of a sum may depend on the number of
    threads.

    work: multiplications per operation; None if unknown, which keeps all threads.
    """
    if work is None:
        return exactly_threads(None)
    return exactly_threads(min(torch.get_num_threads(), max(1, work // WORK_A_THREAD)))


def sums_by(threads: int | None) -> AbstractContextManager[None]:
    """Return ``exactly_threads``, or ``fixed_sums`` if no number is given."""
    return fixed_sums() if threads is None else exactly_threads(threads)


@contextmanager
def exactly_threads(count: int | None) -> Iterator[None]:
    """Set torch's number of threads within this context, in this thread; None changes nothing.

    For results that must be the same, bit for bit, in every process and on every machine.

    >>> with exactly_threads(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
