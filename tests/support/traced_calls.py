"""What a writer asked the system to do to the files of a folder, noted by ``strace``.

Calls of threads that overlap are taken in the order in which they ended, and an ``fsync`` covers
what had ended when it began.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from forked import begun
from traced_writer import write

CALLS = (
    "openat,close,write,pwrite64,fsync,fdatasync,ftruncate,lseek,renameat,renameat2,unlinkat,"
    "mkdirat,?open,?creat,?rename,?unlink,?rmdir,?mkdir,?link,linkat"
)
ROOT = 0  # number of the folder itself


@dataclass(frozen=True)
class Call:
    """One call as strace noted it, whole."""

    name: str
    given: str
    returned: int
    begun: int  # how many calls had ended when it began


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
    other: int = -1  # what a name is bound to; -1 where a rename takes a name away
    source: tuple[int, str] | None = None  # where a renamed file was
    is_folder: bool = False


def trace(folder: Path, *careless: str) -> list[Step]:
    """Have the writer fill a folder, and return what it did to the disk.

    careless: what does not wait for the disk, see ``traced_writer``.
    """
    marks, noted = folder.with_name("marks"), folder.with_name("trace")
    wait, go = os.pipe()

    def work() -> None:
        os.read(wait, 1)
        write(folder, marks, careless)

    child = begun(work)
    watch = ["strace", "-f", "-p", str(child), "-o", str(noted), "-xx", "-s", "100000000",
             "-e", f"trace={CALLS}", "-e", "signal=none"]  # fmt: skip
    try:
        with subprocess.Popen(watch, stderr=subprocess.PIPE, text=True) as watching:
            assert watching.stderr is not None
            said = watching.stderr.readline()
            if "attached" not in said:
                os.kill(child, signal.SIGKILL)
                raise PermissionError(f"strace cannot watch here: {said.strip()}")
            os.write(go, b".")
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        os.close(wait)
        os.close(go)
    return steps(calls(noted.read_text()), folder, marks)


_LINE = re.compile(r"^(\d+) +(.*)$")
_WHOLE = re.compile(r"^(\w+)\((.*)\) += (-?\d+|\?)")


def calls(text: str) -> Iterator[Call]:
    """Yield the calls that succeeded, in the order in which they ended."""
    begun: dict[str, tuple[str, int]] = {}
    ended = 0
    for line in text.splitlines():
        found = _LINE.match(line)
        assert found, line[:200]
        thread, said = found.groups()
        start = ended
        if said.endswith("<unfinished ...>"):
            begun[thread] = said.removesuffix("<unfinished ...>").rstrip(), ended
            continue
        if said.startswith("<..."):
            before, start = begun.pop(thread)
            said = before + said.split("resumed>", 1)[1]
        whole = _WHOLE.match(said)
        if whole is None or whole[3] == "?" or int(whole[3]) < 0:
            continue
        ended += 1
        yield Call(whole[1], whole[2], int(whole[3]), start)


def bytes_of(quoted: str) -> bytes:
    """Return a string as strace writes it with -xx."""
    return bytes.fromhex(quoted.replace("\\x", ""))


_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')


def texts(given: str) -> list[bytes]:
    """Return all strings among what a call was given."""
    found = _TEXT.findall(given)
    assert not any(cut for _, cut in found), "strace has shortened a string"
    return [bytes_of(text) for text, _ in found]


@dataclass
class _Open:
    node: int
    at: int = 0


@dataclass
class Watched:
    """The files of a folder, as the system has them while a trace is gone through."""

    folder: Path
    marks: Path
    names: dict[tuple[int, str], int] = field(default_factory=dict)
    folders: dict[int, str] = field(default_factory=lambda: {ROOT: ""})
    open: dict[int, _Open] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    next: int = 1
    marking: int = -1
    parents: set[int] = field(default_factory=set)  # handles of the folder's own parent

    def place(self, path: str, handle: str) -> tuple[int, str] | None:
        """Return folder and name that a path stands for; None where it is elsewhere."""
        if handle.isdigit() and not path.startswith("/"):
            start = self.open.get(int(handle))
            return None if start is None else (start.node, path)
        if not path.startswith(f"{self.folder}/"):
            return None
        *above, name = path.removeprefix(f"{self.folder}/").split("/")
        node = ROOT
        for part in above:
            node = self.names[node, part]
        return node, name

    def new(self) -> int:
        self.next += 1
        return self.next - 1


def steps(traced: Iterator[Call], folder: Path, marks: Path) -> list[Step]:
    """Return what calls did to the files of a folder."""
    watched, found = Watched(folder, marks), list[Step]()
    ended = [0]  # steps done when so many calls had ended
    for call in traced:
        found += _steps(call, watched, ended[min(call.begun, len(ended) - 1)])
        ended.append(len(found))
    return found


def _steps(call: Call, on: Watched, begun: int) -> Iterator[Step]:
    name, given = call.name, call.given
    handle = given.split(",")[0].strip()
    paths = [text.decode() for text in texts(given)] if name not in ("write", "pwrite64") else []
    if name in ("openat", "open", "creat"):
        yield from _opened(call, on, handle, paths[0], begun)
    elif name == "close":
        on.open.pop(int(handle), None)
        on.parents.discard(int(handle))
    elif name in ("fsync", "fdatasync"):
        if int(handle) in on.parents:
            yield Step("parent", ROOT, begun)
        elif (file := on.open.get(int(handle))) is not None:
            yield Step("sync", file.node, begun)
    elif name in ("write", "pwrite64"):
        yield from _wrote(call, on, int(handle), begun)
    elif name == "lseek" and int(handle) in on.open:
        on.open[int(handle)].at = call.returned
    elif name == "ftruncate" and int(handle) in on.open:
        node, size = on.open[int(handle)].node, int(given.split(",")[1])
        on.sizes[node] = size
        yield Step("cut", node, begun, offset=size)
    elif name.startswith(("rename", "unlink", "rmdir", "mkdir", "link")):
        yield from _named(call, on, paths, begun)


def _opened(call: Call, on: Watched, handle: str, path: str, begun: int) -> Iterator[Step]:
    on.open.pop(call.returned, None)
    on.parents.discard(call.returned)
    if path == str(on.marks):
        on.marking = call.returned
    elif path == str(on.folder):
        on.open[call.returned] = _Open(ROOT)
    elif path == str(on.folder.parent):
        on.parents.add(call.returned)
    elif (place := on.place(path, handle)) is not None:
        node = on.names.get(place)
        if node is None:
            node = on.names[place] = on.new()
            yield Step("bind", place[0], begun, name=place[1], other=node)
        if "O_TRUNC" in call.given and on.sizes.get(node):
            on.sizes[node] = 0
            yield Step("cut", node, begun)
        start = on.sizes.get(node, 0) if "O_APPEND" in call.given else 0
        on.open[call.returned] = _Open(node, start)


def _wrote(call: Call, on: Watched, handle: int, begun: int) -> Iterator[Step]:
    if handle == on.marking or (handle not in on.open and handle != -1):
        if _TEXT.search(call.given) and (said := texts(call.given)[0])[:5] in (b"begun", b"ackno"):
            yield Step("mark", -1, begun, data=said)
        return
    file, data = on.open[handle], texts(call.given)[0][: call.returned]
    offset = int(call.given.rsplit(",", 1)[1]) if call.name == "pwrite64" else file.at
    if call.name == "write":
        file.at += len(data)
    on.sizes[file.node] = max(on.sizes.get(file.node, 0), offset + len(data))
    yield Step("data", file.node, begun, offset=offset, data=data)


def _named(call: Call, on: Watched, paths: list[str], begun: int) -> Iterator[Step]:
    """Names that come, go and are changed."""
    handles = [part.strip() for part in re.sub(r'"[^"]*"', "", call.given).split(",")]
    handles = [part for part in handles if part.isdigit() or part == "AT_FDCWD"]
    if call.name.startswith("mkdir") and paths[0] == str(on.folder):
        yield Step("parent bind", ROOT, begun)
        return
    first = on.place(paths[0], handles[0] if handles else "")
    if first is None:
        return
    if call.name.startswith("mkdir"):
        node = on.names[first] = on.new()
        yield Step("bind", first[0], begun, name=first[1], other=node, is_folder=True)
    elif call.name.startswith(("unlink", "rmdir")):
        on.names.pop(first, None)
        yield Step("unbind", first[0], begun, name=first[1])
    else:
        second = on.place(paths[1], handles[1] if len(handles) > 1 else "")
        assert second is not None, "nothing leaves the folder"
        node = on.names[second] = on.names[first]
        taken = None
        if call.name.startswith("rename"):
            del on.names[first]
            taken = first
        yield Step("bind", second[0], begun, name=second[1], other=node, source=taken)


def synced_parent(done: list[Step]) -> bool:
    """Whether the name of a new folder was synced before anything was acknowledged."""
    for step in done:
        if step.kind == "parent":
            return True
        if step.kind == "mark" and step.data.startswith(b"acknowledged"):
            return False
    return not any(step.kind == "parent bind" for step in done)
