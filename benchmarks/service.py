"""How fast a service answers while it learns, asked from a second process on the same machine.

python benchmarks/service.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import numpy as np
import psutil
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Options, Table, megabytes, ms, run, times

from evergraph.core.seeding import seeded
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.learner import OnlineLearner
from evergraph.server.arrow import arrow_from_delta
from evergraph.server.http import ARROW, JSON

FEATURES, CLASSES, EDGES, NEAR = 32, 20, 10, 500
NEW = 100  # nodes of a delta
IDS = 10  # nodes of a question
PACE = 50.0  # questions a second where latency is measured
LABELLED = 0.5  # share of new nodes whose class comes with them


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    nodes: int = 100_000
    idle: float = 60.0
    loaded: float = 600.0
    rush: float = 30.0


QUICK = Size(nodes=2_000, idle=2.0, loaded=4.0, rush=2.0)


def deltas(first: int, count: int, size: int) -> Iterator[Delta]:
    """Yield nodes numbered from ``first``, near in order of arrival to those they are joined to."""
    centres = torch.randn(CLASSES, FEATURES, generator=seeded(0, "service"))
    for start in range(first, first + count, size):
        generator = seeded(0, "service", start)
        classes = torch.arange(start, start + size) // 50 % CLASSES
        noise = torch.randn(size, FEATURES, generator=generator)
        known = torch.rand(size, generator=generator) < LABELLED
        steps = torch.randint(1, NEAR, (size, EDGES), generator=generator)
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


@dataclass
class Asked:
    """What askers saw: how long each question took, and when it was over."""

    seconds: list[float] = field(default_factory=list)
    wrong: int = 0

    def quantile(self, share: float) -> float:
        """Return how long that share of the questions took at most."""
        return float(np.quantile(self.seconds, share))


def ask(port: int, nodes: int, until: Event, pace: float | None, asked: Asked) -> None:
    """Ask for predictions, at a pace or as fast as answers come, until told to stop."""
    generator = np.random.default_rng(0)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    due = time.perf_counter()
    while not until.is_set():
        body = json.dumps({"ids": generator.integers(nodes, size=IDS).tolist()})
        if pace is not None:
            time.sleep(max(0.0, due - time.perf_counter()))
        begun = time.perf_counter() if pace is None else due
        connection.request("POST", "/v1/predictions", body, {"Content-Type": JSON})
        answer = connection.getresponse()
        answer.read()
        # From when it was due: a question that had to wait for the one before was late too.
        asked.seconds.append(time.perf_counter() - begun)
        asked.wrong += answer.status != 200
        due += 0.0 if pace is None else 1 / pace
    connection.close()


def teach(
    port: int, bodies: Iterator[bytes], until: Event, pause: float, taken: list[float]
) -> None:
    """Send deltas, so many seconds apart at least, until told to stop."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while not until.is_set():
        body = next(bodies)
        begun = time.perf_counter()
        connection.request("POST", "/v1/deltas", body, {"Content-Type": ARROW})
        answer = connection.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"a delta was refused: {said!r}")
        taken.append(time.perf_counter() - begun)
        until.wait(max(0.0, pause - taken[-1]))
    connection.close()


@contextmanager
def serving(folder: Path) -> Iterator[tuple[int, psutil.Process]]:
    """Start ``evergraph serve`` and return its port and process."""
    command = [sys.executable, "-m", "evergraph.cli.app", "serve", str(folder), "--port", "0",
               "--rate", "100000"]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"listening on http://127\.0\.0\.1:(\d+)/", line):
                break
        else:
            raise RuntimeError("the service did not start")
        yield int(found[1]), psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


@dataclass(frozen=True)
class Row:
    """One stretch of time."""

    name: str
    asked: Asked
    seconds: float
    taken: Sequence[float]
    memory: tuple[int, int, int]  # after a tenth of the time, at most since then, at the end


