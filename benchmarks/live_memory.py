"""A live learner of a million nodes within a memory limit, its snapshots, and opening it again.

python benchmarks/live_memory.py [--quick] [--out benchmarks/results] [--threads N]

Folder and scratch files lie where the system keeps temporary files; they take about 12 GB.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Options, Table, in_own_process, megabytes, peak_of, run, times

from evergraph.core.seeding import seeded
from evergraph.online.array_storage import held
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.learner import OnlineLearner

NODES, QUICK = 1_000_000, 6_000
FEATURES = 100
EDGES = 10  # that a node brings
CLASSES = 20
LABELLED = 10  # of so many nodes one
NEAR = 500  # how far back, in order of arrival, an edge goes
FAR = 0.02  # the share of the edges of small deltas that go anywhere
LARGE = 20_000  # nodes of a delta while the graph is brought
SMALL, SMALL_DELTAS = 100, 50
WIDE = 1_000  # nodes of a delta whose edges go anywhere
ASKED = 10_000  # nodes whose classes are asked for, ten at a time
LIMIT = 2 * 10**9
STAGES = (
    "bring the graph",
    f"{SMALL_DELTAS} deltas of {SMALL} nodes",
    "predict 10 nodes, 1,000 times",
    "snapshot",
    "a delta that is felt everywhere",
    "open again",
)


@dataclass(frozen=True)
class Stage:
    """What a part of the work took.

    Attributes:
        seconds: of processor time.
        wall: seconds that passed.
        peak: highest resident size, pages of files counted.
        before: the resident size before.
        state: bytes of graph, embeddings and head after it.
        waited: seconds that a delta would have waited at the most.
    """

    seconds: float
    wall: float
    peak: int
    before: int
    state: int
    waited: float = 0.0


def main(options: Options) -> list[Table]:
    """Measure everything."""
    nodes = QUICK if options.quick else NODES
    limits = (None, 10**9 if options.quick else LIMIT)
    found = {limit: _both(nodes, limit) for limit in limits}
    return [_peaks(nodes, found), _snapshots(found)]


def _both(nodes: int, limit: int | None) -> dict[str, Stage]:
    """Return all stages of a learner, the last in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        done = in_own_process(live, folder, nodes, limit)
        return done | in_own_process(reopened, folder, limit)


