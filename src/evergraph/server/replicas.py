"""Processes that answer beside the one that writes: started, watched, started again, stopped."""

from __future__ import annotations

import json
import logging
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

from evergraph.core.closing import Closing
from evergraph.server.board import WRITER, Board
from evergraph.server.place import BOARD, SOCKET, Place

LOOK = 0.1  # seconds between two looks at the processes
SHORTEST, LONGEST = 0.5, 30.0  # seconds until one that ended is started again
STEADY = 60.0  # seconds after which one that ends is started again soon
GRACE = 30.0  # seconds that they have to finish in once they are told to stop
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Orders:
    """What a replica is started with; it may hold secrets, so it goes through a pipe.

    Attributes:
        folder: the learner's.
        host, port: where the service listens.
        limits: as ``Limits`` has them.
        tokens: as ``Tokens`` lists them; None: this machine may read and write.
        plugins: modules with parts of one's own.
        threads: of torch.
        opening: how the folder is opened, see ``LearnerFolder.of``.
        log_format: of the lines they write to the log.
        access_log: whether each writes a line for every request.
        tls: files of the certificate, see ``Tls.files``.
        proxies: see ``listen``.
    """

    folder: str
    host: str
    port: int
    limits: dict[str, Any]
    tokens: list[tuple[str, str]] | None = field(default=None, repr=False)
    plugins: list[str] = field(default_factory=list)
    threads: int = 1
    opening: dict[str, Any] = field(default_factory=dict)
    log_format: str = "text"
    access_log: bool = False
    tls: list[str | None] | None = None
    proxies: list[str] = field(default_factory=list)


class _Child:
    """One replica: its process, and when it is started (again)."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.process: subprocess.Popen[bytes] | None = None
        self.due = 0.0
        self._wait, self._begun = SHORTEST, 0.0

    def start(self, orders: bytes) -> None:
        """Start it; its standard input stays open as long as this process lives."""
        self._begun = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "evergraph.server.replica"],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us: we tell the others
        )
        self.tell(orders)

    def tell(self, orders: bytes) -> None:
        """Write a line of orders."""
        if self.process is None:
            return
        assert self.process.stdin is not None
        with suppress(OSError):  # it has ended already, and will be found so
            self.process.stdin.write(orders + b"\n")
            self.process.stdin.flush()

    def ended(self) -> float:
        """Note that it has ended; return in how many seconds it is started again."""
        now = time.monotonic()
        self._wait = SHORTEST if now - self._begun > STEADY else min(2 * self._wait, LONGEST)
        self.process, self.due = None, now + self._wait
        return self._wait


class Replicas(Closing):
    """The replicas of one service, as long as it is open.

    Each has a socket of its own at the service's port (``SO_REUSEPORT``), opened once it knows all
    that the writer knows: the system gives every connection to one of those that listen, a replica
    that starts is asked nothing, and one that died is asked nothing more. When this process dies,
    however that happens, the pipe to each of them breaks, and they stop.

    Args:
        count: how many.
        orders: what they are started with.
    """

    def __init__(self, count: int, orders: Orders) -> None:
        private = Path(tempfile.mkdtemp(prefix="evergraph-"))  # for this user's eyes only
        self.place = Place(private, WRITER, Board(private / BOARD, processes=count + 1))
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(str(private / SOCKET))
        self.socket.listen()  # whoever comes early waits
        self._orders = orders
        self._children = [_Child(slot) for slot in range(1, count + 1)]
        self._stopping = Event()
        self._watch = Thread(target=self._watching, name="evergraph-replicas", daemon=True)

    def __enter__(self) -> Replicas:
        self.start()
        return self

    def start(self) -> None:
        """Start them; what they read must be there by now."""
        self._watch.start()

    def _watching(self) -> None:
        while not self._stopping.is_set():
            for child in self._children:
                self._look(child)
            self._stopping.wait(LOOK)

    def _look(self, child: _Child) -> None:
        if child.process is None:
            if time.monotonic() >= child.due:
                told = asdict(self._orders) | {
                    "private": str(self.place.private),
                    "slot": child.slot,
                }
                child.start(json.dumps(told).encode())
            return
        code = child.process.poll()
        if code is not None:
            self.place.board.clear(child.slot)
            pid, wait = child.process.pid, child.ended()
            log.warning(
                "replica %d (process %d) ended with %s: it is started again in %g s",
                child.slot,
                pid,
                _ending(code),
                wait,
            )

    def renew(self, tokens: list[tuple[str, str]] | None) -> None:
        """Have all of them use other tokens, and read their certificates again."""
        self._orders = replace(self._orders, tokens=tokens)
        for child in self._children:
            child.tell(json.dumps({"tokens": tokens}).encode())

    def stop(self) -> None:
        """Tell all of them to stop, without waiting for it."""
        self._stopping.set()
        for child in self._children:
            if child.process is not None:
                child.process.terminate()

    def close(self) -> None:
        """Stop them, and wait until they have."""
        self.stop()
        if self._watch.is_alive():
            self._watch.join()
        self.stop()  # one may have been started just then
        late = time.monotonic() + GRACE
        for child in self._children:
            if child.process is not None:
                try:
                    child.process.wait(max(0.0, late - time.monotonic()))
                except subprocess.TimeoutExpired:
                    child.process.kill()
        self.socket.close()
        shutil.rmtree(self.place.private, ignore_errors=True)


def _ending(code: int) -> str:
    """Return how a process ended, for a sentence.

    >>> _ending(1), _ending(-9)
    ('code 1', 'SIGKILL')
    """
    return f"code {code}" if code >= 0 else signal.Signals(-code).name