def stretch(
    name: str,
    seconds: float,
    process: psutil.Process,
    askers: Sequence[Callable[[Event, Asked], None]],
    teacher: Callable[[Event, list[float]], None] | None,
) -> Row:
    """Ask, and teach if somebody does, for some time."""
    until, asked = Event(), Asked()
    taken: list[float] = []
    threads = [Thread(target=asker, args=(until, asked)) for asker in askers]
    if teacher is not None:
        threads.append(Thread(target=teacher, args=(until, taken)))
    for thread in threads:
        thread.start()
    begun, memory = time.perf_counter(), []
    while time.perf_counter() - begun < seconds:
        time.sleep(seconds / 100)
        memory.append(process.memory_info().rss)
    until.set()
    for thread in threads:
        thread.join()
    late = memory[len(memory) // 10 :]
    return Row(name, asked, seconds, taken, (late[0], max(late), late[-1]))


def measure(size: Size, folder: Path) -> list[Row]:
    """Return what was seen without and with deltas coming in."""
    with LearnerFolder.open(folder, make=OnlineLearner) as opened:
        for delta in deltas(0, size.nodes, min(2_000, size.nodes)):
            opened.submit(delta)
        opened.compact()
    # Encoded beforehand: this process shares two cores with the service.
    count = int(size.loaded) + 40 * int(size.rush) + 50
    bodies = iter([arrow_from_delta(d) for d in deltas(size.nodes, NEW * count, NEW)])
    with serving(folder) as (port, process):

        def asker(pace: float | None) -> Callable[[Event, Asked], None]:
            return lambda until, asked: ask(port, size.nodes, until, pace, asked)

        def teacher(pause: float) -> Callable[[Event, list[float]], None]:
            return lambda until, taken: teach(port, bodies, until, pause, taken)

        paced, fast = [asker(PACE)], [asker(None), asker(None)]
        stretch("warming up", min(5.0, size.idle), process, paced, None)
        return [
            stretch(f"idle, {PACE:.0f} a second", size.idle, process, paced, None),
            stretch("a delta a second", size.loaded, process, paced, teacher(1.0)),
            stretch("deltas one after the other", size.rush, process, paced, teacher(0.0)),
            stretch("idle, as fast as they go", size.rush, process, fast, None),
            stretch("a delta a second, as fast as they go", size.rush, process, fast, teacher(1.0)),
        ]


def table(rows: Sequence[Row], size: Size) -> Table:
    """Return all figures."""

    def quiet(row: Row) -> Row:
        return rows[3] if "fast" in row.name else rows[0]

    cells = [
        [
            row.name,
            ms(row.asked.quantile(0.5)),
            ms(row.asked.quantile(0.95)),
            times(row.asked.quantile(0.95) / quiet(row).asked.quantile(0.95)),
            f"{len(row.asked.seconds) / row.seconds:,.0f}",
            f"{len(row.taken) / row.seconds:.1f}" if row.taken else "-",
            ms(float(np.median(row.taken))) if row.taken else "-",
            " / ".join(megabytes(value) for value in row.memory),
            str(row.asked.wrong),
        ]
        for row in rows
    ]
    return Table(
        f"Predictions for {IDS} nodes at a time, {size.nodes:,} nodes known",
        ("while", "p50 ms", "p95 ms", "p95 / idle", "answers a second", "deltas a second",
         "delta ms", "memory: early / most / end", "not answered"),
        cells,
        (f"deltas of {NEW} nodes with {EDGES} edges each, half of them labelled, as Arrow; every "
         "one is on the disk before it is answered.",
         f"the stretch with a delta a second lasts {size.loaded:.0f} s.",
         "paced questions are timed from when they were due; fast ones come from two threads."),
    )  # fmt: skip


def tables(options: Options) -> list[Table]:
    """Return the tables of one run."""
    size = QUICK if options.quick else Size()
    with tempfile.TemporaryDirectory() as folder:
        return [table(measure(size, Path(folder, "learner")), size)]


if __name__ == "__main__":
    run("service", "A service under load", tables)
