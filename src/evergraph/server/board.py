"""Where the processes of one service note how far they are, for all of them to see."""

from __future__ import annotations

import mmap
import struct
import time
from dataclasses import dataclass
from pathlib import Path

_SLOT = struct.Struct("<qqd")  # pid, seq, when it was last level with the writer
WRITER = 0  # its slot


@dataclass(frozen=True)
class Process:
    """One process of a service.

    Attributes:
        role: ``writer``, ``replica``, or ``follower`` of a service somewhere else.
        pid: of the process, 0 while there is none.
        seq: after how many deltas its answers are.
        lag: how many deltas it is behind whom it follows.
        seconds: for how long it has been behind; 0 while it is not.
        alive: whether it answers.
    """

    role: str
    pid: int
    seq: int
    lag: int
    seconds: float
    alive: bool


class Board:
    """A few numbers for each process, in a file that all of them map: a look costs no call.

    Args:
        path: the file.
        processes: how many there are, the writer among them; None opens a board that is there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     board = Board(Path(folder, "board"), processes=2)
    ...     board.note(WRITER, 100, 7)
    ...     Board(Path(folder, "board")).note(1, 101, 5)
    ...     board.seq(1), board.processes()[1].lag
    (5, 2)
    """

    def __init__(self, path: Path, *, processes: int | None = None) -> None:
        if processes is not None:
            path.write_bytes(bytes(_SLOT.size * processes))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def note(self, slot: int, pid: int, seq: int) -> None:
        """Note how far a process is."""
        level = seq >= self.seq(WRITER)
        since = time.monotonic() if level else self._read(slot)[2]  # one clock for all of them
        _SLOT.pack_into(self._map, slot * _SLOT.size, pid, seq, since or time.monotonic())

    def clear(self, slot: int) -> None:
        """Note that a process has ended."""
        _SLOT.pack_into(self._map, slot * _SLOT.size, 0, 0, 0.0)

    def seq(self, slot: int) -> int:
        """Return after how many deltas the answers of a process are."""
        return self._read(slot)[1]

    def processes(self) -> list[Process]:
        """Return all of them, the writer first."""
        return [self._process(slot) for slot in range(len(self._map) // _SLOT.size)]

    def _process(self, slot: int) -> Process:
        pid, seq, since = self._read(slot)
        lag = max(self.seq(WRITER) - seq, 0)
        seconds = round(time.monotonic() - since, 3) if lag and pid else 0.0
        role = "writer" if slot == WRITER else "replica"
        return Process(role, pid, seq, lag, seconds, bool(pid))

    def _read(self, slot: int) -> tuple[int, int, float]:
        pid, seq, since = _SLOT.unpack_from(self._map, slot * _SLOT.size)
        return pid, seq, since
