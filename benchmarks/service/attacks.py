"""What others wait while one client does its worst, one attack after the other.

python benchmarks/service/attacks.py [--quick] [--threads N]
    [--only "large predictions"]... [--keep FOLDER]

Once at the service itself, and once at nginx in front of it where that is installed (``apt-get install
nginx``).
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.measure import Options, Table, megabytes, ms, run
from benchmarks.service.attack_bodies import KINDS
from benchmarks.service.attackers import ATTACKS
from benchmarks.service.own_service import ATTACKER, VICTIM, OwnService, behind_nginx, started
from benchmarks.service.service import FEATURES, deltas

from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.learner import OnlineLearner

ASKED = {"one": 0.250, "health": 0.100}  # seconds at p99, by the client's series
PACES = {"one": 50, "health": 20, "hundred": 5, "writes": 2}  # questions of the victim, a second
# What the victim does besides in some rows, and how long that may take at p99.
ALSO = {
    "large predictions": ("hundred", 0.5),
    "20 large predictions": ("hundred", 0.5),
    "refused deltas": ("writes", 2.0),
}
MEMORY = 4 << 30  # bytes that the service may hold
GROWTH = 1 << 30  # bytes that an attack may add to that, at its highest
AFTER = 60.0  # seconds that a delta may take after an attack


@dataclass(frozen=True)
class Size:
    """How much is known, and for how long each attack goes on."""

    nodes: int = 100_000
    seconds: float = 20.0
    every_restart: bool = True


QUICK = Size(nodes=20_000, seconds=2.0, every_restart=False)


@dataclass(frozen=True)
class Row:
    """What became of one attack.

    Attributes:
        name: of the attack.
        victim: what the victim noted.
        said: answers to the attacker by status, and what else happened.
        memory: bytes that the service held before, and at its highest.
        work: seconds of processor time that the service took meanwhile.
        load: of the machine at the end, others included.
        delta: seconds that a delta took afterwards; None where it was not taken in.
        restart: seconds that a start took after SIGKILL, None where there was none.
        same: whether what came back was what was there.
    """

    name: str
    victim: dict[str, Any]
    said: dict[str, int]
    memory: tuple[int, int]
    work: float
    load: float
    delta: float | None
    restart: float | None
    same: bool | None

    @property
    def held(self) -> bool:
        """Whether it went as was asked for."""
        asked = ASKED | dict([ALSO[self.name]] if self.name in ALSO else [])
        in_time = all(
            self.victim[name]["p99"] <= most and not self.victim[name]["wrong"]
            for name, most in asked.items()
        )
        grown = self.memory[1] - self.memory[0]
        return in_time and grown <= GROWTH and self.delta is not None and self.same is not False


def build(folder: Path, nodes: int) -> None:
    """Make a learner that knows so many nodes."""
    with LearnerFolder.open(folder, make=OnlineLearner) as opened:
        for delta in deltas(0, nodes, 2_000, kinds=KINDS, edges=5):
            opened.submit(delta)
        opened.compact()


class Siege:
    """A service that is attacked in one way after the other.

    A folder that an attack has destroyed is put back, and the next attack goes on.
    """

    def __init__(self, place: Path, size: Size, keep: Path | None = None) -> None:
        self.size = size
        self.folder = place / "learner"
        self.whole = (place if keep is None else keep) / f"{size.nodes} nodes"
        if not self.whole.exists():
            build(self.whole, size.nodes)
        shutil.copytree(self.whole, self.folder)
        self.service = OwnService(self.folder, ("--proxy", "127.0.0.1"), memory=MEMORY)
        self.port = self.service.port  # where clients ask: the service itself, or a proxy
        self.next = size.nodes  # number of the next new node
        self.ids = random.Random(0).sample(range(size.nodes), 100)

    def attack(self, name: str, *, restart: bool) -> Row:
        """Attack in one way, and look what it did."""
        first, self.next = self.next, self.next + 250_000
        self.service.reset_peak()
        before, worked = self.service.memory()[0], self.service.work()
        given = {"port": self.port, "nodes": self.size.nodes, "seconds": self.size.seconds}
        attacker = started("attackers.py", attack=name, token=ATTACKER, first=first, **given)
        assert attacker.stdin is not None
        assert attacker.stdout is not None
        assert attacker.stdout.readline() == "ready\n", f"{name} could not be prepared"
        asked = [*ASKED, *([ALSO[name][0]] if name in ALSO else [])]
        series = [word for each in asked for word in ("--series", each, str(PACES[each]), "1")]
        victim = started("client.py", *series, token=VICTIM, first=first + 245_000, **given)
        time.sleep(0.5)  # it asks as before, then the attack begins
        attacker.stdin.write("go\n")
        attacker.stdin.flush()
        waited = json.loads(victim.communicate()[0])
        said = json.loads(attacker.communicate()[0] or "{}")
        peak, worked = self.service.memory()[1], self.service.work() - worked
        load = os.getloadavg()[0]
        delta = self._takes_a_delta(first + 240_000)
        again, same = self._restarted() if restart or delta is None else (None, None)
        row = Row(name, waited, said, (before, peak), worked, load, delta, again, same)
        print(f"{name}: {_short(row)}", file=sys.stderr)
        return row

    def _takes_a_delta(self, node: int) -> float | None:
        """Return how long a delta takes, sent until it is taken in; None where it never is."""
        body = {
            "nodes": [node],
            "features": [[0.5] * FEATURES],
            "labels": ["class 1"],
            "edges": [[node, 0]],
            "key": f"after {node}",
        }
        begun = time.perf_counter()
        while time.perf_counter() - begun < AFTER and self.service.alive:
            try:
                status, _ = self.service.ask("/v1/deltas", body, seconds=AFTER)
                if status == 200:
                    return time.perf_counter() - begun
            except OSError:
                pass
            time.sleep(0.25)
        return None

    def _restarted(self) -> tuple[float | None, bool | None]:
        """Kill it, start it again, and compare; put the folder back where that does not work."""
        before = self._fingerprint()
        self.service.end(signal.SIGKILL)
        try:
            seconds = self.service.start()
            return seconds, before is not None and self._fingerprint() == before
        except RuntimeError as error:
            print(error, file=sys.stderr)
            self.service.end(signal.SIGKILL)
            shutil.rmtree(self.folder)
            shutil.copytree(self.whole, self.folder)
            self.service.start()
            return None, False

    def _fingerprint(self) -> str | None:
        try:
            return self.service.fingerprint(self.ids)
        except (OSError, AssertionError):
            return None


def measure(
    size: Size, place: Path, names: Sequence[str], keep: Path | None = None
) -> dict[str, list[Row]]:
    """Attack in these ways, the service itself and nginx in front of it."""
    siege = Siege(place, size, keep)

    def all_ways() -> list[Row]:
        return [
            siege.attack(name, restart=size.every_restart or name == names[-1]) for name in names
        ]

    try:
        found = {"the service itself": all_ways()}
        if shutil.which("nginx"):
            with behind_nginx(siege.service.port, place / "nginx") as siege.port:
                found["behind nginx"] = all_ways()
        return found
    finally:
        siege.service.end()


def table(rows: Sequence[Row], size: Size, where: str = "the service itself") -> Table:
    """Return all figures."""
    return Table(
        f"One client does its worst, {where}, {size.nodes:,} nodes known: asked: predictions p99 < "
        f"{1e3 * ASKED['one']:.0f} ms, healthz < {1e3 * ASKED['health']:.0f} ms",
        (
            "attack",
            "held",
            "predictions p50 ms",
            "p99 ms",
            "max ms",
            "healthz p99 ms",
            "max ms",
            "besides p99 ms",
            "the victim's failures",
            "what the attacker was told",
            "memory: before / most MB",
            "the service's CPU s",
            "load",
            "a delta afterwards, s",
            "start after SIGKILL, s",
            "same as before",
        ),
        [_cells(row) for row in rows],
        (
            f"each attack goes on for {size.seconds:.0f} s. The victim asks for 50 predictions a "
            "second on one connection and for /healthz 20 times a second on new ones, from 127.0.0.2; "
            "attackers come from 127.0.0.1. Every wait counts from when the question was due.",
            "besides: "
            + "; ".join(
                f"{name}: {also}, asked p99 < {1e3 * most:.0f} ms"
                for name, (also, most) in ALSO.items()
            )
            + ". hundred: 100 predictions 5 times a second; writes: a change twice a second.",
            "all share two cores with the service; attackers run with nice 5.",
            f"the default head, {FEATURES} features, {KINDS} classes; the service may hold "
            f"{MEMORY >> 30} GB.",
            "held: every p99 is as asked, the victim was never refused, the service grew by at most "
            "1 GB, a delta is taken in afterwards, and a start after SIGKILL comes back with the "
            "same.",
        ),
    )


def _cells(row: Row) -> list[str]:
    asked, health = row.victim["one"], row.victim["health"]
    also = row.victim.get(ALSO.get(row.name, ("", 0.0))[0], {"wrong": {}})
    wrong = [_counts(found["wrong"]) for found in (asked, health, also) if found["wrong"]]
    return [
        row.name,
        "yes" if row.held else "**no**",
        *(ms(asked[name]) for name in ("p50", "p99", "max")),
        *(ms(health[name]) for name in ("p99", "max")),
        ms(also["p99"]) if "p99" in also else "-",
        " / ".join(wrong) or "-",
        _counts(row.said),
        f"{megabytes(row.memory[0])} / {megabytes(row.memory[1])}",
        f"{row.work:.1f}",
        f"{row.load:.1f}",
        "never" if row.delta is None else f"{row.delta:.2f}",
        "-" if row.restart is None else f"{row.restart:.1f}",
        "-" if row.same is None else "yes" if row.same else "**no**",
    ]


def _counts(said: dict[str, int]) -> str:
    return ", ".join(f"{count:,} x {name}" for name, count in sorted(said.items())) or "-"


def _short(row: Row) -> str:
    return ", ".join(cell for cell in _cells(row)[1:])


def tables(options: Options) -> list[Table]:
    """Return the tables of one run."""
    logging.getLogger("evergraph").setLevel(logging.ERROR)  # the alarm, where classes come in turn
    size = QUICK if options.quick else Size()
    with tempfile.TemporaryDirectory() as place:
        found = measure(size, Path(place), options.only or tuple(ATTACKS), options.keep)
        return [table(rows, size, where) for where, rows in found.items()]


if __name__ == "__main__":
    run("attacks", "Attacks", tables)
