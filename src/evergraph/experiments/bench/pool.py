"""Parallel runs, in processes of this machine or on a Ray cluster.

A benchmark only depends on the signature of ``run_work``, which ``RayPool`` shares.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

import psutil

from evergraph.cluster import ray_cluster
from evergraph.cluster.ray_engine import RayEngine
from evergraph.core.device import choose_device
from evergraph.experiments.bench import worker
from evergraph.experiments.bench.worker import Ending, Failure, SeedProgress, Work

POLL_SECONDS = 0.25
BYTES_A_WORKER = 1_500_000_000
WORKERS_A_GPU = 4
TIME_LIMIT = "TimeLimit"  # type of a failure by time-out


def default_workers(device: str) -> int:
    """Return a suitable number of workers for this machine.

    One per processor, as long as ``BYTES_A_WORKER`` of memory are free for each; at most
    ``WORKERS_A_GPU`` if they share a GPU.
    """
    room = int(psutil.virtual_memory().available // BYTES_A_WORKER)
    most = WORKERS_A_GPU if choose_device(device).type == "cuda" else ray_cluster.cpu_count()
    return max(1, min(ray_cluster.cpu_count(), room, most))


def threads_of(workers: int) -> int:
    """Return the number of threads per worker.

    It depends only on the number of workers, not on the remaining work: sums may depend on the
    number of threads, and a resumed run must give the same bits.
    """
    return max(1, ray_cluster.cpu_count() // workers)


@dataclass(frozen=True)
class Event:
    """Event of a work item; ``task`` means that one more is learned.

    ``notes`` are its log messages, once it has ended.
    """

    kind: Literal["started", "task", "done", "failed"]
    work: Work
    progress: SeedProgress | None = None
    failure: Failure | None = None
    notes: tuple[str, ...] = ()


# Does work items, as ``run_work`` does.
WorkerPool = Callable[..., None]


def run_work(
    work: Sequence[Work],
    *,
    workers: int,
    on_event: Callable[[Event], None],
    limit: float | None = None,
    until: float | None = None,
) -> None:
    """Do every work item, ``workers`` at a time; a failure does not stop the others.

    ``on_event`` is called in this thread. If anything is raised here, including Ctrl-C, the workers
    are stopped at once; finished tasks are in their folders. limit: seconds for one item; if it is
    exceeded, waiting items with the same folder fail too, because they would take as long. until:
    when everything stops, by ``time.monotonic()``; what is left is neither done nor failed.
    """
    waiting, until = deque(work), math.inf if until is None else until
    slots = [_Slot(threads_of(workers)) for _ in range(min(workers, len(work)))]
    try:
        while (waiting or any(slot.future for slot in slots)) and time.monotonic() < until:
            for slot in slots:
                if waiting and slot.future is None:
                    on_event(slot.start(waiting.popleft()))
            running = [slot.future for slot in slots if slot.future is not None]
            wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            for event in [event for slot in slots for event in slot.news(limit)]:
                on_event(event)
                if event.failure is not None and event.failure.type == TIME_LIMIT:
                    for like in [unit for unit in waiting if unit.folder == event.work.folder]:
                        waiting.remove(like)
                        on_event(Event("failed", like, failure=event.failure))
    finally:
        for slot in slots:
            slot.stop()


class ProgressWatch:
    """Detects newly learned tasks of a work item from the files in its folder."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.begun = time.monotonic()
        self._seen = 0.0

    def news(self) -> Iterator[Event]:
        """Yield an event if there is anything new."""
        path = worker.progress_path(self.work.folder, self.work.seed)
        changed = path.stat().st_mtime if path.exists() else 0.0
        if changed != self._seen:
            self._seen = changed
            yield Event("task", self.work, worker.read_progress(self.work.folder, self.work.seed))

    def ended(self, ending: Ending) -> Event:
        """Return the event for its end."""
        progress = worker.read_progress(self.work.folder, self.work.seed)
        kind: Literal["done", "failed"] = "done" if ending.failure is None else "failed"
        return Event(kind, self.work, progress, ending.failure, ending.notes)


