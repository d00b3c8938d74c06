"""Many runs at once, in processes of this machine.

``run_work`` is all that a benchmark knows of where its runs go: another way of running them has
this same signature, as ``RayPool`` has, which runs them on a cluster.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess
from typing import Literal, Protocol

from evergraph.experiments.bench.capacity import threads_of
from evergraph.experiments.bench.progress import Progress, progress_path, read_progress
from evergraph.experiments.bench.worker import Ending, Failure, Work, learn, prepare

POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Event:
    """Something that happened to a piece of work.

    Attributes:
        kind: ``started``, ``task`` (one more is learned), ``done`` or ``failed``.
        work: which.
        progress: how far it is, where that is known.
        failure: why it failed.
        notes: what was logged on the way, when it has ended.
    """

    kind: Literal["started", "task", "done", "failed"]
    work: Work
    progress: Progress | None = None
    failure: Failure | None = None
    notes: tuple[str, ...] = ()


class Pool(Protocol):
    """Who does the work."""

    def __call__(
        self, work: Sequence[Work], *, workers: int, on_event: Callable[[Event], None]
    ) -> None:
        """Do every piece of work; see ``run_work``."""
        ...


@dataclass(frozen=True)
class Limits:
    """How long work may take, in seconds by the clock.

    Attributes:
        each: the most that one piece may take; with one that took longer fall those that wait and
            share its folder, which would take as long.
        until: when, by ``time.monotonic()``, everything stops; what is left is neither done nor
            failed.
    """

    each: float | None = None
    until: float | None = None

    @property
    def over(self) -> bool:
        """Whether everything is to stop."""
        return self.until is not None and time.monotonic() >= self.until


UNLIMITED = Limits()
TIME_LIMIT = "TimeLimit"  # the type of a failure for lack of time


def run_work(
    work: Sequence[Work],
    *,
    workers: int,
    on_event: Callable[[Event], None],
    limits: Limits = UNLIMITED,
) -> None:
    """Do every piece of work, so many at once; one that fails does not stop the others.

    ``on_event`` is called in this thread. If anything is raised here, Ctrl-C included, the workers
    are stopped at once; what they had finished is in their folders.
    """
    waiting = deque(work)
    slots = [_Slot(threads_of(workers)) for _ in range(min(workers, len(work)))]
    try:
        while (waiting or any(slot.busy for slot in slots)) and not limits.over:
            for slot in slots:
                if waiting and not slot.busy:
                    on_event(slot.start(waiting.popleft()))
            running = [slot.future for slot in slots if slot.future is not None]
            wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            for event in [event for slot in slots for event in slot.news(limits.each)]:
                on_event(event)
                if event.failure is not None and event.failure.type == TIME_LIMIT:
                    for like in [unit for unit in waiting if unit.folder == event.work.folder]:
                        waiting.remove(like)
                        on_event(Event("failed", like, failure=event.failure))
    finally:
        for slot in slots:
            slot.stop()


class Watch:
    """Tells when one more task of a piece of work is learned, by what lies in its folder."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._seen = 0.0

    def news(self) -> Iterator[Event]:
        """Yield an event if there is anything new."""
        path = progress_path(self._work.folder, self._work.seed)
        changed = path.stat().st_mtime if path.exists() else 0.0
        if changed != self._seen:
            self._seen = changed
            yield Event("task", self._work, read_progress(self._work.folder, self._work.seed))


def ended(work: Work, ending: Ending) -> Event:
    """Return the event that a piece of work has ended."""
    progress = read_progress(work.folder, work.seed)
    kind: Literal["done", "failed"] = "done" if ending.failure is None else "failed"
    return Event(kind, work, progress, ending.failure, ending.notes)


class _Slot:
    """A place for one worker process.

    Each has an executor of its own: a process that dies breaks its executor, and that must be
    nobody else's; and whose work it was is plain.
    """

    def __init__(self, threads: int) -> None:
        self.future: Future[Ending] | None = None
        self._threads = threads
        self._executor: ProcessPoolExecutor | None = None
        self._process: BaseProcess | None = None
        self._work: Work | None = None
        self._watch: Watch | None = None
        self._begun = 0.0

    @property
    def busy(self) -> bool:
        """Whether work is going on here."""
        return self.future is not None

    def start(self, work: Work) -> Event:
        """Give work to the process, and start the process if there is none."""
        self._work, self._watch, self._begun = work, Watch(work), time.monotonic()
        if self._executor is not None:
            self.future = self._executor.submit(learn, work)
            return Event("started", work)
        others = active_children()
        self._executor = ProcessPoolExecutor(
            1, mp_context=get_context("spawn"), initializer=prepare, initargs=(self._threads,)
        )
        with _environment(self._threads), _deaf_to_ctrl_c():
            self.future = self._executor.submit(learn, work)
        self._process = next((p for p in active_children() if p not in others), None)
        return Event("started", work)

    def news(self, most: float | None = None) -> Iterator[Event]:
        """Yield what has happened since the last call; work that took too long is stopped."""
        if self.future is None or self._work is None or self._watch is None:
            return
        late = most is not None and time.monotonic() - self._begun > most
        if not self.future.done() and not late:
            yield from self._watch.news()
            return
        if self.future.done():
            yield ended(self._work, self._ending(self.future))
        else:
            self.stop()
            said = f"stopped after {most:g} s, the most that one seed may take"
            yield ended(self._work, Ending(Failure(said, TIME_LIMIT), ()))
        self.future = self._work = None

    def stop(self) -> None:
        """End the process, at once: what it has finished is in the folders."""
        if self._process is not None:
            self._process.terminate()
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
        self._executor = self._process = None

    def _ending(self, future: Future[Ending]) -> Ending:
        error = future.exception()
        if error is None:
            return future.result()
        if not isinstance(error, BrokenProcessPool):
            return Ending(Failure.of(error), ())
        assert self._executor is not None
        self._executor.shutdown()  # waits for the process to be gone, then its exit code is known
        code = None if self._process is None else self._process.exitcode
        self._executor = self._process = None
        return Ending(Failure(_death(code), type(error).__name__), ())


def was_killed(failure: Failure) -> bool:
    """Whether a run failed because its process died, not because of anything it did."""
    return failure.type == BrokenProcessPool.__name__


def _death(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "the worker process was killed (SIGKILL), perhaps for lack of memory"
    how = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
    return f"the worker process died ({how})"


@contextmanager
def _environment(threads: int) -> Iterator[None]:
    """Set what OpenMP reads when torch is loaded, for a process that is started meanwhile."""
    wanted = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Start processes meanwhile that leave Ctrl-C to us: they would all tell the same story."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
