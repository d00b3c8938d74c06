"""A service under mixed load for a long time, killed now and then: flat memory, bounded restarts.

python benchmarks/service/soak.py [--minutes 20] [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.measure import Options, Table, megabytes, ms, run
from benchmarks.service.own_service import OwnService
from benchmarks.service.soak_load import Questions, Window

from evergraph.online.folder.snapshot import snapshots_in

READY = 30.0  # seconds that a restart may take
MINUTES, QUICK_MINUTES = 20.0, 1.5
MEMORY = 4 << 30
RISING = {"memory": 1e6, "journal": 1e6, "folder": 1e6, "files": 1.0, "threads": 1.0}


@dataclass(frozen=True)
class Size:
    """How much is known, and how often it is looked at and killed."""

    minutes: float
    nodes: int
    every: float  # seconds between two looks
    kills: int


@dataclass(frozen=True)
class Look:
    """The service at one moment; bytes, and seconds since the last look."""

    at: float
    memory: int
    files: int
    threads: int
    journal: int
    folder: int
    asked: int
    p50: float
    p99: float
    delta: float
    deltas: int
    alive_since: float


@dataclass(frozen=True)
class Kill:
    """One kill: when, how long the restart took, and what was missing afterwards.

    Attributes:
        repeated: deltas since the newest snapshot, which the restart applied again.
        work: seconds of processor time that the restart took, of all threads.
    """

    at: float
    seq: int
    repeated: int
    seconds: float
    work: float
    wrong: str


def size_of(folder: Path, pattern: str = "*") -> int:
    """Return the bytes of a folder's files; one may vanish while they are looked at."""
    total = 0
    for path in folder.rglob(pattern):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


class Soak:
    """Load, looks and kills around one service."""

    def __init__(self, place: Path, size: Size) -> None:
        self.size = size
        # Keys are kept for days otherwise, which a journal of hours shows as growth.
        self.service = OwnService(place / "learner", ["--key-age", "0"], memory=MEMORY)
        self.window = Window(self.service, size.nodes)
        self.window.fill()
        self.questions = Questions(self.service, self.window)
        self.begun = self.alive_since = time.monotonic()
        self.looks: list[Look] = []
        self.kills: list[Kill] = []

    def run(self) -> None:
        """Go on as long as asked, restarts not counted; kills come in the first half."""
        stop = Event()
        threads = [
            Thread(target=self.window.run, args=(stop,), daemon=True),
            Thread(target=self.questions.run, args=(stop,), daemon=True),
        ]
        for thread in threads:
            thread.start()
        draw, total = random.Random(0), 60 * self.size.minutes
        moments = sorted(draw.uniform(0.05, 0.5) * total for _ in range(self.size.kills))
        due = self.size.every
        while (now := time.monotonic() - self.begun) < total:
            if moments and now >= moments[0]:
                moments.pop(0)
                lost = self.kill()
                total, due = total + lost, due + lost
                moments = [moment + lost for moment in moments]
            elif now >= due:
                self.look()
                due = max(due + self.size.every, now)
            time.sleep(0.02)
        self.look()
        stop.set()
        for thread in threads:
            thread.join(60)
        self.window.raise_failures()

    def look(self) -> None:
        """Note how it is doing."""
        took, deltas = self.questions.taken(), self.window.taken()
        files, threads = self.service.handles()
        self.looks.append(
            Look(
                at=time.monotonic() - self.begun,
                memory=self.service.memory()[0],
                files=files,
                threads=threads,
                journal=size_of(self.service.folder, "journal.sqlite*"),
                folder=size_of(self.service.folder),
                asked=len(took),
                p50=float(np.percentile(took, 50)) if took else 0.0,
                p99=float(np.percentile(took, 99)) if took else 0.0,
                delta=float(np.median(deltas)) if deltas else 0.0,
                deltas=len(deltas),
                alive_since=self.alive_since - self.begun,
            )
        )
        print(_line(self.looks[-1]), file=sys.stderr)

    def kill(self) -> float:
        """Kill it at once, start it again, and see whether all that was acknowledged is there.

        Returns how many seconds that took.
        """
        at = time.monotonic() - self.begun
        self.service.end(signal.SIGKILL)
        acknowledged = self.window.pause()
        repeated = acknowledged - max(
            (seq for seq, _ in snapshots_in(self.service.folder)), default=0
        )
        seconds, work = self.service.start(), self.service.work()
        wrong = self.window.compare(acknowledged)
        self.window.go_on()
        self.alive_since = time.monotonic()
        self.kills.append(Kill(at, acknowledged, repeated, seconds, work, wrong))
        print(f"killed at {at:.0f} s, ready after {seconds:.1f} s, {wrong}", file=sys.stderr)
        return time.monotonic() - self.begun - at


