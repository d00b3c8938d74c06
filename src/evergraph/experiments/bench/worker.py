"""What a worker does: one seed of one run.

Importing this module loads no torch: a worker sets its threads before that.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from evergraph.core.device import choose_device
from evergraph.core.errors import EvergraphError
from evergraph.core.notices import say
from evergraph.core.resources import Resources
from evergraph.core.sizes import free_memory, shown
from evergraph.experiments.config import RunConfig

if TYPE_CHECKING:
    from evergraph.core.resources import Resources
    from evergraph.graphs import Graph


_SIGNS = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")


@dataclass(frozen=True)
class Work:
    """One seed of one run: all that a worker has to be told.

    Attributes:
        config: the run's whole configuration as plain values, all seeds included.
        seed: the one to learn.
        folder: the run's results folder, which its other seeds share.
    """

    config: dict[str, Any]
    seed: int
    folder: Path


@dataclass(frozen=True)
class Failure:
    """Why a run failed: one sentence, the exception's type, and the traceback if there is one."""

    error: str
    type: str
    traceback: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the failure that an exception stands for.

        >>> Failure.of(ValueError("too deep")).error
        'ValueError: too deep'
        """
        kind = type(error).__name__
        lines = str(error).strip().splitlines() or ["no reason given"]
        said = str(error) if isinstance(error, EvergraphError) else f"{kind}: {lines[0]}"
        return cls(said, kind, "".join(traceback.format_exception(error)))


@dataclass(frozen=True)
class Ending:
    """How a piece of work ended: the failure if it did fail, and what was logged on the way."""

    failure: Failure | None
    notes: tuple[str, ...]


def prepare(threads: int) -> None:
    """Make a new process ready for work."""
    import torch

    _leave_with_parent()
    torch.set_num_threads(threads)
    # The first optimiser imports torch's compiler: seconds that are not the first run's.
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])


def _leave_with_parent() -> None:
    """End this process when the one that started it is gone, however that ended."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)  # what was finished is in the folders

    threading.Thread(target=wait, daemon=True).start()


def learn(work: Work) -> Ending:
    """Learn one seed, and make the run's result if it was the last one to be done.

    Whatever goes wrong is returned: not every exception survives the way between processes.
    """
    failure = None
    with _noted() as notes:
        try:
            _learn(work)
        except Exception as error:
            failure = Failure.of(error)
    return Ending(failure, tuple(notes))


def _learn(work: Work) -> None:

    _forget_peak()
    with_less(RunConfig.of(work.config), partial(_learn_within, work))
    _free_gpu()


def _learn_within(work: Work, config: RunConfig, resources: Resources) -> None:
    """Learn one seed with some resources, from wherever its folder says it stopped."""
    from evergraph.experiments.runner import assemble_if_whole, learn_seed, open_run

    opened = open_run(
        config, out=work.folder, resume=True, resources=resources, load=_shelf.load,
        seeds=[work.seed],
    )  # fmt: skip
    try:
        learn_seed(opened, work.seed)
        assemble_if_whole(opened)
    finally:
        opened.close()


class _Shelf:
    """Holds the graph loaded last: the next piece of work is often on the same."""

    def __init__(self) -> None:
        self._key: object = None
        self._graph: Graph | None = None

    def load(self, config: RunConfig) -> Graph:
        """Return the configured graph."""
        from evergraph.experiments.build import load_graph

        key = (config.dataset, config.undirected)
        if self._graph is None or key != self._key:
            self._graph = None  # before the next one comes: two might not fit
            self._graph = load_graph(config)
            self._key = key
        return self._graph


_shelf = _Shelf()


@contextmanager
def _noted() -> Iterator[list[str]]:
    """Collect what our own log says, instead of writing it into the table on the terminal."""
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


def _forget_peak() -> None:
    """Let the largest resident size count from now on; it is the last run's otherwise."""
    with suppress(OSError):  # not Linux: the figure is the worker's, over all of its runs
        Path("/proc/self/clear_refs").write_text("5")


def _free_gpu() -> None:
    """Give memory that torch holds for later back to the other workers on the GPU."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@dataclass(frozen=True)
class Way:
    """A way to do a run: where, with what, and how that is told."""

    config: RunConfig
    resources: Resources
    told: str = ""


def with_less(config: RunConfig, do: Callable[[RunConfig, Resources], None]) -> None:
    """Do a run; where memory does not suffice, go on from its last task with less.

    On a GPU the graph stays in main memory next, and then everything runs on the CPU; there, large
    arrays go to files. What the last way lacks is raised.
    """
    ways = ever_less(config)
    way = next(ways)
    while True:
        try:
            do(way.config, way.resources)
            return
        except (MemoryError, RuntimeError) as error:
            following = next(ways, None)
            if not is_out_of_memory(error) or following is None:
                raise
            say(f"{config.method.name} on {config.dataset.name}", following.told)
            way = following
        _free()


def ever_less(config: RunConfig) -> Iterator[Way]:
    """Yield ways to do a run, each of which takes less memory than the one before."""
    yield Way(config, Resources())
    if choose_device(config.device).type == "cuda":
        yield Way(
            config,
            Resources(on_gpu=0),
            "the GPU has too little memory: it goes on with the graph in main memory",
        )
        config = config.model_copy(update={"device": "cpu"})
        yield Way(config, Resources(), "the GPU still has too little memory: it goes on on the CPU")
    half = _half_of_what_is_free()
    yield Way(
        config,
        Resources(memory=half),
        f"there is too little memory: it goes on within {shown(half)}, large arrays in files",
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory did not suffice; of torch's, only the words tell.

    >>> is_out_of_memory(RuntimeError("CUDA out of memory.")), is_out_of_memory(RuntimeError("no"))
    (True, False)
    """
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in _SIGNS)


def _half_of_what_is_free() -> int:
    import psutil

    held: int = psutil.Process().memory_info().rss
    return held + free_memory() // 2


def _free() -> None:
    """Give back what the try that failed still holds."""
    import gc

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
