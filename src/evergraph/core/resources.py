"""How much memory work may take, and where what does not fit goes."""

from __future__ import annotations

import math
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import torch
from torch import Tensor

from evergraph.core.engine import Engine, LocalEngine
from evergraph.core.errors import ConfigurationError, ResourceError
from evergraph.core.mapped import create_array

# Of the memory that is free when work begins, unless a limit is given.
FREE_SHARE = 0.8
# Of what is left, the most that one array that stays may take; a larger one goes to disk.
ARRAY_SHARE = 0.25
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


@dataclass(frozen=True)
class Resources:
    """What work has at its disposal.

    Attributes:
        memory: the most this process may hold, in bytes; unless given, what it holds already and
            four fifths of what is free.
        scratch: where arrays go that do not fit; the system's folder for such things unless given.
        engine: who does work that can be cut into blocks.
    """

    memory: int | None = None
    scratch: Path | None = None
    engine: Engine = field(default_factory=LocalEngine)

    @property
    def left(self) -> int:
        """How many bytes may still be taken."""
        if self.memory is None:
            return int(FREE_SHARE * psutil.virtual_memory().available)
        held: int = psutil.Process().memory_info().rss
        return max(self.memory - held, 0)

    def fits(self, size: int) -> bool:
        """Whether an array of so many bytes may stay in memory."""
        return size <= ARRAY_SHARE * self.left

    def array(self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """Return room for an array: in memory if it fits, else in a file that nobody else sees.

        The file has no name any more when this returns, so that nothing is left behind even by a
        process that is killed.
        """
        size = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
        if self.fits(size):
            return torch.empty(shape, dtype=dtype)
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


def parse_size(text: str | int) -> int:
    """Return the bytes that a text such as ``4GB``, ``512MiB`` or ``1e9`` means.

    >>> parse_size("4GB"), parse_size("1.5 GiB"), parse_size(2048)
    (4000000000, 1610612736, 2048)
    """
    found = re.fullmatch(r"\s*([0-9.]+(?:[eE][0-9]+)?)\s*([kKmMgGtT]?i?)[bB]?\s*", str(text))
    try:
        assert found is not None
        unit = found[2].upper()
        size = int(float(found[1]) * (_UNITS | _BINARY)[unit])
        assert size > 0
    except (AssertionError, ValueError, KeyError):
        raise ConfigurationError(
            f"memory limit must be a size such as 4GB or 512MiB, above 0, not {text!r}"
        ) from None
    return size


def shown(size: float) -> str:
    """Return bytes as a person would say them.

    >>> shown(2_450_000_000), shown(12_000_000)
    ('2.5 GB', '12 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
