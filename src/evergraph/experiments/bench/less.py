"""Going on with less where memory did not suffice: no number of a result depends on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from evergraph.core.device import choose_device
from evergraph.core.free_memory import free_memory
from evergraph.core.notices import say
from evergraph.core.resources import Resources
from evergraph.core.sizes import shown
from evergraph.experiments.config import RunConfig

_SIGNS = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")


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
