"""Which process of a service this is, and what it knows of the others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evergraph.server.board import WRITER, Board, Process
from evergraph.server.metrics import Metrics
from evergraph.server.passing import Target

SOCKET, BOARD = "writer.sock", "board"


@dataclass(frozen=True, eq=False)
class Place:
    """One of several processes that answer for one folder.

    They share a folder of their own: the board, the socket at which the writer takes what others
    pass on, and the counts of what each has answered.

    Attributes:
        private: that folder.
        slot: which of them this is, on the board.
        board: how far each of them is.
    """

    private: Path
    slot: int
    board: Board

    @classmethod
    def at(cls, private: Path, slot: int) -> Place:
        """Return a place at a board that is there."""
        return cls(private, slot, Board(private / BOARD))

    @property
    def writer(self) -> Target:
        """Where requests are passed on to."""
        return Target(str(self.private / SOCKET))

    def note(self, seq: int) -> None:
        """Tell the others how far this process is."""
        self.board.note(self.slot, os.getpid(), seq)

    def behind(self, seq: int) -> bool:
        """Whether the writer is further."""
        return self.board.seq(WRITER) > seq

    def processes(self) -> list[Process]:
        """Return all of them, the writer first."""
        return self.board.processes()

    def keep(self, metrics: Metrics) -> None:
        """Write down what this process has answered, for the one that is asked for it."""
        with suppress(FileNotFoundError):  # whoever would be asked is gone, and this one stops
            metrics.save(self._counts(self.slot))

    def counted(self) -> Metrics:
        """Return what this process had answered before it was started again."""
        return Metrics.load(self._counts(self.slot))

    def others(self) -> Sequence[Metrics]:
        """Return what the other processes have answered, as of their last note."""
        slots = range(len(self.processes()))
        return [Metrics.load(self._counts(slot)) for slot in slots if slot != self.slot]

    def _counts(self, slot: int) -> Path:
        return self.private / f"requests-{slot}.json"
