"""Memory limits of work, and files for arrays that do not fit."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from evergraph.core.engine import Engine, LocalEngine
from evergraph.core.errors import ResourceError
from evergraph.core.mapped import create_array, give_memory_back
from evergraph.core.sizes import shown

T = TypeVar("T")
# Share of the memory that is free at the start, if no limit is given.
FREE_SHARE = 0.8
# Largest share of the remaining memory for one array; a larger array goes to disk.
ARRAY_SHARE = 0.25
# Share of a limit that is reserved as working memory: many small arrays would fill it as well.
WORK_SHARE = 0.5


class SharedCache:
    """Cache of values derived from an object, which lives as long as the object.

    ``saved``: seconds that making values took which were then taken again.
    """

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[Any, dict[Hashable, tuple[Any, float]]] = WeakKeyDictionary()
        self.saved = 0.0

    def take(self, thing: object, way: Hashable, make: Callable[[], T]) -> T:
        """Return the cached value for ``thing`` and ``way``, calling ``make`` the first time."""
        made = self._kept.setdefault(thing, {})
        if way in made:
            self.saved += made[way][1]
        else:
            start = perf_counter()
            made[way] = make(), perf_counter() - start
        found: T = made[way][0]
        return found


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
        held: int = psutil.Process().memory_info().rss
        return max(self.memory_limit - held, 0)

    def left_on(self, device: torch.device) -> int:
        """Return the bytes that may still be allocated on a device."""
        if device.type == "cpu":
            return self.left
        if self.on_gpu is not None:
            return self.on_gpu
        free: int = torch.cuda.mem_get_info(device)[0]
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(FREE_SHARE * (free + held))

    def tidy(self) -> None:
        """Release unused memory if there is a limit."""
        if self.memory_limit is not None:
            give_memory_back()

    def fits(self, size: int) -> bool:
        """Return whether an array of ``size`` bytes may stay in memory."""
        left = self.left
        to_work_in = 0 if self.memory_limit is None else int(WORK_SHARE * self.memory_limit)
        return size <= ARRAY_SHARE * left and left - size >= to_work_in

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
