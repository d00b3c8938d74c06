"""Clients that do their worst, each in its own way, for some time; they cost as little as they can.

They are processes of their own, prepared before the clock runs:

python benchmarks/service/attackers.py --attack silent --port 8000 --token ... --nodes 9
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.service.attack_bodies import BODIES, JSON, Prepared

SOCKETS = 1_200
SLOW = 300


@dataclass
class Attack:
    """One attacker: where, for how long, and what came of it.

    Attributes:
        said: answers by status, and what else happened by name.
    """

    port: int
    token: str
    nodes: int
    seconds: float
    prepared: Prepared
    said: Counter[str] = field(default_factory=Counter)
    late: float = 0.0

    def going(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self.late

    def head(self, method: str, path: str, length: int = 0, kind: str = JSON) -> bytes:
        """Return the head of a request that may write."""
        body = f"Content-Type: {kind}\r\nContent-Length: {length}\r\n" if method == "POST" else ""
        return (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.token}\r\n"
            f"{body}\r\n"
        ).encode()

    async def ask(self, request: bytes) -> int:
        """Send one request on a connection of its own, read and drop the answer."""
        status = 0
        self.said["unanswered"] += 1
        try:
            async with connection(self.port) as (reader, writer):
                with contextlib.suppress(ConnectionError):  # refused while it is being sent
                    writer.write(request)
                    await writer.drain()
                head = await reader.readuntil(b"\r\n\r\n")
                status = int(head.split(b" ", 2)[1])
                left = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                while left > 0 and (found := await reader.read(1 << 20)):
                    left -= len(found)
                self.said[str(status)] += 1
        except (OSError, EOFError, asyncio.IncompleteReadError, IndexError) as error:
            self.said[type(error).__name__ if not status else f"{status}, cut short"] += 1
            await asyncio.sleep(0.05)
        self.said["unanswered"] -= 1
        return status

    async def repeat(self, requests: Sequence[bytes], at_once: int, *, once: bool = False) -> None:
        """Send requests in turn, some at a time, until time is up, or each once."""
        left = iter(requests)

        async def line(first: int) -> None:
            place = first
            while self.going():
                request = next(left, None) if once else requests[place % len(requests)]
                if request is None:
                    return
                await self.ask(request)
                place += at_once

        await asyncio.gather(*(line(place) for place in range(at_once)))


class connection:  # noqa: N801
    """A connection that is closed at once when it is left."""

    def __init__(self, port: int, **options: int) -> None:
        self.port, self.options = port, options

    async def __aenter__(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        made = socket.socket()
        made.setblocking(False)
        if "receive" in self.options:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.options["receive"])
        try:
            await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", self.port))
            self.reader, self.writer = await asyncio.open_connection(sock=made, limit=1 << 16)
        except BaseException:
            made.close()
            raise
        return self.reader, self.writer

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()


async def hold(attack: Attack, count: int, drip: Callable[[int], bytes], pause: float) -> None:
    """Keep connections open, on each of which a little is sent now and then; hung up on, go on.

    drip: what is sent next, by how often something was sent; nothing means: wait.
    """

    async def line() -> None:
        while attack.going():
            try:
                async with connection(attack.port) as (reader, writer):
                    attack.said["opened"] += 1
                    await _drip(attack, reader, writer, drip, pause)
            except OSError as error:
                attack.said[type(error).__name__] += 1
            await asyncio.sleep(0.2)

    await asyncio.gather(*(line() for _ in range(count)))


async def _drip(
    attack: Attack,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    drip: Callable[[int], bytes],
    pause: float,
) -> None:
    sent = 0
    answer = asyncio.ensure_future(reader.read(12))
    while attack.going():
        writer.write(drip(sent))
        sent += 1
        done, _ = await asyncio.wait([answer], timeout=min(pause, attack.late - time.monotonic()))
        if done:
            told = answer.result()
            attack.said[told[9:12].decode() or "hung up on"] += 1
            return
    answer.cancel()


async def silent(attack: Attack) -> None:
    """Open 1,200 sockets and say nothing."""
    await hold(attack, SOCKETS, lambda _: b"", 1.0)


async def half_heads(attack: Attack) -> None:
    """Begin a request on 1,200 sockets, and stop in the middle of its head."""
    half = b"POST /v1/predictions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: "
    await hold(attack, SOCKETS, lambda sent: b"" if sent else half, 1.0)


async def slow_headers(attack: Attack) -> None:
    """Send a head a byte at a time, on 300 sockets."""
    whole = b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: " + b"x" * 10_000
    await hold(attack, SLOW, lambda sent: whole[sent : sent + 1], 0.5)


async def slow_bodies(attack: Attack) -> None:
    """Announce a megabyte and send ten bytes at a time, on 300 sockets."""
    head = attack.head("POST", "/v1/deltas", 1_000_000)
    await hold(attack, SLOW, lambda sent: b"[" * 10 if sent else head, 0.5)


async def unread(attack: Attack) -> None:
    """Ask for much on 200 sockets, again and again, and read nothing."""
    # No more at once than are taken: what is sent ahead beyond that is refused unread.
    request = attack.head("GET", "/v1/ids?limit=10000") * 16

    async def line() -> None:
        while attack.going():
            try:
                async with connection(attack.port, receive=4096) as (reader, writer):
                    reader._transport.pause_reading()  # type: ignore[attr-defined]
                    attack.said["opened"] += 1
                    writer.write(request)
                    while attack.going() and not writer.transport.is_closing():
                        await asyncio.sleep(0.5)
            except OSError as error:
                attack.said[type(error).__name__] += 1
            await asyncio.sleep(0.2)

    await asyncio.gather(*(line() for _ in range(200)))


def bodies(at_once: int, *, once: bool = False) -> Callable[[Attack], Awaitable[None]]:
    """Return an attack that sends what was prepared for it."""

    async def send(attack: Attack) -> None:
        requests = [attack.head("POST", p, len(b), k) + b for p, k, b in attack.prepared.requests]
        await attack.repeat(requests, at_once, once=once)

    return send


async def look_ups(attack: Attack) -> None:
    """Look 45 nodes up at a time, while deltas come one after the other."""
    draw = random.Random(1)
    looks = [
        attack.head("GET", f"/v1/nodes/{draw.randrange(attack.nodes)}?integer=true&limit=200")
        for _ in range(500)
    ]
    deltas = [attack.head("POST", p, len(b), k) + b for p, k, b in attack.prepared.requests]
    await asyncio.gather(attack.repeat(looks, 45), attack.repeat(deltas, 1, once=True))


async def suggestions(attack: Attack) -> None:
    """Ask what to label next, four at a time."""
    await attack.repeat([attack.head("GET", "/v1/suggestions?n=1000")], 4)


async def guessing(attack: Attack) -> None:
    """Guess tokens, sixteen at a time."""
    draw = random.Random(1)
    guesses = [
        f"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
        f"{draw.randbytes(24).hex()}\r\nX-Forwarded-For: 10.0.{place % 256}.1\r\n\r\n".encode()
        for place in range(1_000)
    ]
    await attack.repeat(guesses, 16)


async def nobody(attack: Attack) -> None:
    """Do nothing: what the victim sees on this machine anyway."""
    await asyncio.sleep(attack.seconds)


ATTACKS: dict[str, Callable[[Attack], Awaitable[None]]] = {
    "nobody": nobody,
    "silent": silent,
    "half heads": half_heads,
    "slow headers": slow_headers,
    "slow bodies": slow_bodies,
    "unread answers": unread,
    "large predictions": bodies(6),
    "20 large predictions": bodies(20),
    "refused deltas": bodies(30),
    "30 MB of JSON": bodies(2),
    "1 MB of JSON": bodies(2),
    "look-ups": look_ups,
    "suggestions": suggestions,
    "dictionary bombs": bodies(4),
    "truncated Arrow": bodies(4),
    "nested Arrow": bodies(4),
    "large deltas": bodies(1, once=True),
    "a class a node": bodies(1),
    "deep JSON": bodies(4),
    "guessing tokens": guessing,
}


def main() -> None:
    """Prepare, say so, wait for a line, attack, and tell what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attack", choices=tuple(ATTACKS), required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--first", type=int, required=True, help="number of the next new node")
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    os.nice(5)  # the machine has two cores, and what is measured is the service, not the scheduler
    prepare = BODIES.get(given.attack)
    prepared = Prepared() if prepare is None else prepare(given.nodes, given.first)
    attack = Attack(given.port, given.token, given.nodes, given.seconds, prepared)
    print("ready", flush=True)
    sys.stdin.readline()
    attack.late = time.monotonic() + given.seconds

    async def whole() -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            # Whatever still waits for an answer when time is up is left.
            await asyncio.wait_for(ATTACKS[given.attack](attack), given.seconds + 1)

    asyncio.run(whole())
    print(json.dumps(dict(+attack.said)))


if __name__ == "__main__":
    main()