class _Slot:
    """Slot for one worker process.

    Each has its own executor, because a process that dies breaks its executor. This also shows
    which work item failed.
    """

    def __init__(self, threads: int) -> None:
        self.future: Future[Ending] | None = None
        self._threads = threads
        self._executor: ProcessPoolExecutor | None = None
        self._process: BaseProcess | None = None
        self._watch: ProgressWatch | None = None

    def start(self, work: Work) -> Event:
        """Submit work to the process, and start it if there is none."""
        self._watch = ProgressWatch(work)
        if self._executor is not None:
            self.future = self._executor.submit(worker.learn, work)
            return Event("started", work)
        others = active_children()
        self._executor = ProcessPoolExecutor(
            1,
            mp_context=get_context("spawn"),
            initializer=worker.prepare,
            initargs=(self._threads,),
        )
        with environment_of_workers(self._threads):
            self.future = self._executor.submit(worker.learn, work)
        self._process = next((p for p in active_children() if p not in others), None)
        return Event("started", work)

    def news(self, most: float | None = None) -> Iterator[Event]:
        """Yield the events since the last call; stop work that took too long."""
        future, watch = self.future, self._watch
        if future is None or watch is None:
            return
        if future.done():
            self.future = None
            yield watch.ended(self._ending(future))
        elif most is not None and time.monotonic() - watch.begun > most:
            self.stop()
            said = f"stopped after {most:g} s, the time limit for one seed"
            yield watch.ended(Ending(Failure(said, TIME_LIMIT), ()))
        else:
            yield from watch.news()

    def stop(self) -> int | None:
        """Stop the process at once and return its exit code; finished tasks are in the folders."""
        process, executor = self._process, self._executor
        self._executor = self._process = self.future = None
        if process is not None:
            process.terminate()
        if executor is not None:
            executor.shutdown(cancel_futures=True)  # waits until the process has ended
        return None if process is None else process.exitcode

    def _ending(self, future: Future[Ending]) -> Ending:
        error = future.exception()
        if error is None:
            return future.result()
        if not isinstance(error, BrokenProcessPool):
            return Ending(Failure.of(error), ())
        code = self.stop()
        how = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
        said = f"the worker process died ({how})"
        if code == -signal.SIGKILL:
            said = "the worker process was killed (SIGKILL), perhaps for lack of memory"
        return Ending(Failure(said, type(error).__name__), ())


def was_killed(failure: Failure) -> bool:
    """Return whether a run failed because its process was killed, not because of an error."""
    return failure.type == BrokenProcessPool.__name__


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


class RayPool:
    """Does a benchmark's work as Ray tasks, like ``run_work``.

    Results go to the same folders as with local processes, so on a cluster these must be on a
    shared file system. A run whose worker dies is retried ``RETRIES`` times, and continues after
    its last finished task. engine: sets the threads per worker.
    """

    def __init__(self, engine: RayEngine) -> None:
        self.engine = engine

    def __call__(
        self, work: Sequence[Work], *, workers: int, on_event: Callable[[Event], None]
    ) -> None:
        """Do every work item, ``workers`` at a time; a failure does not stop the others."""
        ray, here = self.engine.ray, Path.cwd()
        waiting, running = deque(work), dict[Any, ProgressWatch]()
        patience = ray_cluster.Patience(ray)
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    unit = waiting.popleft()
                    gpu = ray_cluster.gpu_share(ray) if unit.config.get("device") != "cpu" else 0
                    task = ray.remote(_learn).options(
                        num_cpus=1, num_gpus=gpu, max_retries=ray_cluster.RETRIES
                    )
                    given = replace(unit, folder=unit.folder.absolute())
                    running[task.remote(given, here, self.engine.threads)] = ProgressWatch(unit)
                    on_event(Event("started", unit))
                done, going = ray.wait(list(running), timeout=POLL_SECONDS)
                for event in [event for ref in going for event in running[ref].news()]:
                    on_event(event)
                for ref in done:
                    on_event(running.pop(ref).ended(self._ending(ref)))
                patience.look()
        finally:
            ray_cluster.stop(ray, list(running))

    def _ending(self, ref: Any) -> Ending:
        ray = self.engine.ray
        try:
            ending: Ending = ray.get(ref)
        except ray_cluster.deaths(ray) as error:
            said = (
                f"its Ray worker died {ray_cluster.RETRIES + 1} times, perhaps for lack of memory"
            )
            return Ending(
                Failure(f"{said} ({ray_cluster.first_line(error)})", type(error).__name__), ()
            )
        except ray.exceptions.RayError as error:
            return Ending(Failure.of(error), ())
        return ending


def _learn(work: Work, here: Path, threads: int) -> Ending:
    """Learn one seed, in a worker.  here: folder of relative paths"""
    if not (here.is_dir() and work.folder.is_dir()):
        missing = work.folder if here.is_dir() else here
        said = f"{missing} does not exist on a Ray worker: use a folder that all machines share"
        return Ending(Failure(said, "ResultsError"), ())
    os.chdir(here)
    worker.prepare(threads)
    return worker.learn(work)
