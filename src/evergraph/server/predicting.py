"""Predictions as fast as they go: one ASGI endpoint, and questions that wait are answered together.

Most requests ask for one node, and for these the framework's routing, validation and threads cost
ten times what the prediction does. So ``POST /v1/predictions`` is answered before the router sees
it; the router holds its description.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import anyio
from starlette.requests import ClientDisconnect, Request

from evergraph.core.errors import EvergraphError
from evergraph.core.extras import installed
from evergraph.online.identifiers import LARGEST
from evergraph.online.view import FEW, Answer
from evergraph.server.http import JSON, RefusedError, failure, media_type, read_body
from evergraph.server.parameters import check_parameters
from evergraph.server.schema import told

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from evergraph.online.delta import NodeId
    from evergraph.server.guard import Guard
    from evergraph.server.service import Service

PATH = "/v1/predictions"
SLOWEST = 10  # times as long as another request, a client may take to read a large answer
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Question:
    ids: Sequence[NodeId]
    every_class: bool
    answer: asyncio.Future[Answer]


class Together:
    """Answers small questions on the event loop, those that wait at the same moment in one call.

    Nobody waits for others to come: what has arrived by the time the loop gets to it is taken.

    Args:
        answer: returns the answer to ids; for ``True`` with the probabilities of all classes.
        most: nodes in one call.

    >>> def answer(ids, every_class):
    ...     return Answer(len(ids), tuple(ids))
    >>> async def asked():
    ...     together = Together(answer)
    ...     return await asyncio.gather(*(together.ask([node], False) for node in "abc"))
    >>> asyncio.run(asked())[1]  # all three were asked at once
    Answer(seq=3, predictions=('b',), classes=None)
    """

    def __init__(
        self, answer: Callable[[Sequence[NodeId], bool], Answer], *, most: int = FEW
    ) -> None:
        self._answer = answer
        self.most = most
        self._waiting: list[_Question] = []

    def ask(self, ids: Sequence[NodeId], every_class: bool) -> asyncio.Future[Answer]:
        """Return what will hold the answer, or what is wrong with the question."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._turn)
        question = _Question(ids, every_class, loop.create_future())
        self._waiting.append(question)
        return question.answer

    def _turn(self) -> None:
        """Answer those that wait; where there are many, some at a time."""
        some: list[_Question] = []
        count = 0
        for question in self._waiting:
            count += len(question.ids)
            if some and count > self.most:
                break
            some.append(question)
        del self._waiting[: len(some)]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        for every_class in (False, True):
            alike = [q for q in some if q.every_class == every_class and not q.answer.done()]
            if alike:
                self._answer_alike(alike, every_class)

    def _answer_alike(self, questions: Sequence[_Question], every_class: bool) -> None:
        try:
            found = self._answer([node for q in questions for node in q.ids], every_class)
        except Exception as error:
            if len(questions) > 1:  # one of them is wrong: the others need not suffer
                for question in questions:
                    self._answer_alike([question], every_class)
            else:
                questions[0].answer.set_exception(error)
            return
        start = 0
        for question in questions:
            part = found.predictions[start : (start := start + len(question.ids))]
            question.answer.set_result(Answer(found.seq, part, found.classes))


class Predicting:
    """An application that answers ``POST /v1/predictions`` itself and passes on everything else."""

    path = PATH  # what metrics count it under

    def __init__(self, app: ASGIApp, *, service: Service, guard: Guard) -> None:
        self.app = app
        self._service = service
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        scope["route"] = self
        try:
            told = await self._answered(Request(scope, receive))
            first = told if isinstance(told, bytes) else await anext(told)
        except Exception as error:
            said = failure(error, scope, self._service.folder.path)
            await said(scope, receive, send)
            if isinstance(error, (EvergraphError, ClientDisconnect)):
                return
            raise  # as it would come from the framework
        if isinstance(told, bytes):
            head = [(b"content-length", b"%d" % len(told)), (b"content-type", JSON.encode())]
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await send({"type": "http.response.body", "body": told})
        else:
            await self._send_parts(first, told, send)

    async def _send_parts(self, first: bytes, rest: AsyncGenerator[bytes], send: Send) -> None:
        """Send an answer as it is told; break off where nobody takes it in time."""
        limits = self._service.limits
        head = [(b"content-type", JSON.encode())]
        try:
            with anyio.fail_after(SLOWEST * limits.seconds):
                await send({"type": "http.response.start", "status": 200, "headers": head})
                await _send_part(first, send, limits.seconds)
                async for part in rest:
                    await _send_part(part, send, limits.seconds)
                await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            log.warning("an answer was broken off: the client was too slow to read it")
        finally:
            await rest.aclose()

    async def _answered(self, request: Request) -> bytes | AsyncGenerator[bytes]:
        """Return the answer, in parts where it is large."""
        service = self._service
        self._guard.admit(request, "read")
        media_type(request, JSON)
        asked = await service.read_question(await read_body(request, service.limits))
        if query := request.scope["query_string"]:
            await service.wait_for(after_in(query))
        service.check_answer(asked)
        if service.is_small(asked):
            return as_json(
                told(await service.predictions(asked.ids, every_class=asked.every_class))
            )
        if service.is_large(asked):
            return service.told(asked, request.receive)
        return await service.told_at_once(asked)


async def _send_part(part: bytes, send: Send, seconds: float) -> None:
    with anyio.fail_after(seconds):
        await send({"type": "http.response.body", "body": part, "more_body": True})


def after_in(query: bytes) -> int:
    """Return the number of the delta that an answer must know, 0 where it is not said.

    >>> after_in(b"after=12"), after_in(b"")
    (12, 0)
    """
    check_parameters(query, ["after"])
    text = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("after", ["0"])[-1]
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LARGEST:
        return int(text)
    raise RefusedError(422, f"after must be the seq of a delta, not {text[:40]!r}")


def as_json(value: Any) -> bytes:
    """Return a value as JSON, by orjson where it is installed.

    >>> as_json({"seq": 1})
    b'{"seq":1}'
    """
    return _dumps()(value)


@cache
def _dumps() -> Callable[[Any], bytes]:
    if installed("orjson"):
        import orjson

        return orjson.dumps
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return lambda value: encoder.encode(value).encode()
