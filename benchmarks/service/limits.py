"""What one process carries: nodes, classes, deltas a second.

python benchmarks/service/limits.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.measure import Options, Table, in_own_process, ms, run, seconds_of
from benchmarks.service.service import FEATURES, NEW, deltas

from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.learner import OnlineLearner

EDGES = 5  # of each new node
KINDS = 40  # classes, where these are not what is measured
ROUNDS = 8  # deltas that are timed at each size
ASKED = 200  # single predictions that are timed
BULK = 5_000  # nodes of a delta while a learner is filled


@dataclass(frozen=True)
class Size:
    """How far it is measured."""

    nodes: Sequence[int] = (10_000, 50_000)
    classes: Sequence[int] = (2, 100, 300)
    known: int = 20_000  # nodes, where these are not what is measured


QUICK = Size(nodes=(1_000, 3_000), classes=(2, 50), known=1_000)


@dataclass(frozen=True)
class Cost:
    """What a learner of some size takes: bytes, and seconds on the CPU and on the wall."""

    nodes: int
    classes: int
    held: int
    resident: int
    cpu: float
    wall: float
    predicted: float
    slowest: float


def filled(learner: OnlineLearner, first: int, last: int, kinds: int) -> None:
    """Let nodes in, many at a time."""
    for start in range(first, last, BULK):
        size = min(BULK, last - start)
        for delta in deltas(start, size, size, kinds=kinds, edges=EDGES):
            learner.apply(delta)


def cost(learner: OnlineLearner, nodes: int, kinds: int, before: int) -> Cost:
    """Time some deltas of 100 nodes and single predictions; before: bytes that were held at first.

    Scores that wait to be solved for are among what a delta costs: a round has as many deltas as
    wait for that.
    """
    resident = psutil.Process().memory_info().rss - before
    made = list(deltas(nodes, ROUNDS * NEW, NEW, kinds=kinds, edges=EDGES))
    walls: list[float] = []
    cpu = seconds_of(lambda: walls.extend(_each(learner, made)), time.process_time)
    view = learner.frozen()
    asked = range(0, nodes, max(1, nodes // ASKED))
    predicted = seconds_of(lambda: [view.answer([node]) for node in asked], time.process_time)
    status = learner.status()
    return Cost(
        nodes=nodes,
        classes=status.classes,
        held=status.memory,
        resident=resident,
        cpu=cpu / ROUNDS,
        wall=sum(walls) / ROUNDS,
        predicted=predicted / len(asked),
        slowest=max(walls),
    )


def _each(learner: OnlineLearner, made: Sequence[Delta]) -> Iterator[float]:
    for delta in made:
        yield seconds_of(lambda delta=delta: learner.apply(delta))  # type: ignore[misc]


def by_nodes(sizes: Sequence[int]) -> list[Cost]:
    """Grow one learner, and look at it at each size."""
    before = psutil.Process().memory_info().rss
    learner, found, there = OnlineLearner(), list[Cost](), 0
    for nodes in sizes:
        filled(learner, there, nodes, KINDS)
        found.append(cost(learner, nodes, KINDS, before))
        there = nodes + ROUNDS * NEW
    return found


def by_classes(classes: int, nodes: int) -> Cost:
    """Fill a learner with so many classes."""
    before = psutil.Process().memory_info().rss
    learner = OnlineLearner()
    filled(learner, 0, max(nodes, 100 * classes), classes)
    return cost(learner, max(nodes, 100 * classes), classes, before)


def durable(place: Path, known: int, size: int, count: int) -> tuple[float, float]:
    """Return deltas a second into a folder, by wall and by CPU, each acknowledged on the disk."""
    with LearnerFolder.open(place / f"deltas of {size}", make=OnlineLearner) as folder:
        for delta in deltas(0, known, min(BULK, known), kinds=KINDS, edges=EDGES):
            folder.submit(delta)
        made = list(deltas(known, count * size, size, kinds=KINDS, edges=EDGES))
        begun, cpu = time.perf_counter(), time.process_time()
        for delta in made:
            folder.submit(delta)
        return count / (time.perf_counter() - begun), count / (time.process_time() - cpu)


def nodes_table(found: Sequence[Cost]) -> Table:
    """Return what nodes cost."""
    return Table(
        f"Nodes, {FEATURES} features, {KINDS} classes, {EDGES} edges of each new node",
        (
            "nodes",
            "bytes a node",
            "resident MB",
            "a delta of 100, CPU s",
            "wall s",
            "slowest s",
            "such deltas a second",
            "one prediction, CPU ms",
        ),
        [
            [
                f"{c.nodes:,}",
                f"{c.held / c.nodes:,.0f}",
                f"{c.resident / 1e6:,.0f}",
                f"{c.cpu:.3f}",
                f"{c.wall:.3f}",
                f"{c.slowest:.3f}",
                f"{1 / c.wall:,.1f}",
                ms(c.predicted),
            ]
            for c in found
        ],
        (
            "bytes a node: graph, embeddings and head; resident: what the process holds besides the "
            "libraries, room to grow included.",
            f"without a folder: what learning takes. A delta is the mean of {ROUNDS}, among them "
            "the one with which scores are solved for.",
        ),
    )


def classes_table(found: Sequence[Cost]) -> Table:
    """Return what classes cost."""
    return Table(
        "Classes",
        (
            "classes",
            "nodes",
            "held MB",
            "a delta of 100, CPU s",
            "wall s",
            "slowest s",
            "one prediction, CPU ms",
        ),
        [
            [
                f"{c.classes:,}",
                f"{c.nodes:,}",
                f"{c.held / 1e6:,.0f}",
                f"{c.cpu:.3f}",
                f"{c.wall:.3f}",
                f"{c.slowest:.3f}",
                ms(c.predicted),
            ]
            for c in found
        ],
    )


def deltas_table(found: dict[int, tuple[float, float]], known: int) -> Table:
    """Return how many deltas a second are acknowledged."""
    return Table(
        f"Deltas a second, one after the other, each on the disk, {known:,} nodes known",
        ("nodes in a delta", "deltas a second", "by CPU seconds", "nodes a second"),
        [
            [str(size), f"{wall:,.1f}", f"{cpu:,.1f}", f"{wall * size:,.0f}"]
            for size, (wall, cpu) in found.items()
        ],
        ("several senders at once get more: they are written with one commit.",),
    )


def tables(options: Options) -> list[Table]:
    """Return the tables of one run."""
    logging.getLogger("evergraph").setLevel(logging.ERROR)  # the alarm, where classes come in turn
    size = QUICK if options.quick else Size()
    grown = in_own_process(by_nodes, tuple(size.nodes))
    classes = [in_own_process(by_classes, count, size.known) for count in size.classes]
    count = 10 if options.quick else 60
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rates = {n: in_own_process(durable, place, size.known, n, count) for n in (1, NEW)}
    return [nodes_table(grown), classes_table(classes), deltas_table(rates, size.known)]


if __name__ == "__main__":
    run("limits", "What one process carries", tables)
