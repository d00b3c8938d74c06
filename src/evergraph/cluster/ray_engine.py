"""Engine that runs work in many processes, of this machine or of a cluster, with Ray."""

from __future__ import annotations

import io
import logging
import os
import pickle
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.cluster import ray_cluster
from evergraph.core.errors import EvergraphError, ResourceError, check_integer
from evergraph.core.mapped import MappedTensor, map_array
from evergraph.core.packages import file_plugins
from evergraph.core.resources import ColumnSlice, Engine, LocalEngine, Work, check_engine
from evergraph.core.safe_files import Closing
from evergraph.core.sizes import shown

logger = logging.getLogger(__name__)

# Items submitted per worker: one in progress and one waiting.
IN_FLIGHT = 2
# Share of a memory limit for Ray's object store on this machine.
STORE_SHARE = 0.3
MIN_STORE_BYTES = 80_000_000  # bytes of an object store


class RayEngine(Closing):
    """Runs work in Ray's worker processes.

    Results come in the order of the items and equal those of ``LocalEngine``. A worker that dies is
    replaced and its work is retried ``RETRIES`` times. Shared arrays are put in Ray's object store
    once, and all workers of a machine read them without a copy; an array in a file that every
    machine can open is sent as its path. An ``EvergraphError`` in a worker is raised here.

    Args:
        address: ``auto`` or ``host:port`` of a cluster to join; None starts Ray on this machine.
        workers: number of items worked on at a time; one per processor by default.
        threads: processors and threads per item; by default one, or more if this machine has more
            processors than workers. Fewer workers with more threads suit narrow blocks of columns.
        store: bytes of the object store if Ray is started here; Ray's default if not given.

    Attributes:
        ray: the module ray.
        threads: number of torch's threads per worker.

    If Ray was started here, it stops with the engine: on ``close``, at the end of a ``with`` block,
    or at exit. A cluster that was joined is left running.
    """

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        *,
        threads: int | None = None,
        store: int | None = None,
    ) -> None:
        for name, count in (("workers", workers), ("threads", threads)):
            if count is not None:
                check_integer(name, count, least=1)
        self.address = address
        self.ray = ray_cluster.import_ray()
        started = ray_cluster.start(
            self.ray, address, None if workers is None else workers * (threads or 1), store
        )
        # A Ray that was not started here is left alone.
        self._finalizer = weakref.finalize(
            self, ray_cluster.end if started else lambda ray: None, self.ray
        )
        self._cpus = 1 if threads is None else threads
        self._workers = workers
        share = max(ray_cluster.cpu_count() // self.workers, 1) if address is None else 1
        self.threads = share if threads is None else threads
        self._shared_files: dict[Path, bool] = {}  # whether every machine can open a file
        self._warned = False  # whether it was logged that arrays go to disk
        self._stored_records: weakref.WeakKeyDictionary[Any, tuple[Any, int]] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def workers(self) -> int:
        """Number of items worked on at a time; it grows when machines join."""
        return self._workers or max(ray_cluster.cores(self.ray) // self._cpus, 1)

    @property
    def machines(self) -> int:
        """Number of machines they run on."""
        return len(ray_cluster.alive(self.ray))

    def map(
        self, work: Work, items: Sequence[Any], *, shared: Mapping[str, Any] | None = None
    ) -> Iterator[Any]:
        """Yield ``work(item, **shared)`` for every item, in order, as results arrive.

        At most ``IN_FLIGHT`` items per worker are submitted before their results are consumed, so
        that results do not accumulate. Results are transferred while other items are worked on.
        """
        for module in file_plugins():  # which workers cannot import by name
            self.ray.cloudpickle.register_pickle_by_value(module)
        shared = dict(shared or {})
        stored = [self._stored(value) for value in shared.values()]
        refs = [ref for ref, _ in stored]
        held = sum(size for _, size in stored)
        store = ray_cluster.smallest_store(self.ray)
        task = self.ray.remote(_do).options(
            num_cpus=self._cpus,
            num_gpus=ray_cluster.gpu_share(self.ray),
            max_retries=ray_cluster.RETRIES,
        )
        head = (self.threads, os.getcwd(), work, tuple(shared))  # noqa: PTH109  (a plain text)
        pending: deque[tuple[Any, Future[Any]]] = deque()
        # If Ray has more processors than the requested workers, a waiting item would run at once.
        workers = self.workers
        all_busy = workers * self._cpus >= ray_cluster.cores(self.ray)
        max_pending = workers * (IN_FLIGHT if all_busy else 1)
        try:
            for item in items:
                if len(pending) == max_pending:
                    yield self._result(pending.popleft()[1])
                if _is_immutable_record(item):
                    argument, size = self._stored(item)
                    held += size
                else:
                    argument = pack(item)
                if held > store and not self._warned:
                    self._warned = True
                    logger.warning(
                        "workers need arrays of %s, but the smallest object store of a machine "
                        "holds %s: Ray writes what does not fit to disk, which is slower (ray "
                        "start --object-store-memory)",
                        shown(held),
                        shown(store),
                    )
                ref = task.remote(*head, argument, *refs)
                pending.append((ref, ref.future()))
            while pending:
                yield self._result(pending.popleft()[1])
        finally:
            ray_cluster.stop(self.ray, (ref for ref, _ in pending))

    def close(self) -> None:
        self._finalizer()

    def __reduce__(self) -> tuple[type[LocalEngine], tuple[()]]:
        """Unpickle in a worker as ``LocalEngine``: workers do not submit work."""
        return LocalEngine, ()

    def _stored(self, value: Any) -> tuple[Any, int]:
        """Return the reference of a stored value and its bytes; immutable records stay stored."""
        is_immutable = _is_immutable_record(value)
        if is_immutable and value in self._stored_records:
            return self._stored_records[value]

        def everywhere(path: Path) -> bool:  # whether every machine can open it, of the same size
            if self.address is None:
                return path.is_file()
            if path not in self._shared_files:
                is_shared = path.is_file() and ray_cluster.on_all_nodes(self.ray, path)
                self._shared_files[path] = is_shared
            return self._shared_files[path]

        packed = pack(value, by_path=everywhere)
        stored = self.ray.put(packed), packed.nbytes
        if is_immutable:
            self._stored_records[value] = stored
        return stored

    def _result(self, future: Future[Any]) -> Any:
        """Wait for a result and return it; raise an ``EvergraphError`` of the worker."""
        try:
            result = ray_cluster.awaited(self.ray, future)
        except (self.ray.exceptions.TaskUnschedulableError, *ray_cluster.deaths(self.ray)) as error:
            raise ResourceError(
                f"the Ray worker of an item died {ray_cluster.RETRIES + 1} times, perhaps for lack "
                f"of memory ({ray_cluster.first_line(error)})"
            ) from None
        return result.raised() if isinstance(result, _Error) else unpack(result)


def make_engine(
    name: str = "local",
    *,
    address: str | None = None,
    threads: int | None = None,
    memory: int | None = None,
) -> Engine:
    """Return the engine called ``name``.

    address, threads: see ``RayEngine``; memory: limit on this machine, in bytes, of which
    Ray's object store gets a share if Ray is started here.
    """
    check_engine(name, address, threads)
    if name == "local":
        return LocalEngine()
    store = None if memory is None else max(int(STORE_SHARE * memory), MIN_STORE_BYTES)
    return RayEngine(address, threads=threads, store=store)


@dataclass(frozen=True)
class _Error:
    """An ``EvergraphError`` with its message: the class may not be made from its message alone."""

    kind: type[EvergraphError]
    sentence: str

    def raised(self) -> Any:
        error = self.kind.__new__(self.kind)
        Exception.__init__(error, self.sentence)
        raise error


def _do(
    threads: int, folder: str, work: Work, names: Sequence[str], item: Any, *values: Any
) -> Any:
    """Do one item, in a worker.  values: shared values, fetched by Ray"""
    import torch

    from evergraph.core.resources import denormals_flushed

    torch.set_num_threads(threads)
    if Path(folder).is_dir():  # base of relative paths
        os.chdir(folder)
    try:
        shared = {name: unpack(value) for name, value in zip(names, values, strict=True)}
        with denormals_flushed():
            return pack(work(unpack(item), **shared), by_path=lambda path: False)
    except EvergraphError as error:
        return _Error(type(error), str(error))


def _is_immutable_record(value: Any) -> bool:
    """Return whether a value is an immutable record that is compared by identity."""
    if not is_dataclass(value) or isinstance(value, type):
        return False
    kind: Any = type(value)
    return bool(kind.__dataclass_params__.frozen and not kind.__dataclass_params__.eq)


class Packed(NamedTuple):
    """A pickled value, and the memory of its arrays, which can be read without a copy."""

    pickled: bytes
    buffers: list[pickle.PickleBuffer]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(memoryview(buffer).nbytes for buffer in self.buffers)


def pack(value: Any, *, by_path: Callable[[Path], bool] = lambda path: True) -> Packed:
    """Return a pickled value, with tensors as numpy arrays or by their files.

    Tensors on a GPU are copied to memory. by_path: whether the receiver can open a file.
    """
    pickler: Any = ray_cluster.import_ray().cloudpickle.CloudPickler

    def path_of(array: Tensor) -> Path | None:
        path = array.path if isinstance(array, MappedTensor) else None
        return path if path is not None and by_path(path) else None

    class Packer(pickler):  # type: ignore[misc]
        def reducer_override(self, part: Any) -> Any:
            if isinstance(part, ColumnSlice) and part.array.layout == torch.strided:
                part = part if path_of(part.array) else part.sent()
                return ColumnSlice, (part.array, part.start, part.stop, part.first)
            if type(part) not in (Tensor, MappedTensor):
                return super().reducer_override(part)
            if (path := path_of(part)) is not None:
                return map_array, (path,)
            if part.layout == torch.sparse_csr:
                parts = part.crow_indices(), part.col_indices(), part.values()
                return _csr, (*parts, tuple(part.shape))
            plain = part.detach().cpu().as_subclass(Tensor)
            # numpy has no bfloat16: its bytes are sent as integers.
            values = plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain
            return _tensor, (values.numpy(), plain.dtype)

    file = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    Packer(file, protocol=5, buffer_callback=buffers.append).dump(value)
    return Packed(file.getvalue(), buffers)


def unpack(packed: Packed) -> Any:
    """Return the original of a packed value.

    Arrays share the memory of the packed value: they must not be written to.
    """
    return pickle.loads(packed.pickled, buffers=packed.buffers)  # noqa: S301  (our own)


def _tensor(values: npt.NDArray[Any], dtype: torch.dtype) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the array is read-only, as intended
        return torch.from_numpy(values).view(dtype)


def _csr(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's CSR tensors are in beta
        return torch.sparse_csr_tensor(indptr, indices, values, shape, check_invariants=False)
