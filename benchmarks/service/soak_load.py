"""A graph that grows at one end and is forgotten at the other, and questions about it.

All that was acknowledged is remembered here, so that after a kill it is known what must be there.
What was under way is sent again with its key until it is answered.
"""

from __future__ import annotations

import http.client
import random
import time
from collections.abc import Callable
from threading import Condition, Event, Lock
from typing import Any

from benchmarks.service.own_service import OwnService
from benchmarks.service.service import deltas

from evergraph.online.delta import Delta
from evergraph.server.client import arrow_from_delta

STEP = 100  # nodes that come, and go, at a time
PACE = 0.25  # seconds between changes, at least
COMPACT = 60.0  # seconds between compactions
GONE = (OSError, http.client.HTTPException)


def as_json(delta: Delta) -> dict[str, Any]:
    """Return a delta of new nodes as the service takes it."""
    return {
        "nodes": list(delta.nodes),
        "features": delta.features.tolist(),
        "labels": list(delta.labels),
        "edges": [list(pair) for pair in delta.edges],
    }


class Window:
    """The nodes that are there: those from ``first`` up to ``next``.

    Args:
        service: that is told.
        nodes: how many there are, about.
    """

    def __init__(self, service: OwnService, nodes: int) -> None:
        self.service, self.nodes = service, nodes
        self.first = self.next = 0
        self.seq = 0  # the last one that was acknowledged
        self.failures: list[str] = []
        self._took: list[float] = []
        self._lock = Lock()
        self._running = Condition()
        self._paused = self._idle = False

    def fill(self) -> None:
        """Let the first nodes in."""
        while self.next < self.nodes:
            self.grow()

    def run(self, stop: Event) -> None:
        """Change the graph until told to stop; it stays about as large as it is."""
        ways: tuple[Callable[[], None], ...] = (self.grow, self.label, self.forget, self.upsert)
        turn, compacted = 0, time.monotonic()
        try:
            while not stop.is_set():
                begun = time.monotonic()
                ways[turn % len(ways)]()
                turn += 1
                if begun - compacted > COMPACT:
                    compacted = begun
                    self.compact()
                stop.wait(max(0.0, PACE - (time.monotonic() - begun)))
        except Exception as error:  # told when all is over
            self.failures.append(f"{type(error).__name__}: {error}")

    def raise_failures(self) -> None:
        """Raise what ended the load early."""
        if self.failures:
            raise RuntimeError(f"the load ended early: {self.failures[0]}")

    def grow(self) -> None:
        """Let nodes in, as JSON or as Arrow."""
        delta = next(deltas(self.next, STEP, STEP))
        low = self.first  # edges to what is gone would be refused
        kept = tuple((a, b) for a, b in delta.edges if int(b) >= low)
        delta = Delta(nodes=delta.nodes, features=delta.features, labels=delta.labels, edges=kept)
        body = arrow_from_delta(delta) if self.next // STEP % 2 else as_json(delta)
        self.send("/v1/deltas", body, f"grow {self.next}")
        self.next += STEP

    def label(self) -> None:
        """Tell classes late."""
        nodes = range(self.next - STEP, self.next, 7)
        labels = [[node, f"class {node // 50 % 20}"] for node in nodes]
        self.send("/v1/labels", {"labels": labels}, f"label {self.next}-{self.seq}")

    def forget(self) -> None:
        """Have the oldest nodes forgotten."""
        gone = list(range(self.first, self.first + STEP))
        self.send("/v1/forget", {"ids": gone}, f"forget {self.first}")
        self.first += STEP

    def upsert(self) -> None:
        """Send nodes that are known once more."""
        delta = next(deltas(self.next - STEP, STEP, STEP))
        kept = [[a, b] for a, b in delta.edges if int(b) >= self.first]
        self.send("/v1/upsert", as_json(delta) | {"edges": kept}, None)

    def compact(self) -> None:
        """Have a snapshot taken, where there is a route for it."""
        try:
            self.service.ask("/v1/compact", {"now": True})
        except GONE:
            return

    def send(self, path: str, body: dict[str, Any] | bytes, key: str | None) -> None:
        """Send a change until it is answered, again with its key where the service was killed."""
        key = None if key is None else key.replace(" ", "-")
        while True:
            with self._running:
                self._idle = True
                self._running.notify_all()
                self._running.wait_for(lambda: not self._paused)
                self._idle = False
            begun = time.perf_counter()
            try:
                status, told = self.service.ask(path, body, key=key)
            except GONE:
                time.sleep(0.1)
                continue
            if status == 200:
                break
            if status != 503:
                raise RuntimeError(f"{path} was refused with {status}: {told}")
            time.sleep(0.1)
        with self._lock:
            self._took.append(time.perf_counter() - begun)
        self.seq = max(self.seq, told["seq"])

    def taken(self) -> list[float]:
        """Return how long changes took since this was last asked."""
        with self._lock:
            took, self._took = self._took, []
            return took

    def pause(self) -> int:
        """Stop sending; return the last delta that was acknowledged."""
        with self._running:
            self._paused = True
            self._running.wait_for(lambda: self._idle, timeout=90)
        return self.seq

    def go_on(self) -> None:
        """Send again."""
        with self._running:
            self._paused = False
            self._running.notify_all()

    def compare(self, acknowledged: int) -> str:
        """Return what is missing after a restart; one change that nobody was told of may be there.

        Called while nothing is sent.
        """
        status, known = self.service.ask("/v1/status")
        if status != 200:
            return f"the status is refused with {status}: {known}"
        if not acknowledged <= known["seq"] <= acknowledged + 1:
            return f"{known['seq']} deltas are there, {acknowledged} were acknowledged"
        right = self.next - self.first
        if known["nodes"] - right not in (0, STEP, -STEP):
            return f"{known['nodes']} nodes are there instead of {right}"
        if known["seq"] == acknowledged and known["nodes"] != right:
            return f"{known['nodes']} nodes are there instead of {right}, and no delta more"
        draw = random.Random(acknowledged)
        some = draw.sample(range(self.first + STEP, self.next), 50)
        status, told = self.service.ask("/v1/predictions", {"ids": some})
        if status != 200:
            return f"nodes are missing: {told}"
        gone = self.first - 1
        if gone >= 0 and self.service.ask("/v1/predictions", {"ids": [gone]})[0] != 404:
            return f"node {gone} was forgotten and is there"
        return "nothing"


class Questions:
    """Predictions, look-ups and suggestions, all the time."""

    def __init__(self, service: OwnService, window: Window) -> None:
        self.service, self.window = service, window
        self._took: list[float] = []
        self._lock = Lock()

    def run(self, stop: Event) -> None:
        """Ask until told to stop; what is not answered is not counted: a kill is not an answer."""
        draw, turn = random.Random(0), 0
        while not stop.wait(0.05):
            window, turn = self.window, turn + 1
            node = draw.randrange(window.first + STEP, max(window.first + STEP + 1, window.next))
            try:
                begun = time.perf_counter()
                status, _ = self.service.ask("/v1/predictions", {"ids": [node]}, seconds=30)
                if status == 200:
                    with self._lock:
                        self._took.append(time.perf_counter() - begun)
                if turn % 10 == 0:
                    self.service.ask(f"/v1/nodes/{node}?integer=true", seconds=30)
                if turn % 200 == 0:
                    self.service.ask("/v1/suggestions?n=10", seconds=30)
                    self.service.ask("/metrics", seconds=30)
            except GONE:
                time.sleep(0.2)

    def taken(self) -> list[float]:
        """Return how long answers took since this was last asked, new connections included."""
        with self._lock:
            took, self._took = self._took, []
            return took
