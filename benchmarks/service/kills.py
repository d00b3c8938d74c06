"""Killing a writer at random moments: nothing acknowledged is lost, nothing is applied twice.

python benchmarks/service/kills.py [--quick] [--out benchmarks/results]
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import pkgutil
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.measure import Options, Table, run

from evergraph.core.errors import ResourceError
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import FusedHead
from evergraph.online.learner import OnlineLearner

NOBODY = ("", 0)
KILLS, QUICK = 200, 20
EVERY = 5  # deltas between snapshots: many kills fall into one
MOST = 8  # deltas that a process acknowledges before its last moment is drawn
TOGETHER = 4  # deltas that are submitted at once, in the second table
LONGEST = 0.05  # seconds from then on: some deltas, or a part of opening the folder
BEGUN = b"begun"
PER_DELTA = 3  # nodes
FEATURES = 8


def make() -> OnlineLearner:
    """Return a small learner that has seen nothing."""
    return OnlineLearner(head=FusedHead(width=64))


def delta(number: int) -> Delta:
    """Return delta 1, 2, ...: new nodes and edges, a late label, now and then all else."""
    generator = torch.Generator().manual_seed(number)
    nodes = [f"{number}-{place}" for place in range(PER_DELTA)]
    edges = [(nodes[0], nodes[1]), (nodes[1], nodes[2])]
    known = torch.randint(1, max(number, 2), (2,), generator=generator).tolist()
    edges += [(nodes[0], f"{other}-0") for other in set(known) if other < number]
    return Delta(
        nodes=nodes,
        features=torch.randn(PER_DELTA, FEATURES, generator=generator),
        labels=[f"class {number % 5}", None, f"class {number % 3}"],
        edges=edges,
        late=[(f"{number - 1}-1", f"class {number % 4}")] if number > 1 else [],
        forgotten=[f"{number - 3}-2"] if number % 4 == 0 else [],
        weights=[1 / (1 + place) for place in range(len(edges))] if number % 5 == 2 else [],
        removed_edges=[(f"{number - 1}-1", f"{number - 1}-0")] if number % 3 == 0 else [],
        updated=[f"{number - 1}-0"] if number % 3 == 2 else [],
        updated_features=torch.randn(int(number % 3 == 2), FEATURES, generator=generator),
        key=f"delta {number}",
    )


def plain(number: int) -> Delta:
    """Return delta 1, 2, ... without what begins a batch of its own."""
    whole = delta(number)
    return Delta(
        nodes=whole.nodes,
        features=whole.features,
        labels=whole.labels,
        edges=whole.edges,
        late=[(f"{number - 4}-1", f"class {number % 4}")] if number > 4 else [],
        key=whole.key,
    )


def given(number: int, together: int) -> list[Delta]:
    """Return the deltas from a number on that are submitted at once."""
    if together == 1:
        return [delta(number)]
    return [plain(each) for each in range(number, number + together)]


def digest(learner: OnlineLearner, seq: int) -> str:
    """Return a checksum of every bit of a learner after ``seq`` deltas, and of its predictions."""
    total = hashlib.sha256(json.dumps(learner.about(), sort_keys=True).encode())
    state = learner.state()
    for name in sorted(state):
        total.update(name.encode() + state[name].contiguous().numpy().tobytes())
    if seq:
        classes, shares = learner.predict_proba([f"{number}-0" for number in range(1, seq + 1)])
        total.update(repr(classes).encode() + shares.contiguous().numpy().tobytes())
    return total.hexdigest()


def write(
    path: Path,
    first: int,
    told: Connection,
    every: int,
    fatal: tuple[str, int],
    together: int = 1,
    failing: tuple[str, int] = ("", 0),
) -> None:
    """Submit deltas from ``first`` on, for ever, and tell the number of each that is safe.

    every: deltas between snapshots. fatal: a function and the call of it that is the last thing
    this process does; none if the name is empty. together: how many are submitted at once.
    failing: a function and the call of it for which the memory does not suffice.
    """
    torch.set_num_threads(1)
    if failing[0]:
        _at(*failing, _fail)
    if fatal[0]:
        _at(*fatal, _die)
    told.send_bytes(BEGUN)
    folder = LearnerFolder.open(path, make=make, snapshot_every=every)
    number = first
    while True:
        answers = folder.submit_many(given(number, together))
        if failing[0] and isinstance(answers[0], ResourceError):
            continue  # it was set aside, and is sent again
        for applied in answers:
            assert isinstance(applied, DeltaResult), f"delta {number} was refused: {applied}"
            assert applied.seq == number, f"delta {number} came out as {applied.seq}"
            number += 1
        told.send_bytes(b"%d" % (number - 1))


def _at(name: str, call: int, happen: Callable[[], None]) -> None:
    """Have something happen when a function is called for the n-th time."""
    module, _, path = name.partition(":")
    owner = pkgutil.resolve_name(f"{module}:{path.rpartition('.')[0]}".rstrip(":"))
    attribute, calls = path.rpartition(".")[2], iter(range(1, 1 << 62))
    function = getattr(owner, attribute)

    def fateful(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == call:
            happen()
        return function(*args, **kwargs)

    setattr(owner, attribute, fateful)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fail() -> None:
    raise MemoryError


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
        self._context.set_forkserver_preload(["benchmarks.service.kills"])

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
