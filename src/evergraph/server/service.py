"""The learner as the routes see it: one writer, and readers that never wait for it.

Small predictions run on the event loop itself, those that wait at the same moment in one call.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import orjson

from evergraph.core.errors import EvergraphError, UnknownNodeError
from evergraph.online.folder.markers import ACKNOWLEDGED_FILE, acknowledged_in
from evergraph.online.identifiers import LARGEST
from evergraph.online.view import Answer
from evergraph.server import schema
from evergraph.server.bodies import DeltaReader
from evergraph.server.http import Bodies, Limits, RefusedError, without_paths
from evergraph.server.workers import Writer, pools

if TYPE_CHECKING:
    from evergraph.online.delta import Delta, DeltaResult, NodeId
    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.online.upsert import Upserted

NODES_AT_ONCE = 16  # nodes of a batch of predictions, which nobody else is answered during
NUMBERS_AT_ONCE = 1 << 10  # that are serialised on the event loop
SEQ_CHECK_SECONDS = 0.002  # between two looks for a delta that a request waits for
POLL_SECONDS = 0.01  # between two polls of the journal
LAST_POLL_SECONDS = 1.0  # that closing waits for the last poll
log = logging.getLogger(__name__)


class _Question(NamedTuple):
    ids: Sequence[NodeId]
    every_class: bool
    answer: asyncio.Future[Answer]


class PredictionBatches:
    """Answers small questions on the event loop, batching those that wait at the same moment.

    No question is delayed to wait for others: a batch is what has arrived when the loop gets to it.

    Questions about more than ``NODES_AT_ONCE`` nodes are for a thread. answer: returns the answer for
    ids, with ``True`` including all probabilities.
    """

    def __init__(self, answer: Callable[[Sequence[NodeId], bool], Answer]) -> None:
        self._answer = answer
        self._waiting: deque[_Question] = deque()

    def ask(self, ids: Sequence[NodeId], every_class: bool) -> asyncio.Future[Answer]:
        """Return a future for the answer, or for the error."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._answer_batch)
        question = _Question(ids, every_class, loop.create_future())
        self._waiting.append(question)
        return question.answer

    def _answer_batch(self) -> None:
        """Answer the questions that wait, at most ``NODES_AT_ONCE`` nodes at a time."""
        batch: list[_Question] = []
        count = 0
        while self._waiting and (not batch or count + len(self._waiting[0].ids) <= NODES_AT_ONCE):
            batch.append(self._waiting.popleft())
            count += len(batch[-1].ids)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._answer_batch)
        for every_class in (False, True):
            questions = [q for q in batch if q.every_class == every_class and not q.answer.done()]
            if questions:
                self._answer_together(questions, every_class)

    def _answer_together(self, questions: Sequence[_Question], every_class: bool) -> None:
        try:
            answer = self._answer([node for q in questions for node in q.ids], every_class)
        except Exception as error:
            if len(questions) == 1:
                questions[0].answer.set_exception(error)
                return
            for question in questions:  # one of them is invalid: answer each by itself
                self._answer_together([question], every_class)
            return
        start = 0
        for question in questions:
            part = answer.predictions[start : (start := start + len(question.ids))]
            question.answer.set_result(Answer(answer.seq, part, answer.classes))


