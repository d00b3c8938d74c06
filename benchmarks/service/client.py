"""A client that costs little: raw sockets, and a thread for each series of questions.

Every question is timed from when it was due, so that a pause counts for all that had to wait; what
is refused or breaks off counts as a failure and, with the time it took, as a wait. It comes from an
address of its own (127.0.0.2) where the system lets it, and is a process of its own, so that its
CPU is not counted as the service's:

python benchmarks/service/client.py --port 8000 --token ... --nodes 100000 --series one 50 1
    [--series health 20 1] [--seconds 5]
"""

from __future__ import annotations

import argparse
import json
import random
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

PATIENCE = 20.0  # seconds after which an answer counts as lost
SLACK = 0.0005  # seconds; a question that is due this soon is sent now
OWN_ADDRESS = "127.0.0.2"
WIDTH = 32  # features of a node
Questions = Iterator[bytes]


def connect(port: int) -> socket.socket:
    """Return a connection from an address of its own."""
    try:
        made = socket.create_connection(("127.0.0.1", port), PATIENCE, (OWN_ADDRESS, 0))
    except OSError as error:
        if isinstance(error, TimeoutError | ConnectionError):
            raise
        made = socket.create_connection(("127.0.0.1", port), PATIENCE)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


@dataclass
class Given:
    """Where is asked, and about what: nodes numbered from 0, new ones from ``first``."""

    port: int
    token: str
    nodes: int
    first: int

    def post(self, path: str, body: object) -> bytes:
        """Return a request with a body."""
        text = json.dumps(body).encode()
        return (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        ).encode() + text


def predictions(given: Given, ids: int) -> Questions:
    """Yield questions for the classes of so many nodes; of many the event loop lets go."""
    draw = random.Random(0)
    while True:
        yield given.post("/v1/predictions", {"ids": draw.choices(range(given.nodes), k=ids)})


def changes(given: Given) -> Questions:
    """Yield deltas of one node each, joined to one that is known."""
    draw = random.Random(0)
    for node in count(given.first):
        one = {"nodes": [node], "features": [[0.5] * WIDTH], "labels": ["class 1"]}
        yield given.post("/v1/deltas", one | {"edges": [[node, draw.randrange(given.nodes)]]})


def health(_: Given) -> Questions:
    """Yield questions whether the service lives, each of which ends its connection."""
    while True:
        yield b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


SERIES: dict[str, Callable[[Given], Questions]] = {
    "one": lambda given: predictions(given, 1),
    "ten": lambda given: predictions(given, 10),
    "hundred": lambda given: predictions(given, 100),
    "writes": changes,
    "health": health,
}


@dataclass
class Asked:
    """How long answers took, and what went wrong."""

    took: list[float] = field(default_factory=list)
    wrong: Counter[str] = field(default_factory=Counter)

    def summary(self) -> dict[str, object]:
        """Return what a table needs, in seconds."""
        ordered = sorted(self.took) or [PATIENCE]
        ranks = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
        told = {
            name: ordered[min(len(ordered) - 1, int(share * len(ordered)))]
            for name, share in ranks.items()
        }
        return {**told, "count": len(self.took), "wrong": dict(self.wrong)}


class Line:
    """A place for one question at a time: its connection, when it was due, what came back."""

    def __init__(self) -> None:
        self.connection: socket.socket | None = None
        self.due = 0.0
        self.late = 0.0  # when it counts as lost
        self.told = b""

    def whole(self) -> bool:
        """Read on; whether the answer is there to its end."""
        assert self.connection is not None
        found = self.connection.recv(65536)
        if not found:
            raise ConnectionError("the service hung up")
        self.told += found
        head, mark, body = self.told.partition(b"\r\n\r\n")
        if not mark:
            return False
        return len(body) >= int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])


class Asker:
    """Asks a series on some connections.

    Args:
        port: of the service.
        questions: what is sent, one after the other.
        pace: questions a second; 0: as fast as answers come.
        connections: on how many connections.
    """

    def __init__(self, port: int, questions: Questions, pace: float, connections: int) -> None:
        self.asked = Asked()
        self._port = port
        self._questions = questions
        self._pace = pace
        self._idle = [Line() for _ in range(connections)]
        self._busy: list[Line] = []
        self._selector = selectors.DefaultSelector()

    def ask(self, until: float) -> None:
        """Ask until a time, and wait for the last answers."""
        due = time.perf_counter()
        while (now := time.perf_counter()) < until or self._busy:
            while self._idle and now < until and (not self._pace or due <= now + SLACK):
                self._send(self._idle.pop(0), due if self._pace else now)
                due += 1 / self._pace if self._pace else 0.0
            wait = max(0.0, min(due, until) - now) if self._pace and self._idle else 0.1
            for key, _ in self._selector.select(wait):
                if key.data in self._busy:
                    self._read(key.data)
                else:  # what is idle is hung up on
                    self._close(key.data)
            for line in [one for one in self._busy if one.late < time.perf_counter()]:
                self._ended(line, "TimeoutError", hung_up=True)
        for line in self._idle:
            self._close(line)

    def _send(self, line: Line, due: float) -> None:
        line.due = due
        line.told = b""
        line.late = time.perf_counter() + PATIENCE
        self._busy.append(line)
        try:
            if line.connection is None:
                line.connection = connect(self._port)
                self._selector.register(line.connection, selectors.EVENT_READ, line)
            line.connection.sendall(next(self._questions))
        except OSError as error:
            self._ended(line, type(error).__name__, hung_up=True)

    def _read(self, line: Line) -> None:
        try:
            if not line.whole():
                return
            status = line.told.split(b" ", 2)[1].decode()
            closing = b"connection: close" in line.told.partition(b"\r\n\r\n")[0].lower()
            self._ended(line, "" if status == "200" else status, hung_up=closing)
        except (OSError, IndexError, ValueError) as error:
            self._ended(line, type(error).__name__, hung_up=True)

    def _ended(self, line: Line, wrong: str, *, hung_up: bool) -> None:
        self.asked.took.append(time.perf_counter() - line.due)
        self.asked.wrong.update([wrong] if wrong else [])
        if hung_up:
            self._close(line)
        if hung_up and wrong:
            time.sleep(0.02)  # a service that refuses is not asked all the time
        self._busy.remove(line)
        self._idle.append(line)

    def _close(self, line: Line) -> None:
        if line.connection is not None:
            self._selector.unregister(line.connection)
            line.connection.close()
            line.connection = None


def main() -> None:
    """Ask for some time, then tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--first", type=int, default=0, help="number of a first new node")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument(
        "--series", nargs=3, action="append", metavar=("NAME", "PACE", "CONNECTIONS"), required=True
    )
    told = parser.parse_args()
    given = Given(told.port, told.token, told.nodes, told.first)
    askers = {
        name: Asker(told.port, SERIES[name](given), float(pace), int(connections))
        for name, pace, connections in told.series
    }
    begun, cpu = time.perf_counter(), time.process_time()
    until = begun + told.seconds
    threads = [threading.Thread(target=asker.ask, args=(until,)) for asker in askers.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = {"seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu}
    print(json.dumps({name: asker.asked.summary() | spent for name, asker in askers.items()}))


if __name__ == "__main__":
    main()