def live(folder: str, nodes: int, limit: int | None) -> dict[str, Stage]:
    """Bring a graph, change it, ask and snapshot it; return what that took."""
    stages: dict[str, Stage] = {}
    large = min(LARGE, nodes // 3)
    source = Source()
    with opened(folder, limit) as kept:
        kept.learner.frozen()  # as a service does: readers have a copy of their own

        def stage(work: Callable[[], Any]) -> None:
            stages[STAGES[len(stages)]] = measured(kept, work)

        stage(lambda: [kept.submit(source.delta(large, far=0.0)) for _ in range(nodes // large)])
        stage(lambda: [kept.submit(source.delta(SMALL, far=FAR)) for _ in range(SMALL_DELTAS)])
        stage(lambda: ask(kept, source.known))
        what, waiting = STAGES[len(stages)], Waiting(kept)
        stages[what] = replace(measured(kept, kept.compact), waited=waiting.longest())
        stage(lambda: kept.submit(source.delta(min(WIDE, nodes // 10), far=1.0)))
        kept.compact()
    return stages


def reopened(folder: str, limit: int | None) -> dict[str, Stage]:
    """Open a folder and let others read; return what that took."""
    kept: list[LearnerFolder] = []

    def work() -> None:
        kept.append(opened(folder, limit))
        kept[0].learner.frozen()

    found = measured(None, work)
    state = kept[0].learner.status().memory
    kept[0].close()
    return {STAGES[-1]: Stage(found.seconds, found.wall, found.peak, found.before, state)}


def opened(folder: str, limit: int | None) -> LearnerFolder:
    """Open a folder that takes no snapshot of its own accord."""
    return LearnerFolder.open(
        folder,
        make=OnlineLearner,
        snapshot_every=10**9,
        snapshot_bytes=1 << 60,
        memory_limit=limit,
    )


def measured(kept: LearnerFolder | None, work: Callable[[], Any]) -> Stage:
    """Run something; return what it took."""
    before, wall, start = held(), time.perf_counter(), time.process_time()
    _, peak = peak_of(work)
    state = 0 if kept is None else kept.learner.status().memory
    return Stage(time.process_time() - start, time.perf_counter() - wall, peak, before, state)


class Waiting:
    """A thread that asks for the lock of a folder again and again, as deltas do."""

    def __init__(self, kept: LearnerFolder) -> None:
        self._kept = kept
        self._longest = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        while not self._done.wait(0.01):
            start = time.perf_counter()
            with self._kept.lock:
                self._longest = max(self._longest, time.perf_counter() - start)

    def longest(self) -> float:
        """Stop, and return the longest wait in seconds."""
        self._done.set()
        self._thread.join()
        return self._longest


class Source:
    """Nodes of a graph that grows at its end, class by class in turn."""

    def __init__(self) -> None:
        self.generator = seeded(0, "live memory")
        self.means = torch.randn(CLASSES, FEATURES, generator=self.generator)
        self.known = 0

    def delta(self, count: int, *, far: float) -> Delta:
        """Return new nodes with edges to earlier ones.

        far: the share of edges that go anywhere, others go at most ``NEAR`` back
        """
        first, self.known = self.known, self.known + count
        nodes = torch.arange(first, first + count)
        kinds = nodes // 50 % CLASSES
        noise = torch.randn(count, FEATURES, generator=self.generator)
        sources = nodes.repeat_interleave(EDGES)
        back = torch.randint(1, NEAR + 1, sources.shape, generator=self.generator)
        anywhere = torch.rand(sources.shape, generator=self.generator) * sources
        wild = torch.rand(sources.shape, generator=self.generator) < far
        targets = torch.where(wild, anywhere.long(), sources - back).clamp_min(0)
        joined = sources != targets
        names = [name(node) for node in nodes.tolist()]
        labels = [f"c{kind}" for kind in kinds.tolist()]
        ends = zip(sources[joined].tolist(), targets[joined].tolist(), strict=True)
        return Delta(
            nodes=tuple(names),
            features=self.means[kinds] + 2 * noise,
            edges=tuple((name(a), name(b)) for a, b in ends),
            labels=tuple(
                label if place % LABELLED == 0 else None for place, label in enumerate(labels)
            ),
        )


def name(node: int) -> str:
    """Return the id of a node, as long as real ones are."""
    return f"node-{node:08d}"


def ask(kept: LearnerFolder, known: int) -> None:
    """Ask for the classes of nodes from everywhere."""
    view = kept.learner.frozen()
    wanted = torch.randint(known, (ASKED,), generator=seeded(1, "asked")).tolist()
    for start in range(0, ASKED, 10):
        view.answer([name(node) for node in wanted[start : start + 10]])


def _peaks(nodes: int, found: dict[int | None, dict[str, Stage]]) -> Table:
    free, within = found.values()
    limit = [*found][1]
    rows = [
        (
            stage,
            megabytes(free[stage].peak),
            megabytes(within[stage].peak),
            f"{free[stage].seconds:.1f}",
            f"{within[stage].seconds:.1f}",
            times(within[stage].seconds / max(free[stage].seconds, 1e-9)),
        )
        for stage in STAGES
    ]
    return Table(
        f"{nodes:,} nodes, {EDGES} edges a node, {FEATURES} features, head auto",
        (
            "",
            "peak MB",
            f"peak MB within {(limit or 0) / 1e9:.0f} GB",
            "CPU s",
            "CPU s within",
            "ratio",
        ),
        rows,
        (
            f"state: {free[STAGES[1]].state / 1e6:,.0f} MB of graph, embeddings, codes and head; "
            "readers have a copy of all vectors beside it, as behind a service.",
            "peak: of the whole process, Python and torch included, pages of mapped files counted.",
            f"one node in {LABELLED} is labelled; the graph comes in deltas of {LARGE:,} nodes "
            f"whose edges go at most {NEAR} back; of those of small deltas {FAR:.0%} go anywhere, "
            f"of those of the {WIDE:,} nodes that are felt everywhere all do.",
        ),
    )


def _snapshots(found: dict[int | None, dict[str, Stage]]) -> Table:
    rows = []
    for limit, stages in found.items():
        taken, again = stages["snapshot"], stages["open again"]
        over = max(taken.peak - taken.before, 0)
        rows.append(
            (
                "none" if limit is None else f"{limit / 1e9:.0f} GB",
                megabytes(taken.state),
                megabytes(over),
                f"{100 * over / taken.state:.1f} %",
                f"{taken.wall:.1f}",
                f"{taken.waited:.1f}",
                f"{taken.seconds / taken.state * 1e9:.2f}",
                f"{again.wall:.1f}",
                megabytes(again.peak),
            )
        )
    return Table(
        "A snapshot, and opening it again",
        (
            "limit",
            "state MB",
            "rise MB",
            "of the state",
            "s",
            "deltas wait s",
            "CPU s a GB",
            "opened in s",
            "peak MB",
        ),
        rows,
        ("rise: how much higher the resident size was at its peak than before the snapshot.",),
    )


if __name__ == "__main__":
    run("live_memory", "A live learner within a memory limit", main)