class Service:
    """A learner: changes go through one thread and the journal, readers see whole deltas."""

    def __init__(self, folder: LearnerFolder, limits: Limits) -> None:
        self.folder = folder
        self.limits = limits
        self._followed = time.monotonic()  # when it was last up to date with the journal
        self.failed = Event()  # set: the process ends, and its supervisor restarts it
        self.renew_view()
        folder.watch(on_change=self.renew_view, on_stop=self.fail)
        self.writer = Writer(folder, queue_size=limits.queue)
        self.pools = pools(limits.seconds)
        self.bodies = Bodies(limits)
        self.reader = DeltaReader(folder, most=limits.nodes)
        self._batches = PredictionBatches(self._predict)
        self.stopping = Event()  # set: requests no longer wait for further deltas
        self._closing = Event()
        self._follower = Thread(target=self._follow, name="evergraph-follower", daemon=True)

    def start(self) -> None:
        """Keep a read-only service up to date with the process that writes, from now on."""
        if self.folder.readonly:
            self._follower.start()

    def _follow(self) -> None:
        """Apply deltas that the writing process adds; a poll that finds none costs microseconds."""
        while not self._closing.wait(POLL_SECONDS):
            try:
                self.folder.refresh()
                self._followed = time.monotonic()
            except Exception as error:
                if not self._closing.is_set():  # else the folder was closed while polling
                    unforeseen = None if isinstance(error, EvergraphError) else error
                    log.error("cannot follow the journal any more: %s", error, exc_info=unforeseen)
                    self.fail()
                return

    async def change(self, delta: Delta, *, upsert: bool = False) -> DeltaResult | Upserted:
        """Apply a delta, and return once it is on disk and visible to readers.

        upsert: apply what is new only. A delta that is not begun in time is dropped; one that is
        begun is finished.
        """
        self.check_writes()
        future = self.writer.submit(delta, partial(self.folder.upsert, delta) if upsert else None)
        try:
            with anyio.fail_after(self.limits.seconds):
                done: DeltaResult | Upserted = await asyncio.wrap_future(future)
                return done
        except TimeoutError:
            sentence = f"this took longer than {self.limits.seconds:g} s"
            if future.cancel():
                raise RefusedError(
                    503, f"{sentence}, and nothing was changed", retry_after=1
                ) from None
            key_hint = "" if upsert else "with the same key "
            sentence += f" and is still running: send it again {key_hint}to get its result"
            raise RefusedError(503, sentence, retry_after=5) from None

    def renew_view(self) -> None:
        """Let readers see the folder's newest state."""
        self.view = self.folder.learner.frozen()  # shared from the first node on

    def fail(self) -> None:
        """End a process that can no longer write or follow; its supervisor restarts it."""
        if not self.failed.is_set():
            self.failed.set()
            os.kill(os.getpid(), signal.SIGTERM)

    def check_writes(self) -> None:
        """Reject what only the writing process can do."""
        if self.folder.readonly:
            raise RefusedError(
                403, "this process is read-only: send the request to the one that writes"
            )

    def _process(self) -> dict[str, Any]:
        """Return the role of this process, and how far it is behind the one that writes."""
        if not self.folder.readonly:
            return {"role": "writer", "lag": 0, "lag_seconds": 0.0}
        lag = max(acknowledged_in(self.folder.path / ACKNOWLEDGED_FILE) - self.folder.seq, 0)
        seconds = round(time.monotonic() - self._followed, 3) if lag else 0.0
        return {"role": "reader", "lag": lag, "lag_seconds": seconds}

    def readiness(self) -> dict[str, Any]:
        """Return ``{"status": "ready"}``, or another status and the reason."""
        if self.stopping.is_set():
            return {"status": "stopping"}
        # A reader can always answer; whether writes have stopped is the writer's status.
        stopped = None if self.folder.readonly else self.folder.status().stopped
        if stopped is not None:
            return {"status": "stopped", "why": without_paths(stopped, self.folder.path)}
        return {"status": "ready"}

    async def predictions(self, ids: Sequence[NodeId], *, every_class: bool) -> bytes:
        """Return predictions as JSON, from the last whole delta.

        A few are made on the event loop, which is cheaper than a thread; many on a thread.
        """
        self._check_size(len(ids), every_class=every_class)
        classes = len(self.view.classes)
        numbers = len(ids) * (classes if every_class else 4)
        if len(ids) <= NODES_AT_ONCE and numbers <= NUMBERS_AT_ONCE:
            return predictions_json(await self._batches.ask(ids, every_class))
        return await self.pools["predictions"].run(partial(self._in_slices, ids, every_class))

    def _check_size(self, nodes: int, *, every_class: bool) -> None:
        classes, most = len(self.view.classes), self.limits.answers
        if every_class and nodes * classes > most:
            raise RefusedError(
                413,
                f"an answer must hold at most {most} probabilities, not {nodes} of {classes} "
                f"classes: request at most {max(most // classes, 1)} nodes at a time",
            )

    async def beside_known(self, ids: Sequence[NodeId], *, every_class: bool) -> bytes:
        """Return predictions as JSON, with the target that is known of each node."""
        self._check_size(len(ids), every_class=every_class)

        def serialised() -> bytes:
            return orjson.dumps(
                schema.with_known(*self.view.answer_beside_known(ids, every_class=every_class))
            )

        return await self.pools["look-ups"].run(serialised)

    async def ask(self, delta: Delta, ids: Sequence[NodeId] | None, *, every_class: bool) -> bytes:
        """Return the predictions that a delta would lead to as JSON, by a copy of the learner."""
        self._check_size(len(delta.nodes if ids is None else ids), every_class=every_class)
        learner = self.folder.learner

        def serialised() -> bytes:
            return predictions_json(learner.ask(delta, ids, every_class=every_class))

        return await self.pools["questions"].run(serialised)

    def _predict(self, ids: Sequence[NodeId], every_class: bool) -> Answer:
        return self.view.answer(ids, every_class=every_class)

    def _in_slices(self, ids: Sequence[NodeId], every_class: bool) -> bytes:
        """Predict and serialise a few nodes at a time."""
        slices: list[bytes] = []
        for answer in self.view.answers(ids, every_class=every_class):
            slices.append(predictions_json(answer.predictions)[1:-1])
        # No name of a class can look like this: quotation marks are escaped.
        envelope = predictions_json(replace(answer, predictions=()))
        return envelope.replace(b'"predictions":[]', b'"predictions":[%s]' % b",".join(slices), 1)

    async def prediction(self, text: str, *, integer: bool, every_class: bool) -> bytes:
        """Return the prediction for one node as JSON; its id as in ``node``."""
        first, second = ids_of(text, integer)
        try:
            return await self.predictions([first], every_class=every_class)
        except UnknownNodeError:
            if second is None:
                raise
            return await self.predictions([second], every_class=every_class)

    async def wait_for(self, seq: int) -> None:
        """Wait until a delta is visible to readers; reject the request if it does not come."""
        patience = min(self.limits.patience, self.limits.seconds)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while (visible := self.view.status().seq) < seq:
            if self.stopping.is_set() or loop.time() >= deadline:
                raise RefusedError(
                    503,
                    f"delta {seq} has not come within {patience:g} s, only {visible}",
                    retry_after=1,
                )
            await asyncio.sleep(SEQ_CHECK_SECONDS)

    def status(self) -> dict[str, Any]:
        """Return the status of the learner and of its folder."""
        folder = asdict(self.folder.status())
        of_folder = {name: folder[name] for name in schema.OF_THE_FOLDER}
        for name in ("stopped", "snapshot_error"):
            if of_folder[name] is not None:
                of_folder[name] = without_paths(of_folder[name], self.folder.path)
        of_learner = asdict(self.view.status())
        names = list(self.view.classes[-schema.MAX_NAMES :])
        of_service = {"names": names, "waiting": self.writer.waiting}
        return of_learner | of_service | self._process() | of_folder

    def alarms(self) -> dict[str, Any]:
        """Return the accuracy alarm while it is raised."""
        published = self.view.published
        return {"seq": published.status.seq, "alarms": schema.to_json(published.alarms)}

    def node(self, text: str, *, integer: bool, limit: int) -> dict[str, Any]:
        """Return the explanation of a node with its neighbourhood.

        text: the id in the URL, tried as a string and then, if it is one, as an integer.
        """
        view, (first, second) = self.view, ids_of(text, integer)
        scheme = self.folder.columns
        columns = () if scheme is None else scheme.columns_of_features
        try:
            return schema.node_reply(view, first, limit, columns)
        except UnknownNodeError:
            if second is None:
                raise
            return schema.node_reply(view, second, limit, columns)

    def close(self) -> None:
        """Finish queued changes, and close the folder."""
        self._closing.set()
        if self._follower.is_alive():
            self._follower.join(LAST_POLL_SECONDS)
        for pool in self.pools.values():
            pool.close()
        self.writer.close()
        self.folder.close()


def predictions_json(predictions: Answer | Sequence[Any]) -> bytes:
    """Return ``schema.to_json`` of predictions as text, without converting each of them in Python.

    orjson writes fields that are None, too: those are cut out; no name can look like them.
    """
    text = orjson.dumps(predictions).replace(b',"probabilities":null', b"")
    return text.replace(b',"classes":null', b"")


def ids_of(text: str, integer: bool) -> tuple[NodeId, int | None]:
    """Return the id to try first and the one to try second that a text in a URL may mean.

    >>> ids_of("7", integer=False), ids_of("07", integer=False), ids_of("7", integer=True)
    (('7', 7), ('07', None), (7, None))
    """
    try:
        number: int | None = int(text)
    except ValueError:
        number = None
    # Only the canonical form is an integer id: "07" and "+7" are strings.
    if number is not None and (str(number) != text or not -LARGEST - 1 <= number <= LARGEST):
        number = None
    if not integer:
        return text, number
    if number is None:
        raise RefusedError(422, f"an integer id must be a whole number of 64 bits, not {text!r}")
    return number, None
