"""A client that costs little: raw sockets kept open, one question at a time on each.

It is a process of its own, so that its CPU is not counted as the service's:

python benchmarks/service/ask_service.py --port 8000 --nodes 100000 [--seconds 5] [--connections 4]
    [--pace 50] [--ids 1]
"""

from __future__ import annotations

import argparse
import json
import random
import selectors
import socket
import time
from dataclasses import dataclass

SLACK = 0.0005  # seconds; a question that is due this soon is sent now


def question(nodes: list[int]) -> bytes:
    """Return a request for the classes of nodes."""
    body = b'{"ids":[%s]}' % b",".join(b"%d" % node for node in nodes)
    return (
        b"POST /v1/predictions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )


@dataclass
class Line:
    """A connection: when its last question was due, and what came back so far."""

    connection: socket.socket
    due: float = 0.0
    told: bytes = b""

    def ask(self, nodes: list[int], due: float) -> None:
        """Send a question."""
        self.due, self.told = due, b""
        self.connection.sendall(question(nodes))

    def whole(self) -> bool:
        """Read on; whether the answer is there to its end."""
        found = self.connection.recv(65536)
        if not found:
            raise ConnectionError("the service hung up")
        self.told += found
        head, mark, body = self.told.partition(b"\r\n\r\n")
        if not mark:
            return False
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        return len(body) >= length


def ask(
    port: int, nodes: int, seconds: float, connections: int, pace: float, ids: int
) -> dict[str, float]:
    """Ask as fast as answers come, or ``pace`` times a second on one connection after the other.

    A paced question is timed from when it was due. nodes: how many there are; ids: how many of them
    a question names.
    """
    selector, draw = selectors.DefaultSelector(), random.Random(0)
    idle = [Line(socket.create_connection(("127.0.0.1", port))) for _ in range(connections)]
    for line in idle:
        line.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(line.connection, selectors.EVENT_READ, line)
    took: list[float] = []
    wrong, begun, cpu = 0, time.perf_counter(), time.process_time()
    due = begun
    while (now := time.perf_counter()) - begun < seconds or len(idle) < connections:
        while idle and now - begun < seconds and (not pace or due <= now + SLACK):
            idle.pop(0).ask(draw.choices(range(nodes), k=ids), due if pace else now)
            due += 1 / pace if pace else 0.0
        wait = max(0.0, due - now) if pace and idle else 0.1
        for key, _ in selector.select(wait):
            if key.data.whole():
                took.append(time.perf_counter() - key.data.due)
                wrong += not key.data.told.startswith(b"HTTP/1.1 200")
                idle.append(key.data)
    spent = time.perf_counter() - begun
    took.sort()
    return {
        "answers": len(took),
        "seconds": spent,
        "cpu": time.process_time() - cpu,
        "p50": took[len(took) // 2],
        "p95": took[int(0.95 * len(took))],
        "wrong": wrong,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--pace", type=float, default=0.0)
    parser.add_argument("--ids", type=int, default=1)
    print(json.dumps(ask(**vars(parser.parse_args()))))
