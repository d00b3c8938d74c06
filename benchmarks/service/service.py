"""How fast a service answers while it learns, asked from one process.

python benchmarks/service/service.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.measure import Options, Table, megabytes, ms, run, times
from benchmarks.service.own_service import VICTIM, OwnService, started

from evergraph.core.seeding import seeded
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.learner import OnlineLearner
from evergraph.server.client import arrow_from_delta

FEATURES, CLASSES, EDGES, NEAR = 32, 20, 10, 500
NEW = 100  # nodes of a delta
PACE = 100.0  # questions a second where latency is measured
LABELLED = 0.5  # share of new nodes whose class comes with them


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    nodes: int = 100_000
    idle: float = 20.0
    loaded: float = 60.0
    rush: float = 15.0


QUICK = Size(nodes=2_000, idle=2.0, loaded=3.0, rush=2.0)


def deltas(
    first: int, count: int, size: int, *, kinds: int = CLASSES, edges: int = EDGES
) -> Iterator[Delta]:
    """Yield nodes numbered from ``first``, near in order of arrival to those they are joined to.

    kinds: how many classes there are; edges: of each node.
    """
    centres = torch.randn(kinds, FEATURES, generator=seeded(0, "service"))
    for start in range(first, first + count, size):
        generator = seeded(0, "service", start)
        classes = torch.arange(start, start + size) // 50 % kinds
        noise = torch.randn(size, FEATURES, generator=generator)
        known = torch.rand(size, generator=generator) < LABELLED
        steps = torch.randint(1, NEAR, (size, edges), generator=generator)
        ends = (torch.arange(start, start + size)[:, None] - steps).clamp(min=0)
        yield Delta(
            nodes=tuple(range(start, start + size)),
            features=centres[classes] + noise,
            labels=tuple(
                f"class {c}" if k else None
                for c, k in zip(classes.tolist(), known.tolist(), strict=True)
            ),
            edges=tuple((start + i, int(e)) for i, row in enumerate(ends) for e in row),
        )


@dataclass(frozen=True)
class Load:
    """How the service is asked: ``client.py`` in a process of its own.

    Attributes:
        name: for the table.
        series: of the client: how many nodes a question names.
        pace: questions a second; 0: as fast as answers come.
        connections: on how many connections.
    """

    name: str
    series: str = "one"
    pace: float = 0.0
    connections: int = 8


def teach(service: OwnService, bodies: Iterator[bytes], until: Event, taken: list[float]) -> None:
    """Send a delta a second, until told to stop."""
    while not until.is_set():
        body = next(bodies)
        begun = time.perf_counter()
        status, said = service.ask("/v1/deltas", body)
        if status != 200:
            raise RuntimeError(f"a delta was refused: {said!r}")
        taken.append(time.perf_counter() - begun)
        until.wait(max(0.0, 1.0 - taken[-1]))


@dataclass(frozen=True)
class Row:
    """One stretch of time."""

    load: Load
    asked: dict[str, Any]
    cpu: float  # of the service, seconds
    taken: Sequence[float]
    memory: tuple[int, int, int]  # after a tenth of the time, at most since then, at the end


def stretch(
    service: OwnService,
    load: Load,
    seconds: float,
    nodes: int,
    bodies: Iterator[bytes] | None = None,
) -> Row:
    """Ask, and teach if there is something to teach, for some time."""
    until = Event()
    taken: list[float] = []
    teacher = Thread(target=teach, args=(service, bodies, until, taken))
    if bodies is not None:
        teacher.start()
    before, memory = service.work(), []
    series = ("--series", load.series, str(load.pace), str(load.connections))
    asking = started(
        "client.py", *series, port=service.port, token=VICTIM, nodes=nodes, seconds=seconds
    )
    while asking.poll() is None:
        time.sleep(seconds / 100)
        memory.append(service.memory()[0])
    cpu = service.work() - before
    until.set()
    if bodies is not None:
        teacher.join()
    assert asking.stdout is not None
    late = memory[len(memory) // 10 :]
    asked = json.loads(asking.stdout.read())[load.series]
    return Row(load, asked, cpu, taken, (late[0], max(late), late[-1]))


def measure(size: Size, folder: Path) -> list[Row]:
    """Return what was seen without and with deltas coming in."""
    with LearnerFolder.open(folder, make=OnlineLearner) as opened:
        for delta in deltas(0, size.nodes, min(2_000, size.nodes)):
            opened.submit(delta)
        opened.compact()
    # Encoded beforehand: this process shares two cores with the service.
    count = int(size.loaded) + 8 * int(size.rush) + 50
    bodies = iter([arrow_from_delta(d) for d in deltas(size.nodes, NEW * count, NEW)])
    service = OwnService(folder)
    try:
        stretch(service, PACED, min(5.0, size.idle), size.nodes)  # warming up
        return [
            stretch(service, PACED, size.idle, size.nodes),
            stretch(service, PACED, size.loaded, size.nodes, bodies),
            stretch(service, FAST, size.rush, size.nodes),
            stretch(service, FAST, size.rush, size.nodes, bodies),
            stretch(service, TENS, size.rush, size.nodes),
        ]
    finally:
        service.end()


PACED = Load(f"one node, {PACE:.0f} a second", pace=PACE, connections=2)
FAST = Load("one node, as fast as they go")
TENS = Load("ten nodes, as fast as they go", series="ten")


def table(rows: Sequence[Row], size: Size) -> Table:
    """Return all figures."""

    def quiet(row: Row) -> Row:
        return next(one for one in rows if one.load == row.load and not one.taken)

    return Table(
        f"Predictions, {size.nodes:,} nodes known",
        (
            "asked for",
            "while",
            "p50 ms",
            "p95 ms",
            "p95 / idle",
            "answers a second",
            "CPU of the service, us an answer",
            "CPU of the client, us an answer",
            "delta ms",
            "memory of the service: early / most / end",
            "not answered",
        ),
        [_cells(row, quiet(row)) for row in rows],
        (
            f"deltas of {NEW} nodes with {EDGES} edges each, half of them labelled, as Arrow, one a "
            "second; every one is on the disk before it is answered.",
            f"the paced stretch with deltas lasts {size.loaded:.0f} s.",
            "the client is one process on the same machine, with raw sockets that are kept open; "
            "paced questions are timed from when they were due, on two connections, others come on "
            "eight.",
            "CPU an answer is that of all processes of the service, learning included.",
        ),
    )


def _cells(row: Row, quiet: Row) -> list[str]:
    answers = row.asked["count"]
    return [
        row.load.name,
        "a delta a second" if row.taken else "idle",
        ms(row.asked["p50"]),
        ms(row.asked["p95"]),
        times(row.asked["p95"] / quiet.asked["p95"]),
        f"{answers / row.asked['seconds']:,.0f}",
        f"{1e6 * row.cpu / answers:,.0f}",
        f"{1e6 * row.asked['cpu'] / answers:,.0f}",
        ms(float(np.median(row.taken))) if row.taken else "-",
        " / ".join(megabytes(value) for value in row.memory),
        f"{sum(row.asked['wrong'].values())}",
    ]


def tables(options: Options) -> list[Table]:
    """Return the tables of one run."""
    size = QUICK if options.quick else Size()
    with tempfile.TemporaryDirectory() as folder:
        return [table(measure(size, Path(folder, "learner")), size)]


if __name__ == "__main__":
    run("service", "A service under load", tables)