def last_half(looks: Sequence[Look]) -> list[Look]:
    """Return the later half of the looks since the last restart: what is filled once is filled."""
    since = [look for look in looks if look.alive_since == looks[-1].alive_since]
    return since[len(since) // 2 :]


def slope(looks: Sequence[Look], name: str) -> tuple[float, float]:
    """Return how much a figure rises in an hour by a line through some looks, and its mean."""
    times, values = [look.at for look in looks], [float(getattr(look, name)) for look in looks]
    rise = np.polyfit(times, values, 1)[0] if len(looks) > 1 else 0.0
    return 3600 * float(rise), float(np.mean(values))


def _line(look: Look) -> str:
    return ", ".join(_cells(look))


def _cells(look: Look) -> list[str]:
    return [
        f"{look.at / 60:.1f}",
        megabytes(look.memory),
        str(look.files),
        str(look.threads),
        f"{look.journal / 1e6:.1f}",
        f"{look.folder / 1e6:.1f}",
        str(look.asked),
        ms(look.p50),
        ms(look.p99),
        str(look.deltas),
        ms(look.delta),
    ]


def looks_table(soak: Soak) -> Table:
    """Return at most some thirty looks, spread over the time."""
    step = max(1, len(soak.looks) // 30)
    return Table(
        f"{soak.size.minutes:g} minutes, about {soak.size.nodes:,} nodes at any time",
        (
            "minute",
            "memory MB",
            "open files",
            "threads",
            "journal MB",
            "folder MB",
            "predictions",
            "p50 ms",
            "p99 ms",
            "changes",
            "a change, ms",
        ),
        [_cells(look) for look in soak.looks[::step]],
        (
            "a stretch of time a row: counts and times are those since the look before it.",
            "load: deltas of 100 nodes as JSON and as Arrow, late labels, as many nodes forgotten as "
            "came, upserts, 20 predictions a second, look-ups, suggestions, a compaction a minute "
            "where the service has a route for it.",
        ),
    )


def kills_table(soak: Soak) -> Table:
    """Return what every kill left."""
    rows = [
        [
            f"{kill.at / 60:.1f}",
            str(kill.seq),
            str(kill.repeated),
            f"{kill.seconds:.1f}",
            f"{kill.work:.1f}",
            "yes" if kill.seconds <= READY else "**no**",
            kill.wrong,
        ]
        for kill in soak.kills
    ]
    return Table(
        f"Killed with SIGKILL; asked: ready within {READY:.0f} s, nothing acknowledged is lost",
        (
            "minute",
            "deltas acknowledged",
            "repeated",
            "seconds until ready",
            "CPU s until ready",
            "in time",
            "what was wrong",
        ),
        rows,
        (
            "ready: /readyz says so; where there is none, /v1/status is answered.",
            "repeated: deltas since the newest snapshot, which the restart applied again. A snapshot "
            "is due after 10 s of processor time, or three times what the last one took.",
        ),
    )


def flatness_table(soak: Soak) -> Table:
    """Return what rises."""
    looks, rows = last_half(soak.looks), []
    hours = (looks[-1].at - looks[0].at) / 3600
    for name, unit in RISING.items():
        rise, mean = slope(looks, name)
        rows.append(
            [
                f"{name}, MB" if unit > 1 else name,
                f"{mean / unit:,.1f}",
                f"{rise * hours / unit:+,.1f}",
                f"{rise / unit:+,.1f}",
            ]
        )
    return Table(
        "How flat it is: a line through the later half of the time since the last restart",
        ("figure", "mean", f"rise in these {60 * hours:.0f} minutes", "that is, in an hour"),
        rows,
        (
            "the journal rises and falls with every snapshot: an hour's rise means something once the "
            "stretch is much longer than the time between two of them.",
        ),
    )


def tables(options: Options) -> list[Table]:
    """Return the tables of one run."""
    minutes = options.minutes or (QUICK_MINUTES if options.quick else MINUTES)
    size = (
        Size(minutes, 1_500, every=5.0, kills=2)
        if options.quick
        else Size(minutes, 10_000, every=10.0, kills=max(2, round(minutes / 3)))
    )
    with tempfile.TemporaryDirectory() as place:
        soak = Soak(Path(place), size)
        try:
            soak.run()
        finally:
            soak.service.end()
    return [kills_table(soak), flatness_table(soak), looks_table(soak)]


if __name__ == "__main__":
    run("soak", "A long time under load", tables)
