"""What a process does to the disk, step by step, from the calls that ``strace`` sees it make.

Calls of threads that overlap are taken in the order in which they ended, and an ``fsync`` covers
what had ended when it began.
"""

import os
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from forked import begun

CALLS = (
    "openat,write,pwrite64,fsync,fdatasync,ftruncate,lseek,renameat,renameat2,unlinkat,mkdirat,"
    "?open,?creat,?rename,?unlink,?rmdir,?mkdir"
)
PARENT, ROOT = -1, 0  # numbers of the folder's parent, and of the folder itself


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


def trace(folder: Path, write: Callable[[Path, Path], None]) -> list[Step]:
    """Have a writer fill a folder and a file of marks beside it; return what it did to the disk."""
    marks, noted = folder.with_name("marks"), folder.with_name("trace")
    wait, go = os.pipe()

    def work() -> None:
        os.read(wait, 1)
        write(folder, marks)

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
