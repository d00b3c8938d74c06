"""Killing a writer at random moments: nothing acknowledged is lost, nothing is applied twice.

python benchmarks/service/kills.py [--quick] [--out benchmarks/results]
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.measure import Options, Table, run
from benchmarks.service.kill_writer import BEGUN, digest, given, make, write

from evergraph.online.folder.learner_folder import LearnerFolder

NOBODY = ("", 0)
KILLS, QUICK = 200, 20
EVERY = 5  # deltas between snapshots: many kills fall into one
MOST = 8  # deltas that a process acknowledges before its last moment is drawn
TOGETHER = 4  # deltas that are submitted at once, in the second table
LONGEST = 0.05  # seconds from then on: some deltas, or a part of opening the folder


@dataclass(frozen=True)
class Found:
    """What was found in a folder after a process that wrote to it was killed.

    Attributes:
        opening: whether it was killed before it acknowledged anything.
        snapshot: whether it was killed while it wrote a snapshot.
        acknowledged: how many deltas it acknowledged.
        unsaid: deltas that were safe, but nobody was told any more; they are sent again.
        lost: acknowledged deltas that were not there.
        twice: deltas that were there and had not been sent, or not that often.
        other_bits: whether state or predictions differ from those of a twin that nobody killed.
    """

    opening: bool
    snapshot: bool
    acknowledged: int
    unsaid: int
    lost: int
    twice: int
    other_bits: bool


class Killer:
    """Starts writers on one folder, kills them, and looks at what they leave.

    Writers are forked from a process that has everything imported: a fresh Python would spend its
    life importing.

    Args:
        path: the folder.
        every: deltas between snapshots.
        together: how many deltas are submitted at once, to be applied as one batch.
    """

    def __init__(self, path: Path, *, every: int = EVERY, together: int = 1) -> None:
        self.path = path
        self.every = every
        self.together = together
        self.acknowledged = 0
        self._twin, self._twin_seq = make(), 0
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["benchmarks.kill_writer"])

    def kill_after(self, deltas: int, seconds: float) -> Found:
        """Let a process acknowledge some deltas, and live for so many seconds more."""
        here, process = self._started(NOBODY)
        heard = [self.acknowledged, *(int(here.recv_bytes()) for _ in range(deltas))]
        time.sleep(seconds)
        process.kill()
        return self._ended(process, here, heard[-1])

    def kill_at(self, function: str, call: int, *, failing: tuple[str, int] = NOBODY) -> Found:
        """Let a process write until it calls a function for the n-th time.

        failing: a function and the call of it for which the memory does not suffice.
        """
        here, process = self._started((function, call), failing)
        return self._ended(process, here, self.acknowledged)

    def _started(
        self, fatal: tuple[str, int], failing: tuple[str, int] = NOBODY
    ) -> tuple[Connection, BaseProcess]:
        here, there = self._context.Pipe(duplex=False)
        first = self.acknowledged + 1
        values = (self.path, first, there, self.every, fatal, self.together, failing)
        process: BaseProcess = self._context.Process(target=write, args=values)
        process.start()
        there.close()
        assert here.recv_bytes() == BEGUN
        return here, process

    def _ended(self, process: BaseProcess, here: Connection, heard: int) -> Found:
        process.join()
        assert process.exitcode == -9, f"the writer ended by itself ({process.exitcode})"
        return self._look(_last(here, heard))

    def _look(self, acknowledged: int) -> Found:
        """Compare what is there with what a learner knows that was never interrupted."""
        aside = any(self.path.glob(".aside-*"))
        before, self.acknowledged = self.acknowledged, acknowledged
        if not (self.path / "evergraph-learner.json").exists():  # killed while it was made
            return Found(True, aside, 0, 0, acknowledged, 0, False)
        with LearnerFolder.open(self.path, make=make, readonly=True) as folder:
            seq = folder.seq
            if self._twin_seq > seq:  # what nobody was told is safe was set aside
                self._twin, self._twin_seq = make(), 0
            while self._twin_seq < seq:
                self._twin.apply_batch(given(self._twin_seq + 1, self.together))
                self._twin_seq += self.together
            same = digest(folder.learner, seq) == digest(self._twin, seq)
        return Found(
            opening=acknowledged == before,
            snapshot=aside,
            acknowledged=acknowledged - before,
            unsaid=min(max(seq - acknowledged, 0), self.together),
            lost=max(acknowledged - seq, 0),
            twice=max(seq - acknowledged - self.together, 0),
            other_bits=not same,
        )


def _last(told: Connection, before: int) -> int:
    """Return the last number that a process told before it was killed."""
    try:
        while True:
            before = int(told.recv_bytes())
    except (EOFError, OSError):  # the end, or half a message
        return before


def kill_often(path: Path, kills: int, *, seed: int = 0, together: int = 1) -> list[Found]:
    """Kill a writer so many times, each at a random moment of its life."""
    moments, killer = random.Random(seed), Killer(path, together=together)
    drawn = [(moments.randint(0, MOST), moments.uniform(0, LONGEST)) for _ in range(kills)]
    return [killer.kill_after(deltas, seconds) for deltas, seconds in drawn]


def table(found: Sequence[Found], together: int = 1) -> Table:
    """Sum up."""
    totals = {
        field.name: sum(int(getattr(f, field.name)) for f in found) for field in fields(Found)
    }
    words = {
        "killed before it acknowledged anything": totals["opening"],
        "killed while it wrote a snapshot": totals["snapshot"],
        "deltas acknowledged": totals["acknowledged"],
        "times that a delta was safe but not acknowledged, and sent again": totals["unsaid"],
        "acknowledged deltas lost": totals["lost"],
        "deltas applied twice": totals["twice"],
        "times that a bit of state or predictions differed": totals["other_bits"],
    }
    rows = [["kills", str(len(found))], *([name, f"{n:,}"] for name, n in words.items())]
    notes = (
        f"A snapshot after every {EVERY} deltas; a process is killed up to {LONGEST} s after it "
        f"has acknowledged 0 to {MOST} of them.",
        "After every kill the folder is opened and compared with a twin that nobody killed.",
    )
    batches = "" if together == 1 else f", {together} deltas at once"
    return Table(f"A writer killed with SIGKILL{batches}", ("", "number"), rows, notes)


def tables(options: Options) -> list[Table]:
    """Kill, and count."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        kills = QUICK if options.quick else KILLS
        alone = kill_often(Path(place, "alone"), kills)
        together = kill_often(Path(place, "together"), kills, together=TOGETHER)
    return [table(alone), table(together, TOGETHER)]


if __name__ == "__main__":
    run("kills", "Kills under write load", tables)
