"""What a process holds while it works: the arithmetic of ``Resources`` without its arrays."""

from __future__ import annotations

from evergraph.core.resources import FREE_SHARE, stays_in_memory

# Arrays below this size lie in the heap of the C library, among others that come and go. Where no
# limit makes it give back what is free (``Resources.tidy``), holes between them stay: half as much
# again, on Products' twin at a fifth of its size (benchmarks/planned.py).
HEAP_BYTES = 1 << 25
HOLES = 0.5


class Holding:
    """Counts bytes in memory and in files as work goes on, and remembers the most.

    Args:
        base: what the process holds before it has any array.
        memory: of the machine.
        limit: what ``--memory-limit`` says, if anything.

    >>> holding = Holding(base=10, memory=1_000, limit=100)
    >>> holding.take("graph", 15), holding.take("embeddings", 60)
    (True, False)
    >>> holding.work(30)
    >>> holding.peak, holding.on_disk
    (55.0, 60)
    """

    def __init__(self, *, base: float, memory: float, limit: float | None) -> None:
        self.memory = memory
        self.limit = limit
        self._held: dict[str, float] = {"process": base}
        self._files: dict[str, float] = {}
        self.peak = base
        self.on_disk = 0.0  # the most

    @property
    def held(self) -> float:
        """Bytes in memory now."""
        return sum(self._held.values())

    @property
    def left(self) -> int:
        """How many bytes may still be taken, as ``Resources.left`` tells it."""
        if self.limit is None:
            return int(FREE_SHARE * max(self.memory - self.held, 0))
        return int(max(self.limit - self.held, 0))

    def stays(self, size: float) -> bool:
        """Whether an array of so many bytes would stay in memory."""
        limit = None if self.limit is None else int(self.limit)
        return stays_in_memory(int(size), left=self.left, limit=limit)

    def take(self, name: str, size: float) -> bool:
        """Keep an array where it belongs, in memory or in a file; return whether in memory."""
        if self.stays(size):
            self.hold(name, size)
            return True
        self._files[name] = size
        self.on_disk = max(self.on_disk, sum(self._files.values()))
        return False

    def hold(self, name: str, size: float) -> None:
        """Keep an array in memory, whether or not it fits."""
        holes = HOLES if self.limit is None and size < HEAP_BYTES else 0.0
        self._held[name] = (1 + holes) * size
        self.work(0)

    def drop(self, *names: str) -> None:
        """Let arrays go."""
        for name in names:
            self._held.pop(name, None)
            self._files.pop(name, None)

    def rename(self, old: str, new: str) -> None:
        """Call an array by another name."""
        for where in (self._held, self._files):
            if old in where:
                where[new] = where.pop(old)

    def in_memory(self, name: str) -> bool:
        """Whether an array is kept in memory."""
        return name in self._held

    def work(self, size: float) -> None:
        """Count what is held for a while beside everything else."""
        self.peak = max(self.peak, self.held + size)
