"""Many runs at once, on Ray's workers: on this machine or on a cluster."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evergraph.cluster.ray_cluster import (
    RETRIES,
    Patience,
    deaths,
    first_line,
    gpu_share,
    stop,
)
from evergraph.cluster.ray_engine import RayEngine
from evergraph.experiments.bench.pool import POLL_SECONDS, Event, Watch
from evergraph.experiments.bench.worker import Ending, Failure, Work, learn, prepare


class RayPool:
    """Does a benchmark's work as Ray tasks; see ``run_work`` for what it must do.

    Results go to the folders that processes of this machine would use, so on a cluster these must
    lie on a file system that all machines share. A run whose worker dies is given out again,
    ``RETRIES`` times, and goes on after the last task that it has finished.

    Args:
        engine: whose Ray it is, and how many threads a worker has.
    """

    def __init__(self, engine: RayEngine) -> None:
        self.engine = engine

    def __call__(
        self, work: Sequence[Work], *, workers: int, on_event: Callable[[Event], None]
    ) -> None:
        """Do every piece of work, so many at once; one that fails does not stop the others."""
        waiting, running = deque(work), dict[Any, Watch]()
        patience = Patience(self.engine.ray)
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    watch = Watch(waiting.popleft())
                    running[self._give_out(watch.work)] = watch
                    on_event(Event("started", watch.work))
                self._tell(running, on_event)
                patience.look()
        finally:
            stop(self.engine.ray, list(running))

    def _tell(self, running: dict[Any, Watch], on_event: Callable[[Event], None]) -> None:
        """Wait a moment for an end, and tell what has happened."""
        done, going = self.engine.ray.wait(list(running), timeout=POLL_SECONDS)
        for ref in going:
            for event in running[ref].news():
                on_event(event)
        for ref in done:
            on_event(running.pop(ref).ended(self._ending(ref)))

    def _give_out(self, work: Work) -> Any:
        ray = self.engine.ray
        gpu = gpu_share(ray) if work.config.get("device") != "cpu" else 0
        task = ray.remote(_learn).options(num_cpus=1, num_gpus=gpu, max_retries=RETRIES)
        here = Path.cwd()
        return task.remote(replace(work, folder=work.folder.absolute()), here, self.engine.threads)

    def _ending(self, ref: Any) -> Ending:
        ray = self.engine.ray
        try:
            ending: Ending = ray.get(ref)
        except deaths(ray) as error:
            said = f"its Ray worker died {RETRIES + 1} times, perhaps for lack of memory"
            return Ending(Failure(f"{said} ({first_line(error)})", type(error).__name__), ())
        except ray.exceptions.RayError as error:
            return Ending(Failure.of(error), ())
        return ending


def _learn(work: Work, here: Path, threads: int) -> Ending:
    """Learn one seed, in a worker.  here: where relative paths count from"""
    if not (here.is_dir() and work.folder.is_dir()):
        missing = work.folder if here.is_dir() else here
        said = f"{missing}: is not there for a Ray worker: use a folder that all machines share"
        return Ending(Failure(said, "ResultsError"), ())
    os.chdir(here)
    prepare(threads)
    return learn(work)
