"""The learner as the routes see it: one writer, and readers that never wait for it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import orjson

from evergraph.core.errors import UnknownNodeError
from evergraph.online.folder.markers import ACKNOWLEDGED_FILE, acknowledged_in
from evergraph.online.identifiers import LARGEST
from evergraph.online.view import FEW
from evergraph.server.bodies import Bodies, PredictionsBody, read_delta, read_question
from evergraph.server.http import RefusedError, without_paths
from evergraph.server.rows import with_names, with_rows
from evergraph.server.schema import (
    MOST_NAMES,
    OF_THE_FOLDER,
    Alarms,
    Process,
    Suggestions,
    node_reply,
    told,
)
from evergraph.server.workers import Together, Writer, pools
from evergraph.tables.nodes import say_by_position

if TYPE_CHECKING:
    from evergraph.online.delta import Delta, DeltaResult, NodeId
    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.online.upsert import Upserted
    from evergraph.online.view import Answer, History
    from evergraph.server.limits import Limits
    from evergraph.tables.scheme import Scheme

T = TypeVar("T")
SMALL = 1 << 14  # bytes of a question that is read on the event loop
LITTLE = 1 << 10  # numbers that are told on the event loop
PAUSE = 0.002  # seconds between two looks for a delta that somebody waits for


class Service:
    """Changes go through one thread and the journal; predictions read the last whole delta.

    Args:
        folder: open for writing, or to read; closed with the service.
        limits: how much one request may ask for.
    """

    def __init__(self, folder: LearnerFolder, limits: Limits) -> None:
        self.folder = folder
        self.limits = limits
        self._followed = time.monotonic()  # when it last knew all that was written
        self.failed = Event()  # set: the process ends, and whoever supervises it starts it again
        self.turn()
        folder.watch(on_change=self.turn, on_stop=self.fail)
        self.writer = Writer(folder, places=limits.queue)
        self.pools = pools(limits.seconds)
        self.bodies = Bodies(limits)
        self._told_positions = False  # whether it was said that names are not looked at
        self._together = Together(self._predict)
        self.stopping = Event()  # set: nobody waits for what may come

    async def read_delta(
        self, body: bytes, *, model: str, kind: str
    ) -> tuple[Delta, Scheme | None]:
        """Return the delta that a body is, and by which scheme its nodes were read, if by any.

        model, kind: as in ``read_delta`` of ``bodies``.
        """
        threads, most = self.pools["bodies"], self.limits.nodes
        read = partial(read_delta, body, model=model, kind=kind, most=most)
        found = await threads.run(read)
        if found.rows:
            return await threads.run(partial(with_rows, found.delta, found.rows, self.folder))
        if not found.told:
            return found.delta, None
        by_name = partial(with_names, found.delta, found.told, self.folder)
        delta, scheme = await threads.run(by_name)
        if scheme is None and found.told["names"] and not self._told_positions:
            self._told_positions = True
            say_by_position("Arrow", [*found.told["names"]])
        return delta, scheme

    async def read_question(self, body: bytes) -> PredictionsBody:
        """Return which nodes a body asks for."""
        ask = partial(read_question, body, most=self.limits.nodes)
        return ask() if len(body) < SMALL else await self.pools["bodies"].run(ask)

    async def change(self, delta: Delta, scheme: Scheme | None = None) -> DeltaResult:
        """Have a delta learned, and return once it is on the disk and known.

        scheme: by which its nodes were read, if they came as rows.

        Where it does not get its turn in time, it is dropped. Where it is begun, it is finished,
        even if nobody waits for the answer any more.
        """
        return await self._written(partial(self._submit, delta, scheme), again="with the same key ")

    async def upsert(self, delta: Delta, scheme: Scheme | None = None) -> Upserted:
        """Have what is new of a delta learned, in the same way."""
        learned = partial(self._kept_then, self.folder.upsert, delta, scheme)
        return await self._written(partial(self.writer.call, learned), again="")

    def _submit(self, delta: Delta, scheme: Scheme | None) -> Future[DeltaResult]:
        """Have a delta wait for its turn: with others, unless it is the first that is read so."""
        if scheme is not None:
            if not self.folder.learner.status().features:
                learned = partial(self._kept_then, self.folder.submit, delta, scheme)
                return self.writer.call(learned)
            self.folder.check_columns(scheme)  # once settled it stays
        return self.writer.submit(delta)

    async def _written(self, wait: Callable[[], Future[T]], *, again: str) -> T:
        self.check_writes()
        future = wait()
        try:
            with anyio.fail_after(self.limits.seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            late = f"this took longer than {self.limits.seconds:g} s"
            if future.cancel():
                raise RefusedError(503, f"{late}, and nothing was changed", retry_after=1) from None
            raise RefusedError(
                503,
                f"{late}, and is still going on: send it again {again}to see what became of it",
                retry_after=5,
            ) from None

    def _kept_then(self, learn: Callable[[Delta], T], delta: Delta, scheme: Scheme | None) -> T:
        """Keep how columns are read with the first rows, once it is sure that they fit; learn."""
        if scheme is not None:
            if not self.folder.learner.status().features:
                self.folder.learner.check(delta)
            self.folder.keep_columns(scheme)
        return learn(delta)

    def columns(self) -> dict[str, Any]:
        """Return how columns are read, for people and for programs."""
        scheme = self.folder.columns
        if scheme is None:
            return {"columns": [], "scheme": None}
        return {"columns": scheme.rows(), "scheme": scheme.to_json()}

    def turn(self) -> None:
        """Answer from what the folder knows now."""
        self._view = self.folder.learner.frozen()  # shared from the first node on

    def follow(self) -> None:
        """Apply what the process that writes has written since; for a folder opened to read."""
        self.folder.refresh()
        self._followed = time.monotonic()

    def fail(self) -> None:
        """End the process, which can write or follow no more, with what it has begun answered.

        Whoever supervises it starts it again, and it recovers what is on the disk by then.
        """
        if not self.failed.is_set():
            self.failed.set()
            os.kill(os.getpid(), signal.SIGTERM)

    def check_writes(self) -> None:
        """Refuse what only the process that writes can do."""
        if self.folder.readonly:
            raise RefusedError(
                403, "this process only reads: ask the one that writes to the folder"
            )

    def process(self) -> Process:
        """Return this process, and how far it is behind the one that writes."""
        seq = self.folder.seq
        if not self.folder.readonly:
            return Process("writer", os.getpid(), seq, 0, 0.0, True)
        lag = max(acknowledged_in(self.folder.path / ACKNOWLEDGED_FILE) - seq, 0)
        seconds = round(time.monotonic() - self._followed, 3) if lag else 0.0
        return Process("reader", os.getpid(), seq, lag, seconds, True)

    def readiness(self) -> dict[str, Any]:
        """Return ``{"status": "ready"}``, or what there is instead and why."""
        if self.stopping.is_set():
            return {"status": "stopping"}
        # Who only reads answers from what it has; whether more comes is for the writer to say.
        stopped = None if self.folder.readonly else self.folder.status().stopped
        if stopped is not None:
            return {"status": "stopped", "why": without_paths(stopped, self.folder.path)}
        return {"status": "ready"}

    async def predictions(self, ids: Sequence[NodeId], *, every_class: bool) -> bytes:
        """Return the classes of nodes as JSON, as of the last whole delta.

        Few are told on the event loop, which is cheaper than a thread; many from a thread.
        """
        classes, most = len(self._view.classes), self.limits.answers
        if every_class and len(ids) * classes > most:
            raise RefusedError(
                413,
                f"an answer must hold at most {most} probabilities, not {len(ids)} of {classes} "
                f"classes: ask for at most {max(most // classes, 1)} nodes at a time",
            )
        numbers = len(ids) * (classes if every_class else 4)
        if len(ids) <= FEW and numbers <= LITTLE and self._view.quick:
            return orjson.dumps(told(await self._together.ask(ids, every_class)))
        return await self.pools["predictions"].run(
            lambda: orjson.dumps(told(self._predict(ids, every_class)))
        )

    def _predict(self, ids: Sequence[NodeId], every_class: bool) -> Answer:
        return self._view.answer(ids, every_class=every_class)

    async def prediction(self, text: str, *, integer: bool, every_class: bool) -> bytes:
        """Return the class of one node, whose id is written as text; see ``node``."""
        number = _integer(text, integer)
        try:
            first = number if integer and number is not None else text
            return await self.predictions([first], every_class=every_class)
        except UnknownNodeError:
            if integer or number is None:
                raise
            return await self.predictions([number], every_class=every_class)

    async def wait_for(self, seq: int) -> None:
        """Wait until a delta is known here; refuse where it does not come in time."""
        most = min(self.limits.patience, self.limits.seconds)
        if not await self.until(lambda: self._view.status().seq >= seq, most):
            known = self._view.status().seq
            raise RefusedError(
                503, f"delta {seq} has not come within {most:g} s, only {known}", retry_after=1
            )

    async def until(self, true: Callable[[], bool], seconds: float) -> bool:
        """Wait until something is true, but not when the service stops; return whether it is."""
        loop = asyncio.get_running_loop()
        late = loop.time() + seconds
        while not true():
            if self.stopping.is_set() or loop.time() >= late:
                return False
            await asyncio.sleep(PAUSE)
        return True

    def status(self) -> dict[str, Any]:
        """Return what the learner knows, and how its folder does."""
        folder = asdict(self.folder.status())
        kept = {name: folder[name] for name in OF_THE_FOLDER}
        for name in ("stopped", "snapshot_error"):
            if kept[name] is not None:
                kept[name] = without_paths(kept[name], self.folder.path)
        known = asdict(self._view.status())
        names = list(self._view.classes[-MOST_NAMES:])
        processes = [asdict(self.process())]
        told = {"names": names, "waiting": self.writer.waiting, "replicas": processes}
        return known | told | kept

    def alarms(self) -> dict[str, Any]:
        """Return the alarm that predictions are worse than they were, while they are."""
        page = self._view.page
        found: dict[str, Any] = told(Alarms(page.status.seq, page.alarms))
        return found

    def suggestions(self, n: int) -> dict[str, Any]:
        """Return the nodes that are worth asking a person about."""
        found: dict[str, Any] = told(Suggestions(*self._view.suggestions(n)))
        return found

    def last_key(self, prefix: str) -> dict[str, Any]:
        """Return the key of the newest delta whose key begins so."""
        self.check_writes()
        return {"key": self.folder.last_key(prefix)}

    def ids(self, start: int, limit: int) -> dict[str, Any]:
        """Return some ids, and where to go on."""
        found, rest = self._view.ids_from(start, limit)
        return {"ids": found, "next": rest}

    def classes(self, start: int, limit: int) -> dict[str, Any]:
        """Return some names of classes, and where to go on."""
        names, end = self._view.classes, start + limit
        return {"classes": list(names[start:end]), "next": end if end < len(names) else None}

    def history(self) -> History:
        """Return how good predictions were before their labels came."""
        return self._view.history()

    def node(self, text: str, *, integer: bool, limit: int) -> dict[str, Any]:
        """Return what is known about a node, and why it is classified as it is."""
        view, number = self._view, _integer(text, integer)
        try:
            return node_reply(view, number if integer and number is not None else text, limit)
        except UnknownNodeError:
            if integer or number is None:
                raise
            return node_reply(view, number, limit)

    def close(self) -> None:
        """Finish the changes that wait, and close the folder."""
        for pool in self.pools.values():
            pool.close()
        self.writer.close()
        self.folder.close()


def _integer(text: str, asked: bool) -> int | None:
    """Return the integer id that a text writes, if it does; refuse where one is asked for."""
    number = _whole(text)
    if asked and number is None:
        raise RefusedError(422, f"an integer id must be a whole number of 64 bits, not {text!r}")
    return number


def _whole(text: str) -> int | None:
    """Return the integer id that a text writes, None where it writes none.

    >>> _whole("7"), _whole("07"), _whole("seven")
    (7, None, None)
    """
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text and -LARGEST - 1 <= number <= LARGEST else None
