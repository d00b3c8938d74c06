"""Parallel runs, in processes of this machine or on a Ray cluster."""

from __future__ import annotations

import math
import os
import signal
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from evergraph.cluster import ray_cluster
from evergraph.cluster.ray_engine import RayEngine
from evergraph.core.resources import choose_device
from evergraph.core.sizes import free_memory
from evergraph.datasets.base import catalogue
from evergraph.experiments.bench import worker
from evergraph.experiments.bench.jobs import Job
from evergraph.experiments.bench.worker import Event, Failure
from evergraph.experiments.store import PROGRESS, ResultStore

POLL_SECONDS = 0.25
BYTES_A_WORKER = 1_500_000_000
PROCESS_BYTES = 400_000_000  # memory of Python with torch
WORKERS_A_GPU = 4
TIME_LIMIT = "TimeLimit"  # type of a failure by time-out
Work = tuple[Job, int]  # a job and one of its seeds
WorkerPool = Callable[..., None]  # does work, as ``run_work`` does


def default_workers(jobs: Sequence[Job]) -> int:
    """Return how many runs fit on this machine at once.

    One per processor, as long as memory is free for each: ``BYTES_A_WORKER``, or what a GCN holds
    on the largest of the catalogue's graphs; at most ``WORKERS_A_GPU`` if they share a GPU.
    """
    catalogued = catalogue()
    bytes_each = BYTES_A_WORKER
    for name in {job.config.dataset.name for job in jobs} & catalogued.keys():
        # The graph, the tasks' graphs and the graph of everything seen so far are in memory at
        # once, and for every node a dozen states as wide as the hidden layer of 256.
        facts = catalogued[name]
        graph = 8 * facts.edges + 4 * facts.nodes * facts.features
        bytes_each = max(bytes_each, PROCESS_BYTES + 2 * graph + 4 * 12 * 256 * facts.nodes)
    workers = ray_cluster.cpu_count()
    if any(choose_device(job.config.device).type == "cuda" for job in jobs):
        workers = min(workers, WORKERS_A_GPU)
    return max(1, min(workers, free_memory() // bytes_each))


def threads_of(workers: int) -> int:
    """Return the number of threads per worker.

    It depends only on the number of workers, not on the remaining work: sums may depend on the
    number of threads, and a resumed run must give the same bits.
    """
    return max(1, ray_cluster.cpu_count() // workers)


def run_work(
    work: Sequence[Work],
    *,
    workers: int,
    on_event: Callable[[Event], None],
    limit: float | None = None,
    until: float | None = None,
    engine: RayEngine | None = None,
) -> None:
    """Learn every seed, ``workers`` at a time; a failure does not stop the others.

    ``on_event`` is called in this thread. If anything is raised here, including Ctrl-C, the workers
    are stopped at once; finished tasks are in their folders. limit: seconds for one seed; if it is
    exceeded, waiting seeds of the same job fail too, because they would take as long. until: when
    everything stops, by ``time.monotonic()``; what is left is neither done nor failed. engine: work
    in Ray tasks instead of processes of this machine. Results go to the same folders, so on a
    cluster these must be on a shared file system.
    """
    waiting = deque(work)
    until = math.inf if until is None else until
    count = min(workers, len(work))
    slots: list[_Slot]
    if engine is None:
        slots = [_ProcessSlot(threads_of(workers)) for _ in range(count)]
        health = None
    else:
        slots = [_RaySlot(engine) for _ in range(count)]
        health = ray_cluster.HealthCheck(engine.ray)
    try:
        while (waiting or any(slot.future for slot in slots)) and time.monotonic() < until:
            for slot in slots:
                if waiting and slot.future is None:
                    on_event(slot.start(*waiting.popleft()))
            running = [slot.future for slot in slots if slot.future is not None]
            wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            for event in [event for slot in slots for event in slot.events(limit)]:
                on_event(event)
                if event.failure is not None and event.failure.type == TIME_LIMIT:
                    for same_job in [item for item in waiting if item[0] == event.job]:
                        waiting.remove(same_job)
                        on_event(Event("failed", *same_job, failure=event.failure))
            if health is not None:
                health.check()
    finally:
        for slot in slots:
            slot.stop()


class _Slot(ABC):
    """Learns one seed at a time, and reads its progress from the files in its folder.

    ``future``: the end of the seed being learned; None if there is none.
    """

    def __init__(self) -> None:
        self.future: Future[Event] | None = None

    @abstractmethod
    def submit(self, job: Job, seed: int) -> Future[Event]: ...

    @abstractmethod
    def failure(self, error: BaseException) -> Failure:
        """Return the failure for an error of the worker itself, not of the run."""

    @abstractmethod
    def stop(self) -> object: ...

    def start(self, job: Job, seed: int) -> Event:
        self._work = (job, seed)
        self._started = time.monotonic()
        self._modified = 0.0  # time of the progress file when it was last read
        self.future = self.submit(job, seed)
        return Event("started", job, seed)

    def events(self, limit: float | None = None) -> Iterator[Event]:
        """Yield the events since the last call; stop work that took too long."""
        if (future := self.future) is None:
            return
        job, seed = self._work
        path = ResultStore(job.folder).seed(seed).folder / PROGRESS
        if future.done():
            self.future = None
            error = future.exception()
            # A worker on another machine may know the folder by another path.
            yield replace(
                worker.ended(job, seed, self.failure(error)) if error else future.result(), job=job
            )
        elif limit is not None and time.monotonic() - self._started > limit:
            self.stop()
            message = f"stopped after {limit:g} s, the time limit for one seed"
            yield worker.ended(job, seed, Failure(message, TIME_LIMIT))
        elif (modified := path.stat().st_mtime if path.exists() else 0.0) != self._modified:
            self._modified = modified
            yield Event("task", job, seed, worker.read_progress(job.folder, seed))


class _ProcessSlot(_Slot):
    """_Slot for one worker process.

    Each has its own executor, because a process that dies breaks its executor. This also shows
    which seed failed.
    """

    def __init__(self, threads: int) -> None:
        super().__init__()
        self._threads = threads
        self._executor: ProcessPoolExecutor | None = None
        self._process: BaseProcess | None = None

    def submit(self, job: Job, seed: int) -> Future[Event]:
        if self._executor is not None:
            return self._executor.submit(worker.learn, job, seed)
        others = active_children()
        self._executor = ProcessPoolExecutor(
            1,
            mp_context=get_context("spawn"),
            initializer=worker.prepare,
            initargs=(self._threads,),
        )
        with environment_of_workers(self._threads):
            future = self._executor.submit(worker.learn, job, seed)
        self._process = next((p for p in active_children() if p not in others), None)
        return future

    def stop(self) -> int | None:
        """Stop the process at once and return its exit code."""
        process, executor = self._process, self._executor
        self._executor = self._process = self.future = None
        if process is not None:
            process.terminate()
        if executor is not None:
            executor.shutdown(cancel_futures=True)  # waits until the process has ended
        return None if process is None else process.exitcode

    def failure(self, error: BaseException) -> Failure:
        if not isinstance(error, BrokenProcessPool):
            return Failure.of(error)
        code = self.stop()
        cause = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
        message = f"the worker process died ({cause})"
        if code == -signal.SIGKILL:
            message = "the worker process was killed (SIGKILL), perhaps for lack of memory"
        return Failure(message, type(error).__name__)


class _RaySlot(_Slot):
    """_Slot for one Ray task at a time.

    A task whose worker dies is retried ``RETRIES`` times, and continues after its last finished
    task of the stream. engine: sets the threads per worker.
    """

    def __init__(self, engine: RayEngine) -> None:
        super().__init__()
        self._engine = engine
        self._ref: Any = None

    def submit(self, job: Job, seed: int) -> Future[Event]:
        ray = self._engine.ray
        gpu = ray_cluster.gpu_share(ray) if job.config.device != "cpu" else 0
        task = ray.remote(_learn).options(num_cpus=1, num_gpus=gpu, max_retries=ray_cluster.RETRIES)
        job_elsewhere = replace(job, folder=job.folder.absolute())
        self._ref = task.remote(job_elsewhere, seed, Path.cwd(), self._engine.threads)
        future: Future[Event] = self._ref.future()
        return future

    def stop(self) -> None:
        if self.future is not None:
            ray_cluster.stop(self._engine.ray, [self._ref])
        self.future = None

    def failure(self, error: BaseException) -> Failure:
        if not isinstance(error, ray_cluster.deaths(self._engine.ray)):
            return Failure.of(error)
        message = f"its Ray worker died {ray_cluster.RETRIES + 1} times, perhaps for lack of memory"
        return Failure(f"{message} ({ray_cluster.first_line(error)})", type(error).__name__)


def _learn(job: Job, seed: int, folder: Path, threads: int) -> Event:
    """Learn one seed, in a Ray worker.  folder: relative paths start from it"""
    if not (folder.is_dir() and job.folder.is_dir()):
        missing = job.folder if folder.is_dir() else folder
        message = f"{missing} does not exist on a Ray worker: use a folder that all machines share"
        return worker.ended(job, seed, Failure(message, "ResultsError"))
    os.chdir(folder)
    worker.prepare(threads)
    return worker.learn(job, seed)


@contextmanager
def environment_of_workers(threads: int) -> Iterator[None]:
    """Within this context, new processes have ``threads`` threads and ignore Ctrl-C.

    OpenMP reads its variables when torch is loaded. Without this, every worker would print a
    traceback on Ctrl-C.
    """
    wanted = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    before = {name: os.environ.pop(name, None) for name in wanted}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(wanted)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value
