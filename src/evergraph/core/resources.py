"""How much memory work may take, and where what does not fit goes."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from evergraph.core.engine import Engine, LocalEngine
from evergraph.core.errors import ResourceError
from evergraph.core.mapped import create_array, give_memory_back
from evergraph.core.sizes import shown

T = TypeVar("T")


class Shelf:
    """Keeps what was made of a thing, by how it was made, while the thing lives.

    >>> class Thing: ...
    >>> shelf, thing = Shelf(), Thing()
    >>> shelf.take(thing, "name", lambda: "made"), shelf.take(thing, "name", lambda: "made again")
    ('made', 'made')
    """

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[Any, dict[Hashable, Any]] = WeakKeyDictionary()

    def take(self, thing: object, way: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` returned the first time this was asked for."""
        made = self._kept.setdefault(thing, {})
        if way not in made:
            made[way] = make()
        found: T = made[way]
        return found


# Of the memory that is free when work begins, unless a limit is given.
FREE_SHARE = 0.8
# Of what is left, the most that one array that stays may take; a larger one goes to disk.
ARRAY_SHARE = 0.25
# Of a limit, what arrays that stay leave to be worked in: many small ones would fill it as well.
WORK_SHARE = 0.5


@dataclass(frozen=True)
class Resources:
    """What work has at its disposal.

    Attributes:
        memory: the most this process may hold, in bytes; unless given, what it holds already and
            four fifths of what is free.
        scratch: where arrays go that do not fit; the system's folder for such things unless given.
        engine: who does work that can be cut into blocks.
        on_gpu: the most that graphs and embeddings may take on a GPU, in bytes; what is free there
            unless given. 0 keeps them in main memory, and only what is trained on goes to the GPU.
        shelf: where learners that work side by side find what one of them has computed already;
            None if each computes its own.
    """

    memory: int | None = None
    scratch: Path | None = None
    engine: Engine = field(default_factory=LocalEngine)
    shelf: Shelf | None = None
    on_gpu: int | None = None

    @property
    def left(self) -> int:
        """How many bytes may still be taken."""
        import psutil

        if self.memory is None:
            return int(FREE_SHARE * psutil.virtual_memory().available)
        held: int = psutil.Process().memory_info().rss
        return max(self.memory - held, 0)

    def left_on(self, device: torch.device) -> int:
        """How many bytes may still be taken on a device."""
        if device.type == "cpu":
            return self.left
        if self.on_gpu is not None:
            return self.on_gpu
        free: int = torch.cuda.mem_get_info(device)[0]
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(FREE_SHARE * (free + held))

    def tidy(self) -> None:
        """Give back what is held for nothing, where a limit counts it."""
        if self.memory is not None:
            give_memory_back()

    def fits(self, size: int) -> bool:
        """Whether an array of so many bytes may stay in memory."""
        return stays_in_memory(size, left=self.left, limit=self.memory)

    def array(self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """Return room for an array: in memory if it fits, else mapped in a file of its own.

        The file has no name any more when this returns, so that nothing is left behind even by a
        process that is killed.
        """
        size = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
        if self.fits(size):
            return torch.empty(shape, dtype=dtype)
        self.tidy()
        folder = self.scratch if self.scratch is not None else Path(tempfile.gettempdir())
        with tempfile.TemporaryDirectory(dir=folder, prefix="evergraph-") as aside:
            return create_array(Path(aside, "array.npy"), shape, dtype)

    def check(self, size: int, purpose: str) -> None:
        """Raise unless so many bytes can be had, which are needed at the least."""
        if size > self.left:
            raise ResourceError(
                f"{purpose} takes {shown(size)} at the least, but only {shown(self.left)} of "
                f"memory {'are free' if self.memory is None else 'are left within the limit'}"
            )


def stays_in_memory(size: int, *, left: int, limit: int | None) -> bool:
    """Whether an array of so many bytes stays in memory where so many are left of a limit.

    >>> stays_in_memory(20, left=100, limit=None), stays_in_memory(20, left=100, limit=180)
    (True, False)
    """
    to_work_in = 0 if limit is None else int(WORK_SHARE * limit)
    return size <= ARRAY_SHARE * left and left - size >= to_work_in
