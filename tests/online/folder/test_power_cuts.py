"""Power cuts rebuilt from traced writes: what was acknowledged is there, and nothing else.

What a disk may hold after a power cut is rebuilt from what a writer was seen to do to it. A cut can
be made after any step of a trace: what a file's ``fsync`` covered is there, names are there once
their folder was synced; of everything else any part may be there or not (``WAYS``). Left out:
``-shm``, which SQLite writes through memory and builds anew from the WAL; the name of the folder
itself in its parent, whose sync is a step like any other; and disks that lie about a flush.

Every folder that a disk may be left with is opened. All acknowledged deltas are there, one more if
it was under way, and the learner is that of a twin. With ``synchronous=OFF``, or with snapshots
that are not synced, the same search must find losses, or it could not find any.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random, SystemRandom

import pytest

from evergraph.core.errors import EvergraphError
from evergraph.online.folder import snapshot, sqlite_file
from stand_in import bits, delta, opened, twin
from traced_disk import PARENT, ROOT, Step, trace

SNAPSHOTS, REOPENED, LAST = (3, 6, 8), 10, 13  # by numbers of deltas
SECTOR = 512
WAYS = ("nothing", "everything", "names only", "data only", "a prefix", "any part")


def write(folder: Path, marked: Path, careless: Sequence[str]) -> None:
    """Submit deltas, take snapshots, close and open again; end as if killed.

    What is begun and what was acknowledged is marked in a file. Parts that are careless do not
    wait for the disk: the negative controls.
    """
    if "journal" in careless:  # SQLite takes the system's word for the disk's
        careful = sqlite_file.open_for_writing

        def hasty(path: Path) -> sqlite3.Connection:
            connection = careful(path)
            connection.execute("PRAGMA synchronous = OFF")
            return connection

        sqlite_file.open_for_writing = hasty
    if "snapshots" in careless:  # they are published though the disk may not have them
        snapshot.sync = lambda path: None
    marks = os.open(marked, os.O_WRONLY | os.O_CREAT)
    writer = opened(folder)
    for number in range(1, LAST + 1):
        os.write(marks, b"begun %d\n" % number)
        writer.submit(delta(number, key=f"k{number}"))
        os.write(marks, b"acknowledged %d\n" % number)
        if number in SNAPSHOTS:
            writer.compact()
        if number == REOPENED:
            writer.close()
            writer = opened(folder)
    os._exit(0)


@dataclass(frozen=True)
class Cut:
    """The power is cut after a step, and this much is left of what was not synced."""

    after: int
    way: str
    seed: int


class PowerCuts:
    """Rebuilds what a disk may hold after a cut."""

    def __init__(self, done: list[Step]) -> None:
        self.done = done
        # For each step which one made it durable; as many as there are where none did.
        self._synced, open_ = [len(done)] * len(done), dict[int, list[int]]()
        for place, step in enumerate(done):
            if step.kind == "sync":
                earlier = open_.pop(step.node, [])
                for each in earlier:
                    if each < step.begun:
                        self._synced[each] = place
                open_[step.node] = [each for each in earlier if each >= step.begun]
            elif step.kind != "mark":
                open_.setdefault(step.node, []).append(place)

    def told(self, cut: Cut, what: str) -> int:
        """Return the number of the last delta that was begun, or acknowledged, before a cut."""
        marks = (s.data.split() for s in self.done[: cut.after + 1] if s.kind == "mark")
        return max((int(number) for word, number in marks if word == what.encode()), default=0)

    def rebuild(self, cut: Cut, place: Path) -> None:
        """Write down what is left after a cut, in the order in which it was done."""
        shutil.rmtree(place, ignore_errors=True)
        names, files = dict[tuple[int, str], int](), dict[int, bytearray]()
        for step in self._left(cut):
            if step.kind == "bind":
                names[step.node, step.name] = step.other
                if step.source is not None and names.get(step.source) == step.other:
                    del names[step.source]
            elif step.kind == "unbind":
                names.pop((step.node, step.name), None)
            else:
                content = files.setdefault(step.node, bytearray())
                end = step.offset + len(step.data)
                content.extend(bytes(max(0, end - len(content))))
                if step.kind == "cut":
                    del content[step.offset :]
                elif step.kind == "data":
                    content[step.offset : end] = step.data
        folders = {step.other for step in self.done if step.is_folder}

        def write_out(node: int, to: Path) -> None:
            to.mkdir()
            for (above, name), found in names.items():
                if above == node and found in folders:
                    write_out(found, to / name)
                elif above == node and not name.endswith("-shm"):
                    (to / name).write_bytes(files.get(found, b""))

        write_out(ROOT, place)

    def _left(self, cut: Cut) -> Iterator[Step]:
        """Yield what the disk has."""
        draw = Random(repr(cut))
        ends = dict[int, int]()  # a prefix: how many more steps a file or folder keeps
        for place, step in enumerate(self.done[: cut.after + 1]):
            if step.kind in ("sync", "mark"):
                continue
            naming = step.kind in ("bind", "unbind")
            if (
                self._synced[place] <= cut.after
                or cut.way == "everything"
                or cut.way == ("names only" if naming else "data only")
            ):
                yield step
            elif cut.way == "a prefix":
                left = ends.setdefault(step.node, draw.choice((0, 1, 2, 3, 5, 8, 20)))
                ends[step.node] = left - 1
                if left > 0:
                    yield step
                elif left == 0 and step.kind == "data":  # torn
                    size = draw.randrange(0, len(step.data) + 1, SECTOR)
                    yield replace(step, data=step.data[:size])
            elif cut.way == "any part" and step.kind == "data":
                yield from _sectors(step, draw)
            elif cut.way == "any part" and draw.random() < 0.5:
                yield step


def _sectors(step: Step, draw: Random) -> Iterator[Step]:
    """Yield some sectors of what was written: all, none, some, or only the length of them."""
    whole = draw.choice(("all", "none", "some", "length"))
    if whole == "all":
        yield step
    elif whole == "length":  # zeros where there was nothing
        end = step.offset + len(step.data)
        yield replace(step, kind="grow", offset=end, data=b"")
    elif whole == "some":
        size = draw.choice((SECTOR, 4096))
        first = -step.offset % size  # sectors are those of the file, not of the call
        for start, end in pairwise(
            sorted({0, *range(first, len(step.data), size), len(step.data)})
        ):
            if draw.random() < 0.5:
                yield replace(step, offset=step.offset + start, data=step.data[start:end])


pytestmark = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: apt-get install strace"
)
Traced = tuple[Path, list[Step]]


def traced(tmp_path_factory: pytest.TempPathFactory, *careless: str) -> Traced:
    place = tmp_path_factory.mktemp("traced") / "learner"
    try:
        return place, trace(place, partial(write, careless=careless))
    except PermissionError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def careful(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """A folder, and what a writer did to the disk to fill it."""
    return traced(tmp_path_factory)


def wrong(power: PowerCuts, cut: Cut, place: Path) -> str | None:
    """Return what is wrong with the folder that a cut leaves; None where nothing is."""
    power.rebuild(cut, place)
    begun, acknowledged = power.told(cut, "begun"), power.told(cut, "acknowledged")
    try:
        with opened(place) as folder:
            if not acknowledged <= folder.seq <= begun:
                return f"{folder.seq} deltas, but {acknowledged} acknowledged and {begun} begun"
            if bits(folder.learner) != twin(folder.seq):
                return f"another learner after {folder.seq} deltas"
            folder.submit(delta(folder.seq + 1, key=f"k{folder.seq + 1}"))  # and it goes on
            if bits(folder.learner) != twin(folder.seq):
                return f"another learner one delta later, after {folder.seq}"
    except EvergraphError as error:
        return f"refused: {error}"
    return None


def losses(done: list[Step], count: int, seed: int, place: Path) -> list[str]:
    """Cut at moments all over a trace, in all ways in turn, and tell what is wrong then."""
    power, draw, found = PowerCuts(done), Random(seed), []
    moments = [draw.randrange(len(done)) for _ in range(count)]
    for number, after in enumerate(moments):
        cut = Cut(after, WAYS[number % len(WAYS)], seed + number)
        if what := wrong(power, cut, place):
            found.append(f"{cut}: {what}")
    return found


def files(place: Path) -> dict[Path, bytes]:
    found = [path for path in place.rglob("*") if path.is_file() and path.suffix != ".sqlite-shm"]
    return {path.relative_to(place): path.read_bytes() for path in found}


def test_the_trace_holds_what_the_folder_held_and_its_name(careful, tmp_path):
    place, done = careful
    power, last = PowerCuts(done), Cut(len(done) - 1, "everything", 0)
    power.rebuild(last, tmp_path / "whole")
    assert files(tmp_path / "whole") == files(place)  # not a byte is missed
    assert {"snapshot-6", "snapshot-8"} <= {path.name for path in place.iterdir()}
    assert power.told(last, "acknowledged") == LAST
    assert wrong(power, last, tmp_path / "whole") is None
    # The name of a new folder is synced before anything is acknowledged.
    named = next(at for at, step in enumerate(done) if (step.kind, step.node) == ("sync", PARENT))
    assert named < next(at for at, step in enumerate(done) if step.data.startswith(b"acknow"))


def test_forty_cuts_lose_nothing(careful, tmp_path):
    found = losses(careful[1], 42, 1, tmp_path / "cut")
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize(("part", "count", "least"), [("journal", 24, 4), ("snapshots", 60, 2)])
def test_a_writer_that_does_not_wait_is_found_out(part, count, least, tmp_path_factory, tmp_path):
    found = losses(traced(tmp_path_factory, part)[1], count, 1, tmp_path / "cut")
    assert len(found) >= least, f"only {len(found)} of {count} cuts lost anything: {found}"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_five_hundred_cuts(careful, tmp_path):
    seed = SystemRandom().randrange(2**31)
    found = losses(careful[1], 500, seed, tmp_path / "cut")
    assert not found, f"{len(found)} of 500 with seed {seed}:\n" + "\n".join(found[:20])
