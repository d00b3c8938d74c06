"""Restarting a writer that is killed under load: snapshots by count, and by what replaying takes.

python benchmarks/restart.py [--quick] [--out benchmarks/results]

What is said of a restart is what the process itself measures that opens the folder again: seconds
on the clock and of the processor from the call until the learner has caught up.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Options, Table, run

from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.status import Replaying
from evergraph.online.learner import OnlineLearner

FEATURES, CLASSES, NODES, EDGES = 64, 20, 20, 4  # of a delta: nodes, and edges of each
FOREVER = 1e9


@dataclass(frozen=True)
class Load:
    """What is measured: how large the graph is to begin with, how often and when a writer dies."""

    known: int
    kills: int
    longest: float  # seconds that a writer lives, at most
    replay_seconds: float


FULL, QUICK = Load(2_000, 4, 25.0, 5.0), Load(500, 3, 6.0, 0.5)


@dataclass(frozen=True)
class Restart:
    """What a process found that opened the folder: deltas to apply, and how long that took."""

    deltas: int
    seconds: float
    processor: float
    seq: int
    snapshot: int


def delta(number: int, known: int) -> Delta:
    """Return delta 1, 2, ...: labelled nodes joined to known ones; 0 is the first graph."""
    generator = torch.Generator().manual_seed(number)
    count = known if number == 0 else NODES
    first = 0 if number == 0 else known + (number - 1) * NODES
    nodes = range(first, first + count)
    ends = torch.randint(0, max(first, count), (count * EDGES,), generator=generator).tolist()
    classes = torch.randint(0, CLASSES, (count,), generator=generator)
    features = torch.randn(count, FEATURES, generator=generator)
    features[torch.arange(count), classes] += 2.0
    return Delta(
        nodes=list(nodes),
        features=features,
        labels=[f"class {each}" for each in classes.tolist()],
        edges=[(nodes[place // EDGES], end) for place, end in enumerate(ends)],
    )


def write(path: Path, rule: dict[str, Any], known: int, told: Connection) -> None:
    """Open a folder, tell how long that took, and submit deltas until this process is killed."""
    torch.set_num_threads(1)
    replayed: list[Replaying] = []
    began, clock = time.perf_counter(), time.process_time()
    folder = LearnerFolder.open(path, make=OnlineLearner, progress=replayed.append, **rule)
    taken = time.perf_counter() - began, time.process_time() - clock
    found = Restart(replayed[-1].done, *taken, folder.seq, folder.status().snapshot)
    told.send(found)
    while True:
        folder.submit(delta(folder.seq, known))


def killed(path: Path, rule: dict[str, Any], load: Load, *, seed: int = 0) -> list[Restart]:
    """Kill writers one after the other, each at a random moment; return how each one began."""
    moments, context = random.Random(seed), multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.restart"])
    found = []
    for place in range(load.kills + 1):
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=write, args=(path, rule, load.known, there))
        process.start()
        there.close()
        found.append(here.recv())
        if place < load.kills:  # the last one is only asked how it begins
            time.sleep(moments.uniform(load.longest / 2, load.longest))
        process.kill()
        process.join()
        print(f"{path.name}: {found[-1]}", file=sys.stderr)
    return found[1:]


def row(name: str, found: Sequence[Restart]) -> list[str]:
    """Return what restarts took as a line of a table."""
    seconds = [each.seconds for each in found]
    return [
        name,
        f"{found[-1].seq:,}",
        f"{max(each.deltas for each in found):,}",
        f"{median(seconds):.1f}",
        f"{max(seconds):.1f}",
        f"{max(each.processor for each in found):.1f}",
    ]


def stopped(path: Path, rule: dict[str, Any], load: Load) -> float:
    """Stop a writer as one should, and return the seconds that opening takes then."""
    with LearnerFolder.open(path, make=OnlineLearner, **rule) as folder:
        late = time.process_time() + 3 * load.replay_seconds / 4
        while time.process_time() < late:
            folder.submit(delta(folder.seq, load.known))
    began = time.perf_counter()
    LearnerFolder.open(path, make=OnlineLearner, readonly=True).close()
    return time.perf_counter() - began


def tables(options: Options) -> list[Table]:
    """Kill writers of two folders that begin alike, then stop them gracefully."""
    torch.set_num_threads(1)
    load = QUICK if options.quick else FULL
    rules: dict[str, dict[str, Any]] = {
        "by count (1,000 deltas)": {"replay_seconds": FOREVER, "close_seconds": FOREVER},
        f"by cost ({load.replay_seconds:g} s of replay)": {
            "replay_seconds": load.replay_seconds,
            "close_seconds": min(1.0, load.replay_seconds / 2),
        },
    }
    rows, ends = [], []
    with tempfile.TemporaryDirectory() as place:
        begun = Path(place, "begun")
        with LearnerFolder.open(begun, make=OnlineLearner) as folder:
            folder.submit(delta(0, load.known))
            folder.compact()
        for number, (name, rule) in enumerate(rules.items()):
            path = Path(shutil.copytree(begun, Path(place, f"rule-{number}")))
            rows.append(row(name, killed(path, rule, load)))
            ends.append([name, f"{stopped(path, rule, load):.1f}"])
    columns = ("snapshots", "deltas at the end", "most applied again", "median s", "worst s",
               "worst s of the processor")  # fmt: skip
    notes = (
        f"{load.known:,} nodes to begin with; deltas of {NODES} labelled nodes with {EDGES} edges "
        f"each, one after the other; {load.kills} kills, each after {load.longest / 2:g} to "
        f"{load.longest:g} s of writing.",
    )
    return [
        Table("Killed with SIGKILL under load, until caught up", columns, rows, notes),
        Table("Opening after a graceful stop", ("snapshots", "s"), ends),
    ]


if __name__ == "__main__":
    run("restart", "Restarts", tables)
