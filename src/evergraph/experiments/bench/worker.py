"""A worker, which learns one seed of one run, and its progress as seen from outside."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil
import torch

from evergraph.core.errors import EvergraphError, ResultsError, say
from evergraph.core.resources import Resources, choose_device
from evergraph.core.sizes import free_memory, shown
from evergraph.experiments import runner
from evergraph.experiments.bench.jobs import Job
from evergraph.experiments.build import load_graph
from evergraph.experiments.config import RunConfig
from evergraph.experiments.store import ResultStore, SeedProgress
from evergraph.graphs import Graph

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")


@dataclass(frozen=True)
class Failure:
    """Why a run failed: one sentence, the exception's type, and the traceback if there is one."""

    error: str
    type: str
    traceback: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the failure for an exception."""
        kind = type(error).__name__
        lines = str(error).strip().splitlines() or ["no reason given"]
        message = str(error) if isinstance(error, EvergraphError) else f"{kind}: {lines[0]}"
        return cls(message, kind, "".join(traceback.format_exception(error)))


@dataclass(frozen=True)
class Event:
    """Event of one seed of a job."""

    # ``task``: one more is learned; ``kept``: the seed had already finished
    kind: Literal["started", "task", "done", "failed", "kept"]
    job: Job
    seed: int
    progress: SeedProgress | None = None
    failure: Failure | None = None
    notes: tuple[str, ...] = ()  # the log messages of a seed that has ended


def read_progress(folder: Path, seed: int) -> SeedProgress | None:
    """Return the progress of a repeat; None if its file is missing or damaged.

    It is read from the results folder: no messages between processes are needed, a killed process
    corrupts nothing, and a repeat on another machine is followed in the same way.
    """
    with suppress(ResultsError):  # resuming the repeat will report the damage
        return ResultStore(folder).seed(seed).progress()
    return None


def prepare(threads: int) -> None:
    """Prepare a new worker process; it exits when its parent process has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:

        def leave() -> None:
            parent.join()
            os._exit(1)  # finished tasks are in the folders

        threading.Thread(target=leave, daemon=True).start()
    torch.set_num_threads(threads)


def learn(job: Job, seed: int) -> Event:
    """Learn one seed, and make the run's result if it was the last one; return the end of it.

    Errors are returned, because not every exception can be pickled.
    """

    def resume(config: RunConfig, resources: Resources) -> None:
        opened = runner.open_run(
            config,
            out=job.folder,
            resume=True,
            resources=resources,
            load=_load_cached,
            seeds=[seed],
        )
        try:
            runner.learn_seed(opened, seed)
            runner.assemble_if_whole(opened)
        finally:
            opened.close()

    failure = None
    with _messages_collected() as notes:
        try:
            with suppress(OSError):  # not Linux: the peak is that of all the worker's runs
                Path("/proc/self/clear_refs").write_text("5")
            with_less_memory(job.config, resume)
            _empty_cuda_cache()  # for the other workers
        except Exception as error:
            failure = Failure.of(error)
    return ended(job, seed, failure, tuple(notes))


def ended(job: Job, seed: int, failure: Failure | None, notes: tuple[str, ...] = ()) -> Event:
    """Return the event for the end of a seed, with its progress as stored."""
    kind: Literal["done", "failed"] = "done" if failure is None else "failed"
    return Event(kind, job, seed, read_progress(job.folder, seed), failure, notes)


_last_graph: list[tuple[object, Graph]] = []


def _load_cached(config: RunConfig) -> Graph:
    """Return the configured graph; the last one is cached, because the next is often the same."""
    key = (config.dataset, config.undirected, config.directions)
    if not _last_graph or _last_graph[0][0] != key:
        _last_graph.clear()  # before loading the next one: two might not fit
        _last_graph.append((key, load_graph(config)))
    return _last_graph[0][1]


@contextmanager
def _messages_collected() -> Iterator[list[str]]:
    """Collect evergraph's log messages, instead of writing them between lines of progress."""
    notes: list[str] = []
    logger = logging.getLogger("evergraph")
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: notes.append(record.getMessage())  # type: ignore[method-assign]
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield notes
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def with_less_memory(config: RunConfig, do: Callable[[RunConfig, Resources], None]) -> None:
    """Do a run; if memory is insufficient, continue from its last task with less.

    On a GPU, the graph is first moved to main memory, then everything runs on the CPU; there, large
    arrays go to files. If that is not enough either, the error is raised.
    """
    attempts = attempts_with_less_memory(config)
    attempt, resources, _ = next(attempts)
    while True:
        try:
            do(attempt, resources)
            return
        except (MemoryError, RuntimeError) as error:
            following = next(attempts, None)
            if not is_out_of_memory(error) or following is None:
                raise
            attempt, resources, message = following
            say(f"{config.method.name} on {config.dataset.name}", message)
        gc.collect()
        _empty_cuda_cache()


def attempts_with_less_memory(config: RunConfig) -> Iterator[tuple[RunConfig, Resources, str]]:
    """Yield ways to do a run, each with less memory than the one before, and a log message."""
    yield config, Resources(), ""
    if choose_device(config.device).type == "cuda":
        message = "the GPU has too little memory: continuing with the graph in main memory"
        yield config, Resources(on_gpu=0), message
        config = config.model_copy(update={"device": "cpu"})
        yield config, Resources(), "the GPU still has too little memory: continuing on the CPU"
    half = psutil.Process().memory_info().rss + free_memory() // 2
    remedy = f"continuing within {shown(half)}, with large arrays in files"
    yield config, Resources(memory_limit=half), f"there is too little memory: {remedy}"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means out of memory; torch's are recognised by their text."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(phrase in text for phrase in _OUT_OF_MEMORY)


def _empty_cuda_cache() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
