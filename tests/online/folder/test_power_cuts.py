"""Power cuts rebuilt from traced writes: what was acknowledged is there, and nothing else.

What a disk may hold after a power cut is rebuilt from the calls that ``strace`` saw a writer make.
A cut can be made after any step of a trace: what a file's ``fsync`` covered is there, names are
there once their folder was synced; of everything else any part may be there or not (``WAYS``).
Calls of threads that overlap are taken in the order in which they ended, and an ``fsync`` covers
what had ended when it began. Left out: ``-shm``, which SQLite writes through memory and builds anew
from the WAL; the name of the folder itself in its parent, whose sync is a step like any other; and
disks that lie about a flush.

Every folder that a disk may be left with is opened. All acknowledged deltas are there, one more if
it was under way, and the learner is that of a twin. With ``synchronous=OFF``, or with snapshots
that are not synced, the same search must find losses, or it could not find any.
"""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random, SystemRandom

import pytest

from evergraph.core.errors import EvergraphError
from evergraph.online.folder import snapshot, sqlite_file
from forked import begun
from stand_in import bits, delta, opened, twin

CALLS = (
    "openat,write,pwrite64,fsync,fdatasync,ftruncate,lseek,renameat,renameat2,unlinkat,mkdirat,"
    "?open,?creat,?rename,?unlink,?rmdir,?mkdir"
)
PARENT, ROOT = -1, 0  # numbers of the folder's parent, and of the folder itself
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
class Step:
    """What a call did to the disk, or what a writer marked.

    Attributes:
        kind: ``data``, ``cut`` (to a length), ``bind`` and ``unbind`` (a name), ``sync``, ``mark``.
        node: file or folder that is changed, or synced.
        begun: how many steps were done when it began.
    """

    kind: str
    node: int
    begun: int
    offset: int = 0
    data: bytes = b""
    name: str = ""
    other: int = -1  # what a name is bound to
    source: tuple[int, str] | None = None  # where a renamed file was
    is_folder: bool = False


def trace(folder: Path, *careless: str) -> list[Step]:
    """Have the writer fill a folder, and return what it did to the disk."""
    marks, noted = folder.with_name("marks"), folder.with_name("trace")
    wait, go = os.pipe()

    def work() -> None:
        os.read(wait, 1)
        write(folder, marks, careless)

    child = begun(work)
    watch = [
        "strace",
        "-f",
        "-y",
        "-p",
        str(child),
        "-o",
        str(noted),
        "-xx",
        "-s",
        "100000000",
        "-e",
        f"trace={CALLS}",
        "-e",
        "signal=none",
    ]
    try:
        with subprocess.Popen(watch, stderr=subprocess.PIPE, text=True) as watching:
            said = watching.stderr.readline()
            if "attached" not in said:
                os.kill(child, signal.SIGKILL)
                raise PermissionError(f"strace cannot watch here: {said.strip()}")
            os.write(go, b".")
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        os.close(wait)
        os.close(go)
    watched, waiting = Watched(folder, marks), dict[str, tuple[str, int]]()
    for line in noted.read_text().splitlines():
        thread, call = line.split(maxsplit=1)
        start = len(watched.done)
        if call.endswith("<unfinished ...>"):
            waiting[thread] = call.removesuffix("<unfinished ...>"), start
            continue
        if call.startswith("<..."):
            before, start = waiting.pop(thread)
            call = before + call.split("resumed>", 1)[1]
        watched.see(call, start)
    return watched.done


_CALL = re.compile(r"(\w+)\((.*)\) += (\d+)(?:<((?:\\x..)*)>)?")  # what failed returns -1, or ?
_BYTES = re.compile(r'["<]((?:\\x[0-9a-f]{2})*)[">]')  # a string, or the path of a handle


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


class Watched:
    """The files of a folder, as the system has them while a trace is gone through."""

    def __init__(self, folder: Path, marks: Path) -> None:
        self.marks, self.done, self.next = marks, list[Step](), 1
        self.nodes = {folder.parent: PARENT, folder: ROOT}
        self.at, self.sizes = dict[int, int](), dict[int, int]()  # where it is written next

    def see(self, call: str, begun: int) -> None:
        """Note what a call did."""
        found = _CALL.match(call)
        if found is None:
            return
        name, given, returned, opened_path = found.groups()
        assert '"...' not in given, "strace has shortened a string"
        texts = [_bytes(text) for text in _BYTES.findall(given)]
        if name in ("write", "pwrite64"):
            if (path := Path(os.fsdecode(texts[0]))) == self.marks:
                self.done.append(Step("mark", -1, begun, data=texts[1]))
            elif (node := self.nodes.get(path)) is not None:
                offset = int(given.rsplit(",", 1)[1]) if name == "pwrite64" else self.at[node]
                self.at[node] = end = offset + int(returned)
                self.sizes[node] = max(self.sizes.get(node, 0), end)
                data = texts[1][: int(returned)]
                self.done.append(Step("data", node, begun, offset=offset, data=data))
        elif name in ("openat", "open", "creat"):
            self._opened(Path(os.fsdecode(_bytes(opened_path))), given, begun)
        elif name in ("fsync", "fdatasync", "ftruncate", "lseek"):
            node = self.nodes.get(Path(os.fsdecode(texts[0])))
            if node is None:
                return
            if name == "lseek":
                self.at[node] = int(returned)
            elif name == "ftruncate":
                self.sizes[node] = size = int(given.rsplit(",", 1)[1])
                self.done.append(Step("cut", node, begun, offset=size))
            else:
                self.done.append(Step("sync", node, begun))
        else:
            paths = [Path(os.fsdecode(text)) for text in texts]
            if name.endswith(("at", "at2")):  # a folder before each name
                paths = [above / path for above, path in zip(paths[::2], paths[1::2], strict=True)]
            self._named(name, paths, begun)

    def _opened(self, path: Path, given: str, begun: int) -> None:
        if path not in self.nodes and path.parent in self.nodes:
            self._bind(path, self._new(path), begun)
        node = self.nodes.get(path)
        if node is not None:
            if "O_TRUNC" in given and self.sizes.get(node):
                self.sizes[node] = 0
                self.done.append(Step("cut", node, begun))
            self.at[node] = self.sizes.get(node, 0) if "O_APPEND" in given else 0

    def _named(self, name: str, paths: list[Path], begun: int) -> None:
        """Names that come, go and are changed."""
        path = paths[0]
        if path.parent not in self.nodes or self.nodes.get(path) == ROOT:
            return
        if name.startswith("mkdir"):
            self._bind(path, self._new(path), begun, is_folder=True)
        elif name.startswith(("unlink", "rmdir")):
            self.nodes.pop(path)
            place = self._place(path)
            self.done.append(Step("unbind", place[0], begun, name=place[1]))
        else:
            for old in [old for old in self.nodes if old.is_relative_to(path)]:
                self.nodes[paths[1] / old.relative_to(path)] = self.nodes.pop(old)
            self._bind(paths[1], self.nodes[paths[1]], begun, source=self._place(path))

    def _new(self, path: Path) -> int:
        self.nodes[path] = self.next
        self.next += 1
        return self.nodes[path]

    def _place(self, path: Path) -> tuple[int, str]:
        return self.nodes[path.parent], path.name

    def _bind(self, path: Path, node: int, begun: int, **more: object) -> None:
        folder, name = self._place(path)
        if folder != PARENT:  # what lies beside the folder is nobody's business
            self.done.append(Step("bind", folder, begun, name=name, other=node, **more))


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
        return place, trace(place, *careless)
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
