"""Threads for what takes long, kind by kind: one kind cannot take those of another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import anyio

from evergraph.server.http import RefusedError

T = TypeVar("T")


class Pool:
    """Some threads for one kind of work, and places for what waits for them.

    What takes too long is answered with 503. Its thread goes on to its end and is not replaced
    before, so there are never more of them.

    Args:
        what: what is done, in the plural, for the sentence of a refusal.
        threads: how many are done at once.
        places: how many may wait.
        seconds: how long one may take, its waiting included.

    >>> async def main():
    ...     pool = Pool("sums", threads=1, places=8, seconds=5.0)
    ...     return await pool.run(lambda: 1 + 1)
    >>> asyncio.run(main())
    2
    """

    def __init__(self, what: str, *, threads: int, places: int, seconds: float) -> None:
        self.what = what
        self.threads = threads
        self.places = places
        self.seconds = seconds
        self._running = 0  # or waiting
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=f"evergraph-{what}")

    async def run(self, call: Callable[[], T]) -> T:
        """Return what ``call`` returns, from a thread; refuse where there is no place left."""
        if self._running >= self.threads + self.places:
            sentence = f"{self.places} {self.what} are waiting already: ask again later"
            raise RefusedError(503, sentence, retry_after=1)
        try:
            future = asyncio.get_running_loop().run_in_executor(self._executor, call)
        except RuntimeError:  # it was closed
            raise RefusedError(503, "the service is stopping", retry_after=5) from None
        self._running += 1
        future.add_done_callback(self._ended)
        try:
            with anyio.fail_after(self.seconds):
                return await asyncio.shield(future)
        except TimeoutError:
            future.cancel()  # if it has not begun
            raise RefusedError(
                503, f"the answer took longer than {self.seconds:g} s", retry_after=1
            ) from None

    def _ended(self, future: asyncio.Future[T]) -> None:
        self._running -= 1
        if not future.cancelled():
            future.exception()  # nobody may be waiting for it any more

    def close(self) -> None:
        """Begin nothing more."""
        self._executor.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class Pools:
    """The kinds of work that are kept apart.

    Attributes:
        bodies: reading small bodies.
        large_bodies: reading large ones, one at a time.
        predictions: of many nodes.
        lookups: of nodes and their surroundings; one at a time, for the writer's sake.
        suggestions: which look at the whole graph.
        facts: status, history, keys, ids.
        backups: one at a time, and as long as it takes.
    """

    bodies: Pool
    large_bodies: Pool
    predictions: Pool
    lookups: Pool
    suggestions: Pool
    facts: Pool
    backups: Pool

    @classmethod
    def of(cls, seconds: float) -> Pools:
        """Return pools whose work may take so many seconds."""

        def pool(what: str, threads: int, places: int) -> Pool:
            return Pool(what, threads=threads, places=places, seconds=seconds)

        return cls(
            bodies=pool("bodies", 2, 64),
            large_bodies=pool("large bodies", 1, 8),
            predictions=pool("predictions", 2, 256),
            lookups=pool("look-ups", 1, 64),
            suggestions=pool("suggestions", 1, 8),
            facts=pool("requests for facts", 2, 64),
            backups=Pool("backups", threads=1, places=2, seconds=3600.0),
        )

    def close(self) -> None:
        """Begin nothing more."""
        every = (self.bodies, self.large_bodies, self.predictions)
        for pool in (*every, self.lookups, self.suggestions, self.facts, self.backups):
            pool.close()
