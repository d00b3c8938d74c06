"""A client that asks for little, and notes how long it waits, while somebody else does his worst.

Single predictions over one connection that is kept, /healthz on a new one each time, and if told to
predictions of 100 nodes, or changes, on another that is kept. It comes from an address of its own
(127.0.0.2) where the system lets it. Every question is timed from when it was due, so that a pause
counts for all that had to wait; what is refused or breaks off counts as a failure and, with the
time it took, as a wait.

python benchmarks/service/victim.py --port 8000 --token ... --nodes 100000 [--seconds 20]
    [--predictions 50] [--health 20] [--also hundreds|writes]
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

PATIENCE = 20.0  # seconds after which an answer counts as lost
OWN_ADDRESS = "127.0.0.2"
WIDTH = 32  # features of a node
Series = Callable[[int, int], Iterator[tuple[str, object]]]  # of path and body


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


def answered(connection: socket.socket, request: bytes) -> int:
    """Send a request, read all of the answer, return its status."""
    connection.sendall(request)
    told = b""
    while b"\r\n\r\n" not in told:
        found = connection.recv(65536)
        if not found:
            raise ConnectionError("the service hung up")
        told += found
    head, _, body = told.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    read = len(body)
    while read < length:
        found = connection.recv(65536)
        if not found:
            raise ConnectionError("the service hung up")
        read += len(found)
    return int(head.split(b" ", 2)[1])


@dataclass
class Asked:
    """How long answers took, and what went wrong."""

    took: list[float] = field(default_factory=list)
    wrong: Counter[str] = field(default_factory=Counter)

    def summary(self) -> dict[str, object]:
        """Return what a table needs, in seconds."""
        ordered = sorted(self.took) or [PATIENCE]
        at = {"p50": 0.5, "p99": 0.99}
        told = {
            name: ordered[min(len(ordered) - 1, int(s * len(ordered)))] for name, s in at.items()
        }
        return {**told, "max": ordered[-1], "count": len(self.took), "wrong": dict(self.wrong)}


def question(token: str, path: str, value: object) -> bytes:
    """Return a request with a body."""
    body = json.dumps(value).encode()
    return (
        b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
        % (path.encode(), token.encode(), len(body), body)
    )


def one_node(nodes: int, _: int) -> Iterator[tuple[str, object]]:
    """Yield questions for the class of one node."""
    draw = random.Random(0)
    while True:
        yield "/v1/predictions", {"ids": [draw.randrange(nodes)]}


def hundred_nodes(nodes: int, _: int) -> Iterator[tuple[str, object]]:
    """Yield questions for the classes of a hundred nodes: too many for the event loop."""
    draw = random.Random(0)
    while True:
        yield "/v1/predictions", {"ids": draw.sample(range(nodes), 100)}


def changes(nodes: int, first: int) -> Iterator[tuple[str, object]]:
    """Yield deltas of one node each, joined to one that is known."""
    draw = random.Random(0)
    for node in count(first):
        one = {"nodes": [node], "features": [[0.5] * WIDTH], "labels": ["class 1"]}
        yield "/v1/deltas", one | {"edges": [[node, draw.randrange(nodes)]]}


# What may be asked besides, and how often a second.
ALSO: dict[str, tuple[Series, float]] = {"hundreds": (hundred_nodes, 5.0), "writes": (changes, 2.0)}


HEALTH = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def ask(
    port: int,
    token: str,
    requests: Iterator[tuple[str, object]],
    pace: float,
    until: float,
    asked: Asked,
) -> None:
    """Send requests, one after the other on one connection, until a time."""
    connection = None
    due = time.perf_counter()
    while due < until:
        time.sleep(max(0.0, due - time.perf_counter()))
        try:
            connection = connection or connect(port)
            status = answered(connection, question(token, *next(requests)))
            asked.wrong.update([str(status)] if status != 200 else [])
        except (OSError, IndexError, ValueError) as error:
            asked.wrong[type(error).__name__] += 1
            if connection is not None:
                connection.close()
            connection = None
            time.sleep(0.02)
        asked.took.append(time.perf_counter() - due)
        due += 1 / pace
    if connection is not None:
        connection.close()


def look(port: int, pace: float, until: float, asked: Asked) -> None:
    """Ask whether the service lives, on a new connection each time, until a time."""
    due = time.perf_counter()
    while due < until:
        time.sleep(max(0.0, due - time.perf_counter()))
        try:
            with connect(port) as connection:
                status = answered(connection, HEALTH)
            asked.wrong.update([str(status)] if status != 200 else [])
        except (OSError, IndexError, ValueError) as error:
            asked.wrong[type(error).__name__] += 1
        asked.took.append(time.perf_counter() - due)
        due += 1 / pace


def main() -> None:
    """Ask for some time, then tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--predictions", type=float, default=50.0)
    parser.add_argument("--health", type=float, default=20.0)
    parser.add_argument("--also", choices=tuple(ALSO))
    parser.add_argument("--first", type=int, default=0, help="number of the first change")
    given = parser.parse_args()
    until = time.perf_counter() + given.seconds
    asked = {"predictions": Asked(), "healthz": Asked()}
    series: list[tuple[Series, float, Asked]] = [
        (one_node, given.predictions, asked["predictions"])
    ]
    if given.also is not None:
        asked["also"] = Asked()
        make, pace = ALSO[given.also]
        series.append((make, pace, asked["also"]))
    threads = [
        threading.Thread(target=look, args=(given.port, given.health, until, asked["healthz"]))
    ]
    for make, pace, noted in series:
        requests = make(given.nodes, given.first)
        sent = (given.port, given.token, requests, pace, until, noted)
        threads.append(threading.Thread(target=ask, args=sent))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({name: noted.summary() for name, noted in asked.items()}))


if __name__ == "__main__":
    main()
